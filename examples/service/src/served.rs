//! A service that serves its own memory: a cache that grows, and requests that allocate and free. Start it, and open
//! `http://127.0.0.1:6060/`, or `go tool pprof http://127.0.0.1:6060/debug/pprof/heap`.
//!
//! Usage: `served [ADDRESS [REQUESTS]]`. Without a number of requests, it runs until it is stopped.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::thread;
use std::time::Duration;

use memtrack_core::{TrackingAllocator, start_monitor, stop};

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();

/// The sessions that the service never forgets, which is its mistake.
#[derive(Default)]
struct Sessions {
    by_user: HashMap<u64, Vec<u8>>,
}

impl Sessions {
    fn insert(&mut self, user: u64) {
        self.by_user.insert(user, vec![1; 4096]);
    }
}

/// Answers a request, with memory that is freed at its end.
fn answer(user: u64) -> usize {
    let page: String = (0..200).map(|row| format!("<tr><td>{user}</td><td>{row}</td></tr>")).collect();
    page.len()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:6060".to_owned());
    let requests: Option<u64> = arguments.next().map(|number| number.parse()).transpose()?;

    start_monitor();
    let server = memtrack_core::serve(&address)?;
    println!("http://{}/", server.local_addr());

    let mut sessions = Sessions::default();
    let mut sent = 0;
    for user in 0..requests.unwrap_or(u64::MAX) {
        sent += answer(user);
        if user % 10 == 0 {
            sessions.insert(user);
        }
        thread::sleep(Duration::from_millis(1));
    }

    server.stop();
    println!("{sent} bytes sent, {} sessions kept", sessions.by_user.len());
    print!("{}", stop());
    Ok(())
}

//! Ends of `cuda_plain` that take more than a line: signals of its own, exit handlers of its own, a child that is killed.

use crate::client;
use std::io::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

static SIGNALS: AtomicI32 = AtomicI32::new(0);

extern "C" fn count(_signal: i32) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Has `SIGUSR2` counted.
pub fn handle_the_signal() {
    // SAFETY: the handler adds to an atomic and does nothing else.
    unsafe { libc::signal(libc::SIGUSR2, count as *const () as usize) };
}

/// Says `ready`, waits for the signal, and says that it came.
pub fn wait_to_be_told() {
    let say = |text: &str| {
        println!("{text}");
        std::io::stdout().flush().expect("it can be said");
    };
    say("ready");
    let begun = Instant::now();
    while SIGNALS.load(Ordering::Relaxed) == 0 {
        assert!(begun.elapsed() < crate::HANG, "no signal came");
        thread::sleep(Duration::from_millis(10));
    }
    say("handled");
}

/// What the exit handlers free.
static LEFT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

extern "C" fn free_the_first() {
    client::free(LEFT[0].load(Ordering::Relaxed)).expect("it was ours");
}

extern "C" fn free_the_second() {
    client::free(LEFT[1].load(Ordering::Relaxed)).expect("it was ours");
}

/// Takes two blocks beside `work`, and returns; its exit handlers, one from before the driver's first use and one from
/// after it, free them.
pub fn free_at_exit(work: fn()) {
    // SAFETY: the handlers are plain functions that stay.
    unsafe { libc::atexit(free_the_first) };
    work();
    for left in &LEFT {
        left.store(client::alloc(8 << 20).expect("memory"), Ordering::Relaxed);
    }
    // SAFETY: as above.
    unsafe { libc::atexit(free_the_second) };
}

/// Takes `count` blocks on each of two threads, and is killed while both still run.
pub fn be_killed_at_work(count: usize) {
    let done = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                client::begin(0);
                for _ in 0..count {
                    client::alloc(512).expect("memory");
                }
                done.wait();
                loop {
                    thread::park();
                }
            });
        }
        done.wait();
        // SAFETY: a signal to ourselves.
        unsafe { libc::raise(libc::SIGKILL) };
    });
}

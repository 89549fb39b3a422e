//! Programs that serve their own memory over HTTP.

use memtrack_core::event::DeviceId;
use memtrack_core::host::internal_heap_bytes;
use memtrack_core::recorder::Options;
use memtrack_core::serve::{ServeOptions, respond};
use memtrack_tests::counting::live_bytes;
use memtrack_tests::forked::status_of;
use memtrack_tests::http::get;
use memtrack_tests::pprof::Profile;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const PATHS: [&str; 5] = ["/debug/pprof/heap", "/metrics", "/", "/rss", "/snapshot.memtrack"];

/// Fetches everything with a few bytes of memory of its own, and returns the size of the last response.
fn fetch(address: std::net::SocketAddr, path: &str) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut request = [0; 128];
    let mut rest = &mut request[..];
    write!(rest, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let left = rest.len();
    stream.write_all(&request[..128 - left]).unwrap();
    let (mut buffer, mut bytes) = ([0; 4096], 0);
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return bytes,
            read => bytes += read,
        }
    }
}

#[inline(never)]
fn hold_blocks() -> Vec<Vec<u8>> {
    (0..1000).map(|number| vec![1; 100 + number]).collect()
}

/// Responses are made without changing the program's sums, and a profile has the program's blocks.
pub fn heap() {
    memtrack_core::start_monitor_with(&Options::new().exact()).unwrap();
    let (counted, own) = (live_bytes(), internal_heap_bytes());
    let server = memtrack_core::serve("127.0.0.1:0").unwrap();
    let held = hold_blocks();
    let counts = || *memtrack_core::snapshot().unwrap().exact_counts(DeviceId::HOST).unwrap();
    let before = counts();
    for path in PATHS {
        for _ in 0..5 {
            assert!(fetch(server.local_addr(), path) > 100);
        }
    }
    let after = counts();
    // The client's few blocks are allocated and freed again.
    let live =
        |counts: &memtrack_core::snapshot::DeviceStatistics| counts.allocated_bytes - counts.freed_bytes;
    assert_eq!(live(&before), live(&after));
    assert!(after.allocated_bytes - before.allocated_bytes < 100_000, "{before:?} {after:?}");
    let response = get(server.local_addr(), "/debug/pprof/heap");
    let profile = Profile::parse(&response.body);
    let of_blocks = |place: usize| -> i64 {
        let is_held = |sample: &&memtrack_tests::pprof::Sample| {
            profile.functions(sample).iter().any(|function| function.0.ends_with("serve::hold_blocks"))
                && sample.value[2] > 1
        };
        profile.sample.iter().filter(is_held).map(|sample| sample.value[place]).sum()
    };
    let bytes: i64 = held.iter().map(|block| block.capacity() as i64).sum();
    assert_eq!([of_blocks(2), of_blocks(3)], [1000, bytes]);
    let resident = get(server.local_addr(), "/rss");
    assert!(resident.status == 200 && resident.text().contains("live heap blocks"), "{}", resident.text());
    drop((response, profile, resident));
    server.stop();
    black_box(&held);
    drop(respond("/metrics"));
    let live = memtrack_core::snapshot().unwrap();
    let counts = live.exact_counts(DeviceId::HOST).unwrap();
    let recorded = counts.allocated_bytes as i64 - counts.freed_bytes as i64;
    drop(live);
    // Everything else on the heap is memtrack's.
    wait_for_threads();
    let internal = internal_heap_bytes() - own;
    assert_eq!(recorded + internal, live_bytes() - counted);
    memtrack_core::stop();
}

/// Waits until this is the process's only thread: the server's threads free their memory when they end.
fn wait_for_threads() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    memtrack_tests::time::wait_for("the server's threads have ended", || threads() == 1);
}

/// The server's port is closed in a forked child, so it is free as soon as the parent stops the server, or is killed.
pub fn fork() {
    memtrack_core::start_monitor();
    let server = memtrack_core::serve("127.0.0.1:0").unwrap();
    let address = server.local_addr();
    assert_eq!(get(address, "/metrics").status, 200);
    let endpoints = ServeOptions::new().start_on_request(Options::new(), Duration::from_secs(60)).endpoints();
    assert_eq!(endpoints.respond("/debug/pprof/heap").status, 200);
    let works_in_child = || {
        // Their lock may be held in the parent.
        let refusal = endpoints.respond("/debug/pprof/heap");
        assert!(refusal.status == 503 && refusal.body.starts_with(b"this process was forked"));
        // The child's recording goes on.
        assert_eq!(respond("/debug/pprof/heap").status, 200);
    };
    let child = sleeping_child(works_in_child);
    assert_eq!(get(address, "/metrics").status, 200, "the parent still serves");
    server.stop();
    assert!(TcpStream::connect(address).is_err());
    TcpListener::bind(address).unwrap();
    end(child);

    // A parent that is killed, and leaves a child.
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the child runs only this function's code on its only thread, and is ended.
    let parent = unsafe { libc::fork() };
    if parent == 0 {
        let server = memtrack_core::serve("127.0.0.1:0").unwrap();
        let child = sleeping_child(|| ());
        let port = server.local_addr().port();
        writer.write_all(&[&port.to_ne_bytes()[..], &child.to_ne_bytes()].concat()).unwrap();
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let (mut port, mut child) = ([0; 2], [0; 4]);
    reader.read_exact(&mut port).unwrap();
    reader.read_exact(&mut child).unwrap();
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], u16::from_ne_bytes(port)));
    assert_eq!(get(address, "/metrics").status, 200);
    end(parent);
    assert!(TcpStream::connect(address).is_err(), "the child listens");
    // SAFETY: the process was forked by the one above.
    unsafe { libc::kill(i32::from_ne_bytes(child), libc::SIGKILL) };
    memtrack_core::stop();
}

/// Forks a child that serves as well, calls `check`, and then sleeps.
fn sleeping_child(check: impl Fn()) -> libc::pid_t {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the child runs only this function's code on its only thread, and is ended.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let server = memtrack_core::serve("127.0.0.1:0").unwrap();
        assert_eq!(get(server.local_addr(), "/metrics").status, 200);
        server.stop();
        check();
        writer.write_all(&[1]).unwrap();
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    // The child has a server of its own.
    reader.read_exact(&mut [0]).unwrap();
    child
}

fn end(child: libc::pid_t) {
    // SAFETY: the child has not been waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    status_of(child);
}

/// The program ends while requests wait, are being answered, and are not being read.
pub fn exit() {
    memtrack_core::start_monitor();
    let server = memtrack_core::serve("127.0.0.1:0").unwrap();
    let paths = ["/debug/pprof/heap?seconds=300", "/snapshot.memtrack", "/", "/metrics"];
    let requests: Vec<TcpStream> = paths
        .iter()
        .map(|path| {
            let mut stream = TcpStream::connect(server.local_addr()).unwrap();
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
            stream
        })
        .collect();
    std::mem::forget(requests);
    std::mem::forget(server);
}

//! Streams whose file is closed, full, bounded, or cut at any moment.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{Options, record_alloc, record_free};
use memtrack_tests::time::HANG;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const STREAM: StreamId = StreamId(0);
/// Returns the address of a block: scattered, so that a file fills quickly.
fn address_of(number: u64) -> u64 {
    let mix = |number: u64| (number ^ number >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = mix(mix(number));
    mixed ^ mixed >> 32
}

/// The number of further allocations after which a block is freed.
pub const LIVES: u64 = 50;
/// Blocks whose number is a multiple of this are never freed.
pub const STAYS: u64 = 997;

/// Allocates the blocks 1 to `count` of a device, whose sizes depend on their numbers, and frees most of them.
fn churn(device: DeviceId, count: u64, mut done: impl FnMut(u64)) {
    for number in 1..=count {
        record_alloc(device, STREAM, address_of(number), number % 1000 + 1);
        if let Some(old) = number.checked_sub(LIVES).filter(|old| *old > 0 && old % STAYS != 0) {
            record_free(device, STREAM, address_of(old), old % 1000 + 1);
        }
        done(number);
    }
}

/// Streams in several parts from three threads, and ends in the given way.
pub fn parts(how: &str, path: &str) {
    let options = Options::new().without_host_heap().max_entries(1000).stream_to(path).max_bytes(1 << 20);
    memtrack_core::start_monitor_with(&options).unwrap();
    let threads: Vec<_> =
        (0..3).map(|device| thread::spawn(move || churn(DeviceId(device), 25_000, |_| ()))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    match how {
        "stop" => drop(memtrack_core::stop()),
        "abort" => std::process::abort(),
        other => panic!("no such ending: {other}"),
    }
}

/// Closes all files except the standard streams, as daemons do, opens a new file and continues.
pub fn closed_files(path: &str, other: &str) {
    let options = Options::new().without_host_heap().stream_to(path);
    memtrack_core::start_monitor_with(&options).unwrap();
    churn(DeviceId(0), 10_000, |_| ());
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: descriptors of this process, including any that memtrack has opened.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        for number in 3..limit.rlim_cur.min(1 << 20) as i32 {
            libc::close(number);
        }
    }
    let mut file = File::create(other).unwrap();
    // Each descriptor that memtrack may have had now refers to the program's file.
    for number in 3..limit.rlim_cur.min(1 << 20) as i32 {
        if number != file.as_raw_fd() && (number < 2048 || number % 1000 == 0) {
            // SAFETY: as above.
            assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
        }
    }
    file.write_all(b"the program's").unwrap();
    churn(DeviceId(0), 30_000, |_| ());
    wait_for_the_test();
    drop(memtrack_core::stop());
    file.write_all(b" own").unwrap();
}

/// Waits until the test closes this program's standard input.
fn wait_for_the_test() {
    // SAFETY: the signal ends the process, which is correct if the test no longer runs.
    unsafe { libc::alarm(HANG.as_secs() as u32) };
    assert!(std::io::stdin().lines().next().is_none());
}

/// Streams until the disk is full, and continues. The program handles no signals, so memtrack must not cause any.
pub fn full_disk(path: &str) {
    let options = Options::new().without_host_heap().stream_to(path);
    memtrack_core::start_monitor_with(&options).unwrap();
    limit(libc::RLIMIT_FSIZE, 200_000);
    churn(DeviceId(0), 200_000, |_| ());
    wait_for_the_test();
    drop(memtrack_core::stop());
    println!("still here");
}

fn limit(resource: libc::__rlimit_resource_t, most: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is an initialized local variable.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &mut limit), 0);
        limit.rlim_cur = most.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(resource, &limit), 0);
    }
}

/// The number of times at which [`until_the_end`] stores the threads' progress in its file, and the interval between them.
pub const MOMENTS: usize = 600;
pub const MOMENT: Duration = Duration::from_millis(50);

/// Streams from two threads that record as fast as they can and one that records slowly, until the process is ended: by a signal
/// from outside, or in the way `how` after `after_ms` milliseconds. Every 50 ms the progress of each thread is stored in the
/// file `progress`, which survives the process because it is mapped.
pub fn until_the_end(how: &str, after_ms: u64, max_bytes: u64, path: &str, progress: &str) {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(progress).unwrap();
    let words = 1 + 3 * MOMENTS;
    file.set_len(words as u64 * 8).unwrap();
    // SAFETY: maps a file of that length that stays open; its words are zeros, which are valid counts.
    let map: &'static [AtomicU64] = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let map = libc::mmap(std::ptr::null_mut(), words * 8, access, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(map, libc::MAP_FAILED);
        std::slice::from_raw_parts(map.cast(), words)
    };
    let options = Options::new().max_entries(10_000).stream_to(path);
    let options = if max_bytes > 0 { options.max_bytes(max_bytes) } else { options };
    memtrack_core::start_monitor_with(&options.without_host_heap()).unwrap();
    if how == "disk" {
        limit(libc::RLIMIT_FSIZE, 50_000 + after_ms * 997 % 1_500_000);
    }
    static DONE: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
    for (device, done) in DONE.iter().enumerate() {
        thread::spawn(move || {
            churn(DeviceId(device as u16), u64::MAX, |number| {
                done.store(number, Ordering::Relaxed);
                if device == 2 {
                    thread::sleep(Duration::from_millis(3));
                }
            });
        });
    }
    let begin = Instant::now();
    for moment in 0..MOMENTS {
        for (device, done) in DONE.iter().enumerate() {
            map[1 + 3 * moment + device].store(done.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        map[0].store(moment as u64 + 1, Ordering::Release);
        if begin.elapsed() >= Duration::from_millis(after_ms) {
            end(how);
        }
        thread::sleep(MOMENT);
    }
}

fn end(how: &str) {
    match how {
        "abort" => std::process::abort(),
        // SAFETY: ends the process, as intended.
        "segv" => unsafe {
            libc::raise(libc::SIGSEGV);
        },
        // SAFETY: as above; the kernel does the same when memory runs out.
        "kill" => unsafe {
            libc::raise(libc::SIGKILL);
        },
        "memory" => {
            limit(libc::RLIMIT_AS, 1);
            // Rust's runtime aborts when an allocation fails.
            let mut blocks = Vec::new();
            loop {
                blocks.push(std::hint::black_box(vec![1_u8; 1 << 20]));
            }
        }
        // The disk has been full for a while, and the program has continued until now.
        "disk" => std::process::exit(0),
        other => panic!("no such ending: {other}"),
    }
}

/// Prints messages to a stderr whose pipe is full, or has no reader, in a program that `SIGPIPE` would end.
pub fn unread_stderr() {
    let print_warnings = || {
        let mut tracker = memtrack_core::tracker::MemoryTracker::new();
        tracker.start_monitor();
        // Prints a warning on stderr each time.
        (0..3).for_each(|_| tracker.start_monitor());
    };
    let mut ends = [0; 2];
    // SAFETY: the array has room for both descriptors, which this function owns; the signal's default action is restored.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        assert_eq!(libc::dup2(ends[1], 2), 2);
        libc::fcntl(ends[1], libc::F_SETFL, libc::O_NONBLOCK);
        while libc::write(ends[1], [0; 4096].as_ptr().cast(), 4096) > 0 {}
        libc::fcntl(ends[1], libc::F_SETFL, 0);
    }
    print_warnings();
    // SAFETY: the descriptor was opened above.
    unsafe { libc::close(ends[0]) };
    print_warnings();
    // SAFETY: as above.
    unsafe {
        libc::close(2);
        libc::close(ends[1]);
    }
    print_warnings();
    println!("still here");
}

/// Begins to stream to a pipe that nothing reads, which is soon full. Returns the pipe's descriptor.
fn stream_to_a_full_pipe(path: &str) -> i32 {
    // SAFETY: the path is a C string.
    let pipe = unsafe {
        let path = std::ffi::CString::new(path).unwrap();
        assert_eq!(libc::mkfifo(path.as_ptr(), 0o600), 0);
        libc::open(path.as_ptr(), libc::O_RDWR)
    };
    assert!(pipe >= 0);
    let options = Options::new().without_host_heap().stream_to(path);
    memtrack_core::start_monitor_with(&options).unwrap();
    pipe
}

/// Returns whether a pipe is full.
fn is_full(pipe: i32) -> bool {
    let mut entry = libc::pollfd { fd: pipe, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the only entry is a local variable.
    unsafe { libc::poll(&mut entry, 1, 0) == 0 }
}

/// Catches panics while the thread that writes the stream waits for a blocked file. Prints the duration of the first panic, and
/// of 20 more, which need not wait.
pub fn panics_while_stalled(path: &str) {
    std::panic::set_hook(Box::new(|_| {}));
    let pipe = stream_to_a_full_pipe(path);
    static DONE: AtomicU64 = AtomicU64::new(0);
    thread::spawn(|| churn(DeviceId(0), u64::MAX, |number| DONE.store(number, Ordering::Relaxed)));
    // Waits until the thread makes no progress: it writes, or waits for another thread that writes.
    let mut before = 0;
    loop {
        thread::sleep(Duration::from_secs(2));
        let done = DONE.load(Ordering::Relaxed);
        if done > 0 && done == before && is_full(pipe) {
            break;
        }
        before = done;
    }
    for _ in 0..=20 {
        let begin = Instant::now();
        assert!(std::panic::catch_unwind(|| panic!("caught")).is_err());
        println!("{}", begin.elapsed().as_millis());
    }
    // SAFETY: ends the process without exit handlers; memtrack's would wait longer for the file.
    unsafe { libc::_exit(0) };
}

/// Streams to a blocked file. The thread that writes waits for the file, and no other thread waits for long.
pub fn stalled(path: &str) {
    stream_to_a_full_pipe(path);
    static DONE: AtomicU64 = AtomicU64::new(0);
    for device in 0..3 {
        thread::spawn(move || {
            churn(DeviceId(device), 40_000, |_| ());
            DONE.fetch_add(1, Ordering::Relaxed);
        });
    }
    // Waits for all threads except the one that writes; the latter may be memtrack's thread.
    while DONE.load(Ordering::Relaxed) < 2 {
        thread::sleep(Duration::from_millis(10));
    }
    drop(memtrack_core::stop());
    println!("still here");
    std::process::exit(0);
}

/// Streams 25,000 blocks of one size in parallel with other processes; 1,000 of the blocks stay live. Begins at the first line
/// of standard input, and stops at the end of the input.
pub fn together(path: &str, max_bytes: u64, size_bytes: u64) {
    let options = Options::new().without_host_heap().max_entries(1000).stream_to(path);
    let options = if max_bytes > 0 { options.max_bytes(max_bytes) } else { options };
    let mut lines = std::io::stdin().lines();
    lines.next().unwrap().unwrap();
    memtrack_core::start_monitor_with(&options).unwrap();
    for number in 1..=25_000_u64 {
        record_alloc(DeviceId(0), STREAM, address_of(number), size_bytes);
        if !number.is_multiple_of(25) {
            record_free(DeviceId(0), STREAM, address_of(number), size_bytes);
        }
    }
    println!("recorded");
    assert!(lines.next().is_none());
    drop(memtrack_core::stop());
}

/// The bound on the stream is too small for the live blocks.
pub fn too_small(path: &str) {
    let options = Options::new().without_host_heap().max_entries(1000).stream_to(path).max_bytes(1 << 20);
    memtrack_core::start_monitor_with(&options).unwrap();
    (1..=300_000).for_each(|number| record_alloc(DeviceId(0), STREAM, address_of(number), number));
    drop(memtrack_core::stop());
    println!("still here");
}

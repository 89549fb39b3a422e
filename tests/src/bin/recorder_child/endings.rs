//! The ways in which a program or a session ends, and sessions that follow one another.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{Context, Options, record_alloc};
use std::hint::black_box;
use std::io::Write;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);

/// Records 5,000 blocks on a device and one on the heap, and ends in the given way.
pub fn end(how: &str, path: &str) {
    let (how, options) = match how.strip_prefix("stream_") {
        Some(how) => (how, Options::new().stream_to(path)),
        None => (how, Options::new().output(path)),
    };
    memtrack_core::start_monitor_with(&options).unwrap();
    (1..=5000).for_each(|address| record_alloc(DEVICE, STREAM, address, address));
    let live = black_box(vec![1_u8; 333_333]);
    match how {
        "stop" => drop(memtrack_core::stop()),
        "exit" => std::process::exit(7),
        "return" => {}
        "panic" => panic!("on purpose"),
        "exit_beside_threads" => {
            static RECORDED: AtomicU64 = AtomicU64::new(0);
            for number in 0..3_u64 {
                thread::spawn(move || {
                    for address in 0.. {
                        record_alloc(DeviceId(1), STREAM, number << 32 | address, 8);
                        RECORDED.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while RECORDED.load(Ordering::Relaxed) < 20_000 {
                thread::yield_now();
            }
            std::process::exit(0)
        }
        "abort" => {
            let thread = thread::spawn(|| panic!("in a thread"));
            assert!(thread.join().is_err());
            std::process::abort()
        }
        "missing_folder" => {
            drop(memtrack_core::stop());
            println!("still here");
        }
        other => panic!("no such ending: {other}"),
    }
    drop(live);
}

/// Streams events with addresses 1, 2, 3 … from three threads, each on one device, until killed. The progress of each
/// thread is in the file `progress`, which survives the process because it is mapped.
pub fn stream_until_killed(path: &str, progress: &str) {
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(progress)
        .unwrap();
    file.write_all(&[0; 24]).unwrap();
    // SAFETY: maps 24 bytes of a file of that length that stays open.
    let map = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(
            std::ptr::null_mut(),
            24,
            access,
            libc::MAP_SHARED,
            std::os::fd::AsRawFd::as_raw_fd(&file),
            0,
        )
    };
    assert_ne!(map, libc::MAP_FAILED);
    memtrack_core::start_monitor_with(
        &Options::new().stream_to(path).without_host_heap().max_entries(10_000),
    )
    .unwrap();
    let map = map as usize;
    let threads: Vec<_> = (0..3_usize)
        .map(|number| {
            thread::spawn(move || {
                for address in 1_u64.. {
                    record_alloc(DeviceId(number as u16), STREAM, address, 16);
                    // SAFETY: the mapping is never removed, and each thread writes a different word.
                    unsafe { (map as *mut u64).add(number).write_volatile(address) };
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Streams ten events, and waits to be killed.
pub fn stream_and_wait(path: &str) {
    memtrack_core::start_monitor_with(&Options::new().stream_to(path).without_host_heap()).unwrap();
    (1..=10).for_each(|address| record_alloc(DEVICE, STREAM, address, 16));
    thread::sleep(memtrack_tests::time::HANG);
}

/// Caught panics cause writes while the stream runs; no event may be written twice.
pub fn stream_after_panics(path: &str) {
    std::panic::set_hook(Box::new(|_| {}));
    memtrack_core::start_monitor_with(&Options::new().stream_to(path).without_host_heap()).unwrap();
    for round in 0..50_u64 {
        for number in 0..round * 37 {
            record_alloc(DEVICE, STREAM, round << 32 | number, 8);
        }
        assert!(catch_unwind(|| panic!("caught")).is_err());
    }
    let recording = memtrack_core::stop();
    println!("{}", recording.snapshot().events.len());
}

/// A second session of the same process begins without live blocks.
pub fn restart() {
    memtrack_core::start_monitor_with(&Options::new().exact()).unwrap();
    let old = black_box(vec![1_u8; 333_333]);
    let first = memtrack_core::stop();
    assert!(first.snapshot().blocks.iter().any(|block| block.size_bytes == 333_333));
    memtrack_core::start_monitor_with(&Options::new().sample(64 << 10, 1)).unwrap();
    let small = black_box(vec![1_u8; 1234]);
    let second = memtrack_core::stop();
    assert!(second.snapshot().blocks.iter().all(|block| block.size_bytes != 333_333));
    // A block sampled in the previous session is not a sample in this one.
    memtrack_core::start_monitor_with(&Options::new()).unwrap();
    drop(small);
    drop(old);
    let third = memtrack_core::stop();
    let counts = third.snapshot().devices.iter().find(|row| row.device.is_host()).unwrap();
    assert!(third.snapshot().blocks.is_empty());
    assert!(counts.frees >= 2 && counts.freed_bytes >= 333_333 + 1234);
    assert_eq!(third.snapshot().events.len(), 1, "the free of the large block");
}

/// With the allocator installed, no warning is printed, whichever monitors join the session.
pub fn no_warning() {
    memtrack_core::start_monitor_with(&Options::new().without_host_heap().context(Context::None)).unwrap();
    memtrack_core::start_monitor();
    drop(memtrack_core::stop());
    drop(memtrack_core::stop());
    memtrack_core::start_monitor();
    drop(memtrack_core::stop());
}

/// Panics are caught in quick succession, and the last one cannot be caught.
pub fn many_panics(path: &str) {
    use std::os::unix::fs::MetadataExt;
    std::panic::set_hook(Box::new(|_| {}));
    memtrack_core::start_monitor_with(&Options::new().exact().output(path)).unwrap();
    (1..=100_000).for_each(|address| record_alloc(DEVICE, STREAM, address, 8));
    // Each write replaces the file with a new one.
    let mut files = std::collections::BTreeSet::new();
    for _ in 0..20 {
        assert!(catch_unwind(|| panic!("caught")).is_err());
        files.insert(std::fs::metadata(path).map_or(0, |data| data.ino()));
    }
    println!("{}", files.len());
    std::io::stdout().flush().unwrap();
    record_alloc(DEVICE, STREAM, 777_777, 777);
    extern "C" fn cannot_unwind() {
        panic!("not caught");
    }
    cannot_unwind();
}

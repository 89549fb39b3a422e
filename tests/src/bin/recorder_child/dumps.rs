//! Snapshots on demand and when memory runs out, and out-of-memory observers.

use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_core::recorder::{Options, record_alloc, record_free, record_oom};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::{OutOfMemory, attach_out_of_memory_observer, dump_snapshot, scope};
use memtrack_tests::replay::replay;
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);

fn run_out(requested_bytes: u64) {
    record_oom(DEVICE, STREAM, requested_bytes, 1 << 20, 8 << 20);
}

fn load(path: &Path) -> Snapshot {
    Snapshot::open(path, LoadOptions::default()).unwrap().snapshot
}

/// Counts a snapshot's out-of-memory events.
fn ooms(snapshot: &Snapshot) -> usize {
    snapshot.events.action.iter().filter(|&&action| action == Action::Oom).count()
}

/// Calls `meanwhile` while three threads allocate and free, each on a different device.
fn beside_threads(meanwhile: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let ready = AtomicUsize::new(0);
    thread::scope(|threads| {
        for number in 0..3_u16 {
            let (stop, ready) = (&stop, &ready);
            threads.spawn(move || {
                let device = DeviceId(number + 1);
                let _model = scope::module("busy");
                for round in 0..20_000_u64 {
                    match round {
                        _ if stop.load(Ordering::Relaxed) => break,
                        1000 => drop(ready.fetch_add(1, Ordering::Relaxed)),
                        // Slows down from here on, because a dump visits all events.
                        1000.. if round % 20 == 0 => thread::sleep(Duration::from_millis(1)),
                        _ => {}
                    }
                    let address = 4096 + round % 97;
                    if round >= 97 {
                        record_free(device, STREAM, address, 1);
                    }
                    record_alloc(device, STREAM, address, round + 1);
                }
            });
        }
        while ready.load(Ordering::Relaxed) < 3 {
            thread::yield_now();
        }
        meanwhile();
        stop.store(true, Ordering::Relaxed);
    });
}

/// Each dump shows a single moment, in every format, even with several dumps in parallel.
pub fn beside_threads_that_record(folder: &str) {
    let folder = Path::new(folder);
    memtrack_core::start_monitor_with(&Options::new().without_host_heap().max_entries(1 << 22)).unwrap();
    beside_threads(|| {
        thread::scope(|threads| {
            for name in ["a.memtrack", "b.memtrack.zst", "c.pickle", "d.json.gz"] {
                threads.spawn(move || dump_snapshot(folder.join(name)).unwrap());
            }
        });
    });
    drop(memtrack_core::stop());
    for name in ["a.memtrack", "b.memtrack.zst"] {
        let snapshot = load(&folder.join(name));
        for device in [1, 2, 3].map(DeviceId) {
            let replayed = replay(&snapshot, device);
            assert!(replayed.allocations >= 1000, "{name}: {}", replayed.allocations);
            replayed.assert_blocks_of(&snapshot, device);
        }
    }
    for name in ["c.pickle", "d.json.gz"] {
        let snapshot = load(&folder.join(name));
        for device in [1, 2, 3].map(DeviceId) {
            let count = |action| {
                let rows = snapshot.events.rows_of(device);
                rows.filter(|&row| snapshot.events.action[row] == action).count()
            };
            let live = snapshot.blocks.iter().filter(|block| block.device == device).count();
            assert!(count(Action::Alloc) >= 1000, "{name}");
            assert_eq!(count(Action::Alloc) - count(Action::FreeCompleted), live, "{name}");
        }
    }
}

/// Without a monitor nothing is written.
pub fn without_a_monitor(folder: &str) {
    let folder = Path::new(folder);
    let refused = [
        ("a.pickle", dump_snapshot(folder.join("a.pickle"))),
        ("b.svg", memtrack_core::save_segment_usage(folder.join("b.svg"))),
        ("c.svg", memtrack_core::save_memory_usage(folder.join("c.svg"))),
    ];
    for (name, refused) in refused {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("nothing is monitored"), "{error}");
        assert!(error.contains("start_monitor()"), "{error}");
    }
    memtrack_core::start_monitor();
    let error = dump_snapshot(folder.join("a.txt")).unwrap_err().to_string();
    assert!(error.contains("a.txt") && error.contains(".pickle"), "{error}");
    let error = dump_snapshot(folder.join("no/such/a.pickle")).unwrap_err().to_string();
    assert!(error.contains("no/such/a.pickle") && error.contains("No such file"), "{error}");
    drop(memtrack_core::stop());
    let refused = memtrack_core::start_monitor_with(&Options::new().dump_on_oom(folder.join("oom.txt")));
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("oom.txt") && error.contains(".memtrack"), "{error}");
    assert!(memtrack_core::snapshot().is_none(), "nothing is monitored then");
    assert_eq!(folder.read_dir().unwrap().count(), 0);
}

/// The plots show the code that holds memory.
pub fn usage(folder: &str) {
    let folder = Path::new(folder);
    memtrack_core::start_monitor_with(&Options::new().without_host_heap()).unwrap();
    memtrack_core::recorder::record_segment_alloc(DEVICE, StreamId(7), 0x1000_0000, 4 << 20);
    place_that_holds();
    memtrack_core::save_segment_usage(folder.join("segments.svg")).unwrap();
    memtrack_core::save_memory_usage(folder.join("memory.svg")).unwrap();
    // The second call replaces the file.
    memtrack_core::save_memory_usage(folder.join("memory.svg")).unwrap();
    drop(memtrack_core::stop());
}

#[inline(never)]
fn place_that_holds() {
    record_alloc(DEVICE, StreamId(7), 0x1000_0000, 3 << 20);
    black_box(());
}

/// Memory runs out ten times while other threads record; the recorder dumps eight times.
pub fn oom(path: &str) {
    let options = Options::new().without_host_heap().max_entries(1 << 22).dump_on_oom(path);
    memtrack_core::start_monitor_with(&options).unwrap();
    record_alloc(DEVICE, STREAM, 4096, 4 << 20);
    beside_threads(|| (1..=10).for_each(|round| run_out(round << 20)));
    drop(memtrack_core::stop());
    // A new session writes dumps again, to another path.
    memtrack_core::start_monitor_with(&Options::new().dump_on_oom("again.pickle.gz")).unwrap();
    run_out(77);
    drop(memtrack_core::stop());
    // While nothing is monitored, nothing is dumped.
    run_out(78);
}

/// A dump that cannot be written is reported, and the program continues.
pub fn oom_without_a_folder() {
    let options = Options::new().dump_on_oom("no/such/folder/oom.pickle");
    memtrack_core::start_monitor_with(&options).unwrap();
    run_out(5);
    assert_eq!(ooms(memtrack_core::stop().snapshot()), 1);
}

/// Observers panic, allocate, run out of memory, dump, and attach and detach others: all are called, in order, and the
/// code that reported the event is not affected.
pub fn observers(folder: &str) {
    let notified: Arc<Mutex<Vec<(&str, u64)>>> = Arc::default();
    let note = |name: &'static str| {
        let notified = Arc::clone(&notified);
        move |oom: &OutOfMemory| notified.lock().unwrap().push((name, oom.requested_bytes))
    };
    let take = || std::mem::take(&mut *notified.lock().unwrap());
    // Observers are called even while nothing is monitored.
    let first = attach_out_of_memory_observer(note("first"));
    run_out(1);
    assert_eq!(take(), [("first", 1)]);
    memtrack_core::start_monitor_with(&Options::new().exact()).unwrap();
    let mut numbers = None;
    attach_out_of_memory_observer({
        let (note, seen) = (note("numbers"), Arc::new(Mutex::new(None)));
        numbers.replace(Arc::clone(&seen));
        move |oom| {
            note(oom);
            *seen.lock().unwrap() = Some(*oom);
        }
    });
    attach_out_of_memory_observer(|_| panic!("on purpose"));
    attach_out_of_memory_observer(|_| std::panic::panic_any(PanicsWhenDropped));
    attach_out_of_memory_observer({
        let note = note("allocates");
        move |oom| {
            let block = black_box(vec![1_u8; 123_457]);
            // If an observer runs out of memory, this is recorded, but no observer is notified.
            run_out(1000 + oom.requested_bytes);
            drop(block);
            note(oom);
        }
    });
    let path = Path::new(folder).join("seen.memtrack");
    let dumping = attach_out_of_memory_observer({
        let (note, path) = (note("dumps"), path.clone());
        move |oom| {
            dump_snapshot(&path).unwrap();
            attach_out_of_memory_observer(|_| ()).detach();
            note(oom);
        }
    });
    run_out(2);
    let all = [("first", 2), ("numbers", 2), ("allocates", 2), ("dumps", 2)];
    assert_eq!(take(), all);
    let expected = OutOfMemory::new(DEVICE, STREAM, 2, 1 << 20, 8 << 20);
    assert_eq!(*numbers.unwrap().lock().unwrap(), Some(expected));
    assert_eq!(ooms(&load(&path)), 2, "the dump contains the event that caused it");
    first.detach();
    dumping.detach();
    let thread = thread::spawn(|| run_out(3));
    thread.join().unwrap();
    assert_eq!(take(), [("numbers", 3), ("allocates", 3)]);
    let recording = memtrack_core::stop();
    assert_eq!(ooms(recording.snapshot()), 4);
    let sizes = recording.snapshot().events.iter().filter(|event| event.size_bytes == 123_457).count();
    assert_eq!(sizes, 4, "observers' allocations are the program's");
    replay(recording.snapshot(), DeviceId::HOST).assert_blocks_of(recording.snapshot(), DeviceId::HOST);
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// Threads concurrently run out of memory, and attach and detach observers.
pub fn observer_storm() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    attach_out_of_memory_observer(|_| {
        CALLS.fetch_add(1, Ordering::Relaxed);
    });
    memtrack_core::start_monitor_with(&Options::new().exact()).unwrap();
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for round in 0..500 {
                    let block = vec![1_u8; 500];
                    let other = attach_out_of_memory_observer(move |_| drop(black_box(block.clone())));
                    run_out(round);
                    other.detach();
                }
            });
        }
    });
    let recording = memtrack_core::stop();
    assert_eq!((CALLS.load(Ordering::Relaxed), ooms(recording.snapshot())), (2000, 2000));
    replay(recording.snapshot(), DeviceId::HOST).assert_blocks_of(recording.snapshot(), DeviceId::HOST);
}

//! Children of `fork`: each records into its own file with new tables and never waits for a thread that no longer exists.

use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_core::host::own_bytes;
use memtrack_core::recorder::{Options, record_oom};
use memtrack_core::snapshot::Snapshot;
use memtrack_tests::forked::status_of;
use memtrack_tests::replay::{replay, statistics};
use std::hint::black_box;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Sizes that distinguish the parent's events from the child's.
const OF_PARENT: usize = 111_111;
const OF_CHILD: usize = 222_222;

fn allocate(size: usize) {
    drop(black_box(vec![1_u8; size]));
}

fn allocations(snapshot: &Snapshot, size: usize) -> usize {
    let events = snapshot.events.iter();
    events.filter(|event| event.action == Action::Alloc && event.size_bytes == size as u64).count()
}

/// Forks; the child runs `child` and exits with the returned code, without running destructors or exit handlers.
fn fork(child: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child continues with this thread only; the test checks that everything it calls is safe there.
    match unsafe { libc::fork() } {
        0 => {
            let code = child();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) }
        }
        child => child,
    }
}

/// Waits for a child and asserts that it succeeded.
fn wait(child: libc::pid_t) {
    assert_eq!(status_of(child), 0, "the child's status");
}

/// Parent and child each write a file; the child ends with `exit`.
pub fn files(path: &str) {
    memtrack_core::start_monitor_with(&Options::new().output(path)).unwrap();
    let _around = memtrack_core::scope::module("around");
    let live = black_box(vec![1_u8; OF_PARENT]);
    let child = fork(|| {
        allocate(OF_CHILD);
        std::process::exit(0)
    });
    wait(child);
    drop(live);
    allocate(OF_PARENT);
    let recording = memtrack_core::stop();
    assert_eq!(allocations(recording.snapshot(), OF_PARENT), 2);
    assert_eq!(allocations(recording.snapshot(), OF_CHILD), 0);
    println!("{child}");
}

/// memtrack's memory in a child: at first the part that the child still uses, then also new tables.
pub fn own_bytes_in_the_child() {
    /// The size in bytes of a memory reserve of memtrack's, which a child has, too.
    const RESERVE: i64 = 8 << 20;
    memtrack_core::start_monitor_with(&Options::new().exact()).unwrap();
    let _around = memtrack_core::scope::module("around");
    allocate(OF_PARENT);
    let of_parent = own_bytes();
    let child = fork(|| {
        let at_first = own_bytes();
        allocate(OF_CHILD);
        let later = own_bytes();
        i32::from(!(RESERVE <= at_first && at_first < of_parent && at_first < later))
    });
    wait(child);
    drop(memtrack_core::stop());
}

/// Forks while other threads are at arbitrary points in hooks, and records and stops in the child.
pub fn storm() {
    memtrack_core::start_monitor_with(&Options::new().exact().max_entries(20_000)).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                let mut round = number;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    drop(black_box(vec![1_u8; 64 + round % 1000]));
                    if round % 100 == 0 {
                        // New threads, stacks and nested monitors take the locks that are rarely taken.
                        memtrack_core::start_monitor();
                        thread::yield_now();
                        if round % 1000 == 0 {
                            drop(memtrack_core::stop());
                        }
                    }
                    if round % 5000 == 0 {
                        thread::spawn(|| allocate(10)).join().unwrap();
                    }
                }
            })
        })
        .collect();
    for round in 0..200 {
        let child = fork(|| {
            for size in 0..200 {
                allocate(OF_CHILD + size);
            }
            if round % 4 != 0 {
                return 0;
            }
            let recording = memtrack_core::stop();
            let replayed = replay(recording.snapshot(), DeviceId::HOST);
            let whole = (0..200).all(|size| allocations(recording.snapshot(), OF_CHILD + size) == 1);
            i32::from(!whole || replayed.allocations < 200)
        });
        wait(child);
    }
    done.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Forks while other threads register values, and scans in the child, where only values of the forking thread are registered.
pub fn cycles() {
    use memtrack_core::cycles::{NotScanned, enable, find, register};
    enable();
    let shared = Arc::new(1_u32);
    register(&shared);
    let of_thread = Rc::new(2_u32);
    register(&of_thread);
    let done = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    register(&Arc::new(3_u32));
                    let _ = find();
                }
            })
        })
        .collect();
    for _ in 0..200 {
        let child = fork(|| {
            let off = find().err() == Some(NotScanned::Off);
            register(&Arc::new(4_u32));
            enable();
            let of_child = Arc::new(5_u32);
            register(&of_child);
            // Values of this thread remain registered; values shared by threads remain registered only in the parent.
            let values = find().map(|report| report.values);
            i32::from(!off || values != Ok(2))
        });
        wait(child);
    }
    done.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(find().is_ok_and(|report| report.values == 2));
}

/// `stop` in the child ends the inherited session, and the child can begin another.
pub fn stop_in_the_child() {
    memtrack_core::start_monitor_with(&Options::new().exact()).unwrap();
    memtrack_core::start_monitor();
    allocate(OF_PARENT);
    let child = fork(|| {
        allocate(OF_CHILD);
        let first = memtrack_core::stop();
        let inherited =
            allocations(first.snapshot(), OF_CHILD) == 1 && allocations(first.snapshot(), OF_PARENT) == 0;
        let pid = first.snapshot().meta.pid == std::process::id();
        allocate(OF_CHILD);
        memtrack_core::start_monitor_with(&Options::new().exact()).unwrap();
        allocate(OF_PARENT);
        thread::spawn(|| allocate(OF_PARENT)).join().unwrap();
        let second = memtrack_core::stop();
        let fresh =
            allocations(second.snapshot(), OF_CHILD) == 0 && allocations(second.snapshot(), OF_PARENT) == 2;
        // No session is left to stop.
        let none = memtrack_core::stop().snapshot().devices.is_empty();
        i32::from(!(inherited && pid && fresh && none))
    });
    wait(child);
    drop(memtrack_core::stop());
    let recording = memtrack_core::stop();
    assert_eq!(allocations(recording.snapshot(), OF_PARENT), 1);
    assert_eq!(statistics(recording.snapshot(), DeviceId::HOST).dropped, 0);
}

/// Other programs are started while a stream runs: by `posix_spawn` and by `fork` and `exec`.
pub fn exec(path: &str) {
    memtrack_core::start_monitor_with(&Options::new().exact().stream_to(path)).unwrap();
    for _ in 0..20 {
        allocate(OF_PARENT);
        assert!(Command::new("true").status().unwrap().success());
        let mut forked = Command::new("true");
        // SAFETY: the closure does nothing between fork and exec.
        unsafe { forked.pre_exec(|| Ok(())) };
        assert!(forked.status().unwrap().success());
    }
    drop(memtrack_core::stop());
}

/// Parent and child each stream to a file; the child's file is cut off by `_exit`, but can be read.
pub fn stream(path: &str) {
    memtrack_core::start_monitor_with(&Options::new().exact().stream_to(path)).unwrap();
    (0..3000).for_each(|_| allocate(OF_PARENT));
    let child = fork(|| {
        (0..20_000).for_each(|_| allocate(OF_CHILD));
        0
    });
    wait(child);
    (0..3000).for_each(|_| allocate(OF_PARENT));
    drop(memtrack_core::stop());
    println!("{child}");
}

/// A child dumps to another file and has no observers, whatever its parent's threads were doing.
pub fn oom(path: &str) {
    let run_out = || record_oom(DeviceId(0), StreamId(0), 5, 3, 4);
    memtrack_core::start_monitor_with(&Options::new().dump_on_oom(path)).unwrap();
    memtrack_core::attach_out_of_memory_observer(|_| {
        // SAFETY: only returns a number.
        println!("{}", unsafe { libc::getpid() });
        std::io::stdout().flush().unwrap();
    });
    let stop = Arc::new(AtomicBool::new(false));
    let busy = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        while !busy.load(Ordering::Relaxed) {
            memtrack_core::attach_out_of_memory_observer(|_| ()).detach();
        }
    });
    for _ in 0..20 {
        wait(fork(|| {
            run_out();
            0
        }));
    }
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    run_out();
    drop(memtrack_core::stop());
}

/// Forks more children than may leave files; each changes its working directory first.
pub fn many(path: &str) {
    memtrack_core::start_monitor_with(&Options::new().exact().stream_to(path)).unwrap();
    for _ in 0..110 {
        wait(fork(|| {
            std::env::set_current_dir("/").unwrap();
            (0..200).for_each(|_| allocate(OF_CHILD));
            0
        }));
    }
    drop(memtrack_core::stop());
}

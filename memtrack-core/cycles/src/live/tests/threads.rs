//! Tests with values that threads share, and with threads that change the values while they are visited.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A value that threads share.
struct Part {
    name: &'static str,
    slots: Mutex<Vec<Arc<Part>>>,
}

impl Part {
    #[track_caller]
    fn new(name: &'static str) -> Arc<Self> {
        let part = Arc::new(Self { name, slots: Mutex::default() });
        register(&part);
        part
    }

    fn push(&self, part: Arc<Self>) {
        self.slots.lock().expect("not poisoned").push(part);
    }

    fn pop(&self) -> Option<Arc<Self>> {
        self.slots.lock().expect("not poisoned").pop()
    }
}

impl References for Part {
    fn references(&self, to: &mut Visitor<'_>) {
        to.show("name", &self.name);
        to.field("slots", &self.slots);
        to.memory(buffer(std::ptr::from_ref(self).addr() as u64));
    }
}

/// Scans while threads run `work` in a loop, each with its thread number, and another thread leaks cycles. Each
/// finding must be one of the leaked cycles, and in the end all of them must be found.
fn only_what_leaked_is_found_while(threads: usize, work: impl Fn(usize) + Sync) {
    let seconds = std::env::var("MEMTRACK_STRESS_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let for_so_long = seconds.map_or(Duration::from_millis(1500), Duration::from_secs);
    let leak_every = for_so_long / 50;
    let done = AtomicBool::new(false);
    let (mut scans, mut deceived) = (0_u32, 0_u32);
    /// A guard that sets the flag even if the test fails.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let leaked = thread::scope(|scope| {
        let ends = Done(&done);
        for thread in 0..threads {
            let (done, work) = (&done, &work);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    work(thread);
                }
            });
        }
        let leaking = scope.spawn(|| {
            let mut leaked = 0_u64;
            // Run at least once, however late the thread is scheduled.
            loop {
                let (a, b) = (Part::new("leaked"), Part::new("leaked"));
                a.push(Arc::clone(&b));
                b.push(a);
                leaked += 2;
                drop(b);
                if done.load(Ordering::Relaxed) {
                    break leaked;
                }
                thread::sleep(leak_every);
            }
        });
        let begin = Instant::now();
        loop {
            let report = scan();
            scans += 1;
            deceived += u32::from(report.changed_meanwhile > 0);
            for (name, held) in node_names(&report.graph) {
                assert_eq!(
                    (name.as_str(), held),
                    ("leaked", Reachability::Unreachable),
                    "after {scans} scans"
                );
            }
            assert!(report.graph.remarks.is_empty(), "{:?}", report.graph.remarks);
            if begin.elapsed() >= for_so_long {
                break;
            }
        }
        drop(ends);
        leaking.join().expect("leaks")
    });
    assert!(scans > 0 && deceived <= scans && leaked > 0);
    let report = scan();
    assert_eq!(report.unreachable, leaked);
    assert!(report.visits >= 8);
}

#[test]
fn cycle_behind_mutex_is_found_on_any_thread() {
    let _guard = begin_test();
    thread::spawn(|| {
        let (a, b) = (Part::new("a"), Part::new("b"));
        a.push(Arc::clone(&b));
        b.push(a);
    })
    .join()
    .expect("leaks");
    assert_eq!(unreachable_names(&scan().graph), ["a", "b"]);
    let elsewhere = thread::spawn(|| scan().unreachable).join().expect("scans");
    assert_eq!(elsewhere, 2);
}

#[test]
fn locked_values_are_skipped_and_held() {
    let _guard = begin_test();
    let a = Part::new("a");
    a.push(Arc::clone(&a));
    let locked = a.slots.lock().expect("not poisoned");
    let report = thread::scope(|scope| scope.spawn(scan_everything).join().expect("scans"));
    assert_eq!((report.unreachable, report.incomplete), (0, 1));
    let why = report.graph.nodes[0].incomplete.expect("locked");
    assert_eq!(report.graph.text(why), ".slots: locked");
    assert_eq!(report.graph.nodes[0].held, Reachability::Outside(2));
    drop(locked);
    // A value that is locked forever and otherwise unreachable hides the values that it holds.
    let part = Arc::clone(&a);
    std::mem::forget(part.slots.lock().expect("not poisoned"));
    drop(a);
    assert_eq!(scan().unreachable, 0);
    drop(part);
    assert_eq!(scan().unreachable, 0);
}

#[test]
fn pointers_copied_and_dropped_during_scan_are_not_cycles() {
    let _guard = begin_test();
    let parts: Vec<_> = (0..4).map(|_| Part::new("held")).collect();
    only_what_leaked_is_found_while(2, |thread| {
        for (from, to) in [(0, 1), (1, 2), (2, 3), (3, thread), (thread, thread)] {
            parts[from].push(Arc::clone(&parts[to]));
        }
        for part in &parts {
            while part.pop().is_some() {}
        }
    });
}

#[test]
fn pointers_moved_between_values_during_scan_are_not_cycles() {
    let _guard = begin_test();
    let a = Part::new("held");
    // The test holds only `a`. The pointer that moves between the two values is the other pointer to `a`; a scan that
    // sees it in both values counts it twice.
    a.push(Part::new("held"));
    a.push(Arc::clone(&a));
    only_what_leaked_is_found_while(1, |_| {
        for _ in 0..100 {
            let mut slots = a.slots.lock().expect("not poisoned");
            let moved = slots.pop().expect("it is here");
            slots[0].push(moved);
            drop(slots);
            let mut slots = a.slots.lock().expect("not poisoned");
            let moved = slots[0].pop().expect("it is there");
            slots.push(moved);
        }
    });
}

#[test]
fn thread_that_walks_ring_hand_over_hand_holds_it() {
    let _guard = begin_test();
    let first = Part::new("held");
    let mut last = Arc::clone(&first);
    for _ in 0..20 {
        let next = Part::new("held");
        last.push(Arc::clone(&next));
        last = next;
    }
    last.push(Arc::clone(&first));
    drop(last);
    let at = Mutex::new(first);
    only_what_leaked_is_found_while(1, |_| {
        let mut at = at.lock().expect("not poisoned");
        for _ in 0..100 {
            let next = Arc::clone(&at.slots.lock().expect("not poisoned")[0]);
            *at = next;
        }
    });
}

#[test]
fn values_created_and_dropped_during_scan_are_not_cycles() {
    let _guard = begin_test();
    only_what_leaked_is_found_while(2, |_| {
        let (a, b) = (Part::new("dropped"), Part::new("dropped"));
        a.push(Arc::clone(&b));
        b.push(Arc::clone(&a));
        // The cycle is broken explicitly, so for a moment only the scan may hold the values.
        let theirs = std::mem::take(&mut *a.slots.lock().expect("not poisoned"));
        drop(b);
        drop(theirs);
    });
}

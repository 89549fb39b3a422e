//! The memory that counts toward a test: exact numbers for threads, tasks and reallocations, and the memory that does not count.

use memtrack_core::scope;
use memtrack_core::testing::{DeviceUsage, Limits, measure};
use std::cell::RefCell;
use std::hint::black_box;
use std::sync::{LazyLock, OnceLock, mpsc};
use std::thread;

/// Returns the host heap's usage during `work`.
fn used(work: impl FnOnce()) -> DeviceUsage {
    measure(work).1.host()
}

/// Allocates a block of this many bytes.
fn block(bytes: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(bytes))
}

/// Returns the peak, the allocated bytes, the number of blocks, and the bytes that are left.
fn numbers(used: DeviceUsage) -> [u64; 4] {
    [used.peak_bytes, used.allocated_bytes, used.count, used.left_bytes]
}

#[test]
fn every_block_counts_to_the_byte() {
    let usage = used(|| {
        let first = block(100);
        let second = block(1000);
        drop(first);
        let third = block(50);
        drop((second, third));
    });
    assert_eq!(numbers(usage), [1100, 1150, 3, 0]);
    assert_eq!(usage.peak_blocks, 2);
}

#[test]
fn a_reallocation_is_another_block_that_replaces_the_first() {
    let usage = used(|| {
        let mut grown = block(100);
        grown.reserve_exact(5000);
        grown.shrink_to(300);
        black_box(&grown);
    });
    assert_eq!(numbers(usage), [5000, 5400, 3, 0]);
}

#[test]
fn zeroed_and_aligned_blocks_count_as_requested() {
    #[repr(align(4096))]
    struct Page(#[expect(dead_code, reason = "its size")] [u8; 4096]);
    let usage = used(|| {
        let zeros = black_box(vec![0_u8; 300_000]);
        let page = black_box(Box::new(Page([1; 4096])));
        drop((zeros, page));
    });
    assert_eq!(numbers(usage), [304_096, 304_096, 2, 0]);
}

#[test]
fn blocks_that_the_work_returns_are_left() {
    let (kept, usage) = measure(|| block(77));
    assert_eq!(numbers(usage.host()), [77, 77, 1, 77]);
    assert_eq!(usage.host().left_blocks, 1);
    drop(kept);
}

#[test]
fn a_block_belongs_to_the_test_that_allocated_it_wherever_it_is_freed() {
    let outside = block(500);
    let (send, receive) = mpsc::channel::<Vec<u8>>();
    let other = thread::spawn(move || receive.into_iter().for_each(drop));
    let (_, usage) = measure(|| {
        // Allocated outside the measurement, freed inside.
        drop(outside);
        let inside = block(64);
        // A nested measurement has separate numbers.
        let (before, usage) = measure(|| block(32));
        assert_eq!(usage.host().allocated_bytes, 32);
        drop(before);
        inside
    });
    assert_eq!(numbers(usage.host()), [96, 96, 2, 64]);

    let usage = used(|| {
        let work = || {
            let moved = block(4096);
            thread::spawn(move || drop(moved)).join()
        };
        work().unwrap();
    });
    assert!(usage.left_bytes == 0 && usage.peak_bytes >= 4096, "{usage:?}");
    drop(send);
    other.join().unwrap();
}

#[test]
fn an_outer_test_counts_the_blocks_of_an_inner_one() {
    let (_, outer) = measure(|| {
        let (kept, inner) = measure(|| block(1000));
        assert_eq!(numbers(inner.host()), [1000, 1000, 1, 1000]);
        drop(kept);
        let (kept, _) = measure(|| block(10));
        std::mem::forget(kept);
    });
    assert_eq!(numbers(outer.host()), [1000, 1010, 2, 10]);
}

#[test]
fn allocations_of_a_panic_are_not_counted() {
    let usage = used(|| {
        let held = block(100);
        let caught = std::panic::catch_unwind(move || {
            let size = held.capacity();
            assert_eq!(size, 5, "{}", "a message of a panic".repeat(size).len());
        });
        assert!(caught.is_err());
    });
    // Two blocks count: `held`, and the repeated string in the message, which is built before the panic begins.
    assert_eq!(numbers(usage), [2100, 2100, 2, 0]);
}

#[test]
fn a_thread_counts_while_it_is_in_the_scope() {
    let usage = used(|| {
        let scope = scope::current();
        let inside = thread::spawn(move || {
            drop(block(7_000_000));
            let _in_the_test = scope.enter();
            drop(block(3_000_000));
        });
        inside.join().unwrap();
        thread::spawn(|| drop(block(5_000_000))).join().unwrap();
    });
    // The test's thread also allocates memory to start the threads.
    assert!((3_000_000..3_100_000).contains(&usage.allocated_bytes), "{usage:?}");
    assert_eq!(usage.left_bytes, 0);
}

#[test]
fn scopes_of_the_program_carry_the_test_to_threads() {
    // A function as a recorded program may contain it: it passes its current scope to the thread that it starts.
    fn program() {
        let _op = scope::operator("matmul");
        let scope = scope::current();
        let worker = thread::spawn(move || {
            let _scope = scope.enter();
            let _inner = scope::operator("inner");
            drop(block(2_000_000));
        });
        worker.join().unwrap();
    }
    assert!(used(program).allocated_bytes >= 2_000_000);
}

#[test]
fn tasks_count_where_their_futures_are_wrapped() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    let usage = used(|| {
        let scope = scope::current();
        let one = |number: usize| async move {
            for round in 0..20 {
                let held = block(1000 + number);
                super::pause().await;
                black_box(&held);
                drop(block(round + 1));
            }
        };
        let inside: Vec<_> = (0..8).map(|number| runtime.spawn(scope.future(one(number)))).collect();
        let outside: Vec<_> = (0..8).map(|number| runtime.spawn(one(1_000_000 + number))).collect();
        runtime.block_on(async {
            for task in inside.into_iter().chain(outside) {
                task.await.unwrap();
            }
        });
    });
    let expected: u64 = (0..8).map(|number| 20 * (1000 + number) + (1..=20).sum::<u64>()).sum();
    // For sixteen tasks, the runtime allocates little; each block of a task outside the scope would add a million bytes.
    assert!((expected..expected + 500_000).contains(&usage.allocated_bytes), "{usage:?} {expected}");
    assert!(usage.count >= 8 * 40);
}

#[test]
fn a_runtime_whose_threads_enter_the_scope_counts_as_a_whole() {
    let usage = used(|| {
        let scope = scope::current();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .on_thread_start(move || std::mem::forget(scope.enter()))
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::spawn(async { drop(block(3_000_000)) }).await.unwrap();
        });
    });
    assert!(usage.allocated_bytes >= 3_000_000, "{usage:?}");
}

#[test]
fn a_future_is_in_the_test_on_whatever_thread_it_is_polled() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    let task = runtime.spawn(Limits::new().peak(200_000).leaks(0).count(1000).run_async(async {
        let mut sum = 0;
        for round in 0..100 {
            let held = block(1000);
            super::pause().await;
            sum += held.capacity() + round;
        }
        sum
    }));
    assert_eq!(runtime.block_on(task).unwrap(), 104_950);
}

#[test]
fn captured_output_is_not_counted() {
    let usage = used(|| {
        for number in 0..2000 {
            println!("line {number} of what a test prints");
            eprintln!("and of its errors");
        }
    });
    // Printing without capturing (`--nocapture`) allocates nothing.
    assert_eq!(numbers(usage), [0, 0, 0, 0]);
}

#[test]
fn lazy_statics_and_thread_locals_are_no_leak() {
    static LAZY: LazyLock<Vec<u8>> = LazyLock::new(|| block(100));
    static ONCE: OnceLock<Box<[u8]>> = OnceLock::new();
    thread_local!(static PER_THREAD: RefCell<Vec<u8>> = RefCell::new(block(300)));
    Limits::new().leaks(0).run(|| {
        assert_eq!(LAZY.capacity(), 100);
        assert_eq!(ONCE.get_or_init(|| vec![1; 200].into()).len(), 200);
        PER_THREAD.with_borrow(|value| assert_eq!(value.capacity(), 300));
    });
}

#[test]
fn leaks_can_be_ignored_by_function() {
    #[inline(never)]
    fn fills_a_cache_on_purpose() {
        std::mem::forget(block(1234));
        black_box(());
    }
    Limits::new()
        .leaks(0)
        .ignore_leaks("scope::limits::counted::*::fills_a_cache_on_purpose")
        .run(fills_a_cache_on_purpose);
}

#[test]
fn memory_that_a_thread_frees_while_it_ends_is_no_leak() {
    struct Late(#[expect(dead_code, reason = "held")] Vec<u8>);
    impl Drop for Late {
        fn drop(&mut self) {
            thread::sleep(std::time::Duration::from_millis(30));
        }
    }
    thread_local!(static HELD: RefCell<Option<Late>> = const { RefCell::new(None) });
    Limits::new().leaks(0).run(|| {
        let scope = scope::current();
        // `thread::scope` waits for the closures of its threads, but not for the destructors of their thread-locals.
        thread::scope(|threads| {
            threads.spawn(move || {
                let _in_the_test = scope.enter();
                HELD.set(Some(Late(block(1000))));
            });
        });
    });
}

#[test]
fn a_finished_test_counts_nothing_more() {
    let (send, receive) = mpsc::channel::<()>();
    let (stray, usage) = measure(|| {
        let scope = scope::current();
        thread::spawn(move || {
            let _in_the_test = scope.enter();
            receive.recv().unwrap();
            drop(block(9_000_000));
        })
    });
    assert!(usage.host().allocated_bytes < 100_000, "{usage:?}");
    let (_, next) = measure(|| {
        send.send(()).unwrap();
        stray.join().unwrap();
    });
    assert!(next.host().allocated_bytes < 100_000, "{next:?}");
}

#[test]
fn the_program_can_record_during_a_test() {
    memtrack_tests::alone!();
    let usage = used(|| {
        let first = block(100);
        memtrack_core::start_monitor();
        let second = block(1000);
        drop(first);
        drop(second);
        let recording = memtrack_core::stop();
        assert!(!recording.snapshot().events.is_empty());
        drop(recording);
        let mut third = block(5);
        third.reserve_exact(20);
        black_box(&third);
    });
    assert_eq!((usage.peak_bytes, usage.left_bytes), (1100, 0));
}

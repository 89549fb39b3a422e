//! Many tests, concurrently and one after another.

use memtrack_core::testing::measure;
use memtrack_core::{host, scope};
use memtrack_tests::{alone, time};
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

fn block(bytes: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(bytes))
}

/// Does the work of one test: three threads each hold a large block at the same moment.
fn one_test(number: usize) {
    let scope = scope::current();
    let size = 10_000 * (number + 1);
    let kept = block(size);
    let together = Arc::new(Barrier::new(3));
    thread::scope(|threads| {
        let all: Vec<_> = (0..3)
            .map(|_| {
                let together = Arc::clone(&together);
                threads.spawn(move || {
                    let _in_the_test = scope.enter();
                    for _ in 0..50 {
                        drop(block(1000));
                    }
                    let held = block(size);
                    // Now all three threads hold their large blocks.
                    together.wait();
                    drop(held);
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
    });
    drop(kept);
}

#[test]
fn sixteen_concurrent_tests_have_separate_numbers() {
    // The first run is discarded. `base` includes the cost of starting three threads, which is the same each time.
    measure(|| one_test(0));
    let base = measure(|| one_test(0)).1.host();
    let tests: Vec<_> = (0..16)
        .map(|number| {
            thread::spawn(move || (number, measure(|| (0..10).for_each(|_| one_test(number))).1.host()))
        })
        .collect();
    for test in tests {
        let (number, used) = test.join().unwrap();
        let more = 10_000 * number as u64;
        assert_eq!(used.count, 10 * base.count, "test {number}");
        assert_eq!(used.allocated_bytes, 10 * (base.allocated_bytes + 4 * more), "test {number}");
        assert_eq!((used.left_bytes, used.left_blocks), (0, 0), "test {number}");
        // The peak depends on how the small blocks and the ends of the three threads overlap.
        let most = 4 * (10_000 + more) + 20_000;
        assert!((4 * (10_000 + more)..most).contains(&used.peak_bytes), "test {number}: {used:?}");
    }
}

#[test]
fn tasks_of_many_tests_on_one_runtime_are_counted_separately() {
    let runtime = Arc::new(tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap());
    let test = |number: usize| {
        let runtime = Arc::clone(&runtime);
        thread::spawn(move || {
            let (_, usage) = measure(|| {
                let scope = scope::current();
                let task = |_| async move {
                    for _ in 0..30 {
                        let held = block(100_000 * (number + 1));
                        tokio::task::yield_now().await;
                        drop(held);
                    }
                };
                let tasks: Vec<_> = (0..4).map(|id| runtime.spawn(scope.future(task(id)))).collect();
                runtime.block_on(async {
                    for task in tasks {
                        task.await.unwrap();
                    }
                });
            });
            (number, usage.host())
        })
    };
    let tests: Vec<_> = (0..8).map(test).collect();
    for test in tests {
        let (number, used) = test.join().unwrap();
        let expected = 4 * 30 * 100_000 * (number as u64 + 1);
        assert!((expected..expected + 90_000).contains(&used.allocated_bytes), "test {number}: {used:?}");
    }
}

#[test]
fn the_cost_of_a_test_does_not_grow_over_a_thousand_tests() {
    alone!();
    let hundred = || {
        let begun = time::of_thread();
        for number in 0..100 {
            let (_, usage) = measure(|| {
                let held: Vec<_> = (0..100).map(|size| block(size * 10 + 1)).collect();
                std::mem::forget(block(number + 1));
                drop(held);
            });
            assert_eq!((usage.host().count, usage.host().left_bytes), (102, number as u64 + 1));
        }
        time::of_thread() - begun
    };
    let mut hundreds = 10;
    // An outer measurement runs all the time: measuring stays switched on, and leaked blocks stay registered.
    let (_, outer) = measure(|| {
        hundred();
        let first: Duration = (0..3).map(|_| hundred()).min().unwrap();
        let own_bytes = host::own_bytes();
        (0..6).for_each(|_| {
            hundred();
        });
        // If the cost grew with each test, it would now be ten times as high, and higher for every hundred tests. Another program
        // on the same core may double the time of some hundreds, but not of all of them.
        let mut last = Duration::MAX;
        while last > 3 * first && hundreds < 60 {
            last = last.min(hundred());
            hundreds += 1;
        }
        println!("100 tests took {first:?} at first and {last:?} at last");
        assert!(last <= 3 * first, "{first:?} {last:?}");
        assert!(host::own_bytes() - own_bytes < 1 << 20, "{own_bytes} {}", host::own_bytes());
    });
    assert_eq!(outer.host().left_bytes, hundreds * (1..=100).sum::<u64>());
}

//! A second run of the test distinguishes one-time allocations from leaks, where the stacks of the memory do not.

use super::block_on;
use super::failing::{assert_contains, failure, read_weights};
use memtrack_core::testing::limits;
use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// A library that keeps a buffer for each thread in a thread-local without lazy initialization: no frame on the stack shows that
/// the buffer is allocated only once.
mod library {
    use std::cell::RefCell;
    use std::hint::black_box;

    thread_local! {
        static SCRATCH: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    #[inline(never)]
    pub fn sum(numbers: &[u64]) -> u64 {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            scratch.reserve_exact(numbers.len());
            scratch.extend_from_slice(numbers);
            black_box(&*scratch).iter().sum()
        })
    }
}

fn use_the_library() {
    assert_eq!(library::sum(&[1; 40]), 40);
}

#[limits(leaks = 0)]
#[test]
fn memory_kept_from_the_first_use_is_no_leak() {
    use_the_library();
}

#[limits(leaks = 0)]
#[test]
fn memory_kept_from_the_first_use_is_no_leak_in_a_test_with_a_result() -> Result<(), String> {
    use_the_library();
    Ok(())
}

#[limits(leaks = 0)]
#[test]
#[should_panic(expected = "as it should")]
fn memory_kept_from_the_first_use_is_no_leak_in_a_test_that_panics() {
    use_the_library();
    panic!("as it should");
}

#[limits(leaks = 0)]
async fn an_async_body() {
    super::pause().await;
    use_the_library();
    super::pause().await;
}

#[test]
fn memory_kept_from_the_first_use_is_no_leak_in_an_async_test() {
    // The test runs on a new thread, which has not used the library before.
    std::thread::spawn(|| block_on(an_async_body())).join().unwrap();
}

#[limits(leaks = 0)]
#[test]
fn a_value_that_each_run_replaces_is_no_leak() {
    static LAST: Mutex<Option<Vec<u8>>> = Mutex::new(None);
    let before = LAST.lock().unwrap().replace(read_weights(5000));
    drop(before);
}

#[test]
fn a_test_that_leaves_nothing_runs_once() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    #[limits(leaks = 0, peak = "1 MiB")]
    fn clean() {
        RUNS.fetch_add(1, Ordering::Relaxed);
        drop(read_weights(100));
    }
    clean();
    assert_eq!(RUNS.load(Ordering::Relaxed), 1);
}

#[limits(leaks = 0)]
#[test]
#[ignore = "is run by the test below"]
fn leaks_besides_the_first_use() {
    use_the_library();
    std::mem::forget(read_weights(4096));
}

#[test]
fn memory_left_by_the_second_run_is_a_leak_and_the_rest_is_listed_as_allowed() {
    let text = failure(leaks_besides_the_first_use);
    assert_contains(
        &text,
        &[
            "host heap: leaks of 4.0 KiB, 4.0 KiB more than the limit of 0 B",
            "not given back, 1 block:",
            "4.0 KiB  failing.rs:",
            "read_weights",
            "left by the second of two runs",
            "no leaks: 320 B in 1 block, made once",
        ],
    );
    assert!(!text.contains("library"), "only what leaks is listed: {text}");
    let mut places = text.lines().filter(|line| line.contains(".rs:"));
    assert!(places.all(|line| line.trim_end() == line), "no name is empty: {text}");
}

#[limits(leaks = 0)]
#[test]
#[ignore = "is run by the test below"]
fn leaks_a_little_more_each_time() {
    static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    KEPT.lock().unwrap().push(read_weights(1000));
}

#[test]
fn memory_that_a_collection_gains_in_each_run_is_a_leak() {
    assert_contains(&failure(leaks_a_little_more_each_time), &["host heap: leaks of 1000 B", "read_weights"]);
}

#[limits(leaks = 0, run_once)]
#[test]
#[ignore = "is run by the test below"]
fn may_run_only_once() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    assert_eq!(RUNS.fetch_add(1, Ordering::Relaxed), 0, "ran twice");
    use_the_library();
}

#[test]
fn the_second_run_can_be_switched_off() {
    let text = failure(may_run_only_once);
    assert_contains(&text, &["leaks of 320 B", "not given back, 1 block:"]);
    assert!(!text.contains("ran twice") && !text.contains("two runs"), "{text}");
}

#[limits(leaks = 0)]
#[test]
#[ignore = "is run by the test below"]
fn can_run_only_once() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    use_the_library();
    assert_eq!(RUNS.fetch_add(1, Ordering::Relaxed), 0, "the file exists already");
}

#[test]
fn a_test_whose_second_run_panics_is_judged_by_the_first() {
    let text = failure(can_run_only_once);
    assert_contains(
        &text,
        &["the file exists already", "leaks of 320 B", "left by one run: a second one,", "panicked"],
    );
}

#[limits(leaks = 0)]
#[test]
#[ignore = "is run by the test below"]
fn returns_an_error_the_second_time() -> Result<(), String> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    use_the_library();
    match RUNS.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err("the port is taken".into()),
    }
}

#[test]
fn a_test_whose_second_run_fails_is_judged_by_the_first() {
    assert_contains(&failure(returns_an_error_the_second_time), &["leaks of 320 B", "returned an error"]);
}

thread_local! {
    static KEPT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[limits(leaks = 100)]
fn with_an_argument(kept: Vec<u8>) {
    KEPT.set(black_box(kept));
}

#[test]
fn a_function_with_arguments_runs_once() {
    // The argument is allocated outside the function, and does not count as a leak.
    with_an_argument(vec![1; 5000]);
    assert_eq!(KEPT.take().len(), 5000);
}

//! The messages of tests that exceed their limits. Each failing test is ignored here, and run in a separate process.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::record_alloc;
use memtrack_core::scope;
use memtrack_core::testing::{Limits, limits};
use memtrack_tests::child;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Runs a failing test of this test program in a child process, and returns its output.
pub(super) fn failure<R>(test: impl Fn() -> R) -> String {
    let output = child::this_program(test).env("RUST_BACKTRACE", "0").output().unwrap();
    assert!(!output.status.success());
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    println!("{text}");
    text
}

/// Asserts that `text` contains all of these strings, in this order.
#[track_caller]
pub(super) fn assert_contains(text: &str, all: &[&str]) {
    let mut rest = text;
    for expected in all {
        let at = rest.find(expected).unwrap_or_else(|| panic!("no {expected:?} in the rest of\n{text}"));
        rest = &rest[at + expected.len()..];
    }
}

#[inline(never)]
pub(super) fn read_weights(bytes: usize) -> Vec<u8> {
    let weights = Vec::with_capacity(bytes);
    black_box(weights)
}

#[inline(never)]
fn cache_entries(count: usize) -> Vec<Box<[u8]>> {
    let entries = (0..count).map(|_| vec![7; 1024].into_boxed_slice()).collect();
    black_box(entries)
}

#[limits(peak = "1 MiB")]
#[test]
#[ignore = "is run by the test below"]
fn holds_too_much() {
    let weights = read_weights(3 << 20);
    let entries = cache_entries(100);
    drop(weights);
    drop(read_weights(1 << 20));
    drop(entries);
}

#[test]
fn a_peak_is_explained_by_the_lines_with_its_blocks() {
    let text = failure(holds_too_much);
    assert_contains(
        &text,
        &[
            "limits::failing::holds_too_much exceeded its memory limits",
            "host heap: a peak of 3.1 MiB, 2.1 MiB more than the limit of 1.0 MiB",
            "held at the peak, in 102 blocks:",
            "3.0 MiB  failing.rs:",
            "read_weights",
            "(1 block)\n                failing.rs:",
            "read_weights\n                failing.rs:",
            "holds_too_much\n",
            "101.6 KiB  failing.rs:",
            "cache_entries",
            "(101 blocks)",
        ],
    );
    assert!(text.contains("failing.rs:"), "the panic is located in the test");
}

#[limits(leaks = 0)]
#[test]
#[ignore = "is run by the test below"]
fn leaves_something_behind() {
    drop(read_weights(1 << 20));
    std::mem::forget(read_weights(4096));
    std::mem::forget(cache_entries(2));
}

#[limits(leaks = 10_000)]
#[test]
#[ignore = "is run by the test below"]
fn leaks_the_values_of_cells() {
    for _ in 0..3 {
        let cell: OnceLock<Vec<u8>> = OnceLock::new();
        cell.get_or_init(|| read_weights(10_000));
        std::mem::forget(cell);
    }
}

#[test]
fn values_that_one_line_puts_into_several_cells_are_a_leak() {
    let text = failure(leaks_the_values_of_cells);
    let leaked = ["leaks of 29.3 KiB", "read_weights", "what stays on purpose", "ignore_leaks"];
    assert_contains(&text, &leaked);
}

#[test]
fn a_leak_is_named_by_the_line_that_allocated_it() {
    let text = failure(leaves_something_behind);
    assert_contains(
        &text,
        &[
            "leaves_something_behind exceeded",
            "host heap: leaks of 6.0 KiB, 6.0 KiB more than the limit of 0 B",
            "not given back, 4 blocks:",
            "4.0 KiB  failing.rs:",
            "read_weights",
            "2.0 KiB  failing.rs:",
            "cache_entries",
        ],
    );
}

#[limits(count = 5)]
#[test]
#[ignore = "is run by the test below"]
fn allocates_too_often() {
    drop(cache_entries(100));
    drop(read_weights(10));
}

#[test]
fn a_count_is_explained_by_the_lines_with_the_most_blocks() {
    let text = failure(allocates_too_often);
    assert_contains(
        &text,
        &[
            "host heap: 102 allocations, 97 more than the limit of 5",
            "allocated, 101.6 KiB in all:",
            "101  failing.rs:",
            "cache_entries",
            "  1  failing.rs:",
            "read_weights",
        ],
    );
}

#[limits(devices(peak = "1 GiB"), leaks = "1 MiB")]
#[test]
#[ignore = "is run by the test below"]
fn fills_a_gpu() {
    // This test runs twice, and a device never has two live blocks at one address.
    static NEXT: AtomicU64 = AtomicU64::new(0x7000_0000);
    let address = NEXT.fetch_add(3 << 30, Ordering::Relaxed);
    record_alloc(DeviceId(1), StreamId(0), address, 3 << 30);
}

#[test]
fn a_device_is_named() {
    let text = failure(fills_a_gpu);
    assert_contains(
        &text,
        &[
            "device 1: a peak of 3.00 GiB, 2.00 GiB more than the limit of 1.00 GiB",
            "fills_a_gpu",
            "device 1: leaks of 3.00 GiB",
            "fills_a_gpu",
        ],
    );
    assert!(!text.contains("host heap:"), "{text}");
}

#[limits(peak = 10)]
#[test]
#[ignore = "is run by the test below"]
fn allocates_on_other_threads() {
    let scope = scope::current();
    let outside = thread::Builder::new().name("a pool".into()).spawn(move || {
        let held = read_weights(5 << 20);
        drop(held);
        // A thread's name is known only while the thread is alive.
        let _in_the_test = scope.enter();
        let (send, receive) = std::sync::mpsc::channel::<()>();
        thread::spawn(move || drop(send));
        assert!(receive.recv().is_err());
    });
    outside.unwrap().join().unwrap();
}

#[test]
fn memory_that_belongs_to_no_test_is_reported() {
    let text = failure(allocates_on_other_threads);
    assert_contains(
        &text,
        &["5.0 MiB in ", "allocated by other threads while this test ran, belong to no test ("],
    );
    assert_contains(&text, &["5.0 MiB", "memtrack_core::scope::current()"]);
}

#[limits(peak = 10)]
#[test]
#[should_panic]
#[ignore = "is run by the test below"]
fn panics_as_it_should_and_holds_too_much() {
    drop(read_weights(1000));
    panic!("as it should");
}

#[test]
fn a_test_that_panics_as_it_should_fails_because_of_its_limits() {
    let text = failure(panics_as_it_should_and_holds_too_much);
    assert_contains(
        &text,
        &["a peak of 1000 B, 990 B more than the limit of 10 B", "It fails because of its limits."],
    );
}

#[limits(peak = 10)]
#[test]
#[ignore = "is run by the test below"]
fn fails_by_itself() -> Result<(), String> {
    drop(read_weights(1000));
    Err("the disk is gone".into())
}

#[test]
fn a_test_that_fails_by_itself_reports_only_that() {
    let text = failure(fails_by_itself);
    assert!(text.contains("the disk is gone") && !text.contains("exceeded"), "{text}");
}

#[test]
#[ignore = "is run by the test below"]
fn closures_too() {
    let number = Limits::new().count(1).run(|| read_weights(10).capacity());
    Limits::new().count(0).run(|| drop(read_weights(number)));
}

#[test]
fn a_closure_is_named_by_its_test_and_place() {
    let text = failure(closures_too);
    assert_contains(
        &text,
        &["closures_too (", "failing.rs:", ") exceeded its memory limits", "1 allocation, 1 more than"],
    );
}

#[test]
#[ignore = "is run by the test below"]
fn a_future_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(Limits::new().peak(100).run_async(async {
        let held = read_weights(1000);
        super::pause().await;
        drop(held);
    }));
}

#[test]
fn a_future_that_exceeds_a_limit_fails() {
    assert_contains(
        &failure(a_future_too),
        &["a_future_too (", "a peak of 1000 B, 900 B more than the limit of 100 B"],
    );
}

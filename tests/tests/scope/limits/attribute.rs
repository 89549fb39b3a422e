//! `#[limits]` on every kind of test function, above and below `#[test]`.

use super::block_on;
use memtrack_core::testing::limits;
use std::hint::black_box;

fn block(bytes: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(bytes))
}

const LIMIT: u64 = 1000;

#[limits(peak = "1.5 KiB", leaks = 0, count = 1)]
#[test]
fn a_test_within_its_limits_passes() {
    drop(block(1536));
}

#[test]
#[limits(peak = LIMIT, count = LIMIT / 500)]
fn the_attribute_works_below_test() {
    drop(block(1000));
    drop(block(1000));
}

#[limits(host(peak = 64 << 10, leaks = 0), devices(peak = "2 GB"))]
#[test]
fn a_result_is_returned() -> Result<(), String> {
    let number: u32 = "7".parse().map_err(|error| format!("{error}"))?;
    if number == 7 {
        return Ok(());
    }
    Err(format!("{number}"))
}

#[limits(peak = 100, count = 1)]
#[test]
#[should_panic(expected = "as it should")]
fn an_expected_panic_is_passed_on() {
    drop(block(100));
    panic!("{}", "as it should");
}

#[limits(leaks = 0)]
#[test]
#[should_panic(expected = "as it should, with 5")]
fn memory_left_by_a_panic_is_no_leak() {
    let held = block(100);
    assert!(held.capacity() < 5, "as it should, with {}", 5);
}

#[limits(peak = 2000, leaks = 0, count = 10)]
async fn an_async_body(text: &str) -> Result<usize, std::num::ParseIntError> {
    let held = block(1000);
    super::pause().await;
    Ok(text.parse::<usize>()? + held.capacity())
}

#[test]
fn limits_apply_to_an_async_function() {
    assert_eq!(block_on(an_async_body("5")), Ok(1005));
    assert!(block_on(an_async_body("five")).is_err());
}

#[limits(leaks = 0, ignore_leaks = "scope::limits::attribute::*::a_cache")]
#[test]
fn ignored_leaks_do_not_count() {
    #[inline(never)]
    fn a_cache() {
        std::mem::forget(block(10));
        black_box(());
    }
    a_cache();
}

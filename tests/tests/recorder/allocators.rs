//! memtrack's allocator around jemalloc and around mimalloc: `tests/programs/allocators` compares all numbers with what it knows
//! about its own blocks.

use memtrack_tests::{child, nested};
use std::process::Command;

#[test]
fn numbers_are_right_with_jemalloc_and_mimalloc_as_the_inner_allocator() {
    for program in nested::members(["under_jemalloc", "under_mimalloc"], "allocators/both", &[]) {
        child::ends_well(&mut Command::new(program));
    }
}

//! Code that `#[limits]` rejects.

use memtrack_core::testing::limits;

#[limits]
fn names_no_limit() {}

#[limits(ignore_leaks = "cache::*")]
fn names_none_either() {}

#[limits(peak = "64 MiBs")]
fn has_an_unknown_unit() {}

#[limits(peak = 1.5)]
fn has_a_fraction_of_a_byte() {}

#[limits(peek = 1)]
fn is_misspelled() {}

#[limits(peak = 1, peak = 2)]
fn says_it_twice() {}

#[limits(host())]
fn is_empty_inside() {}

#[limits(devices(host(peak = 1)))]
fn is_nested() {}

#[limits(leaks = 0)]
const fn runs_in_the_compiler() {}

#[limits(leaks = 0)]
struct NoFunction;

fn main() {}

//! Requests, each in a scope with a new name; some panic, and some are deeply recursive.

use super::{Lap, Outcome, pseudo_random};
use memtrack_core::{scope, track_memory};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Requests per lap: the bound on scopes is reached after some thirty laps.
const REQUESTS: u64 = 2200;
/// One in this many requests panics.
const PANICS: u64 = 40;
/// The maximum depth of recursion.
const MAX_DEPTH: u64 = 1500;

pub fn run(lap: &Lap<'_>) -> Outcome {
    for number in lap.numbers(REQUESTS) {
        let answered = catch_unwind(AssertUnwindSafe(|| answer(number)));
        if answered.is_err() != number.is_multiple_of(PANICS) {
            return Err(format!("request {number} ended in another way than it should").into());
        }
    }
    // The recursion is deeper in each lap, up to the maximum.
    descend((lap.number * 10).min(MAX_DEPTH));
    nest((lap.number * 5).min(MAX_DEPTH));
    Ok(())
}

fn answer(number: u64) -> usize {
    let _request = scope::module(&format!("request-{number}"));
    let read = parse(number);
    if number.is_multiple_of(PANICS) {
        panic!("request {number} fails");
    }
    let written = render(&read) + render(&read[read.len() / 2..]);
    written + store(read)
}

#[track_memory]
fn parse(number: u64) -> Vec<Vec<u8>> {
    let size = |part| 16 + pseudo_random(number * 8 + part, 2000) as usize;
    (0..8).map(|part| vec![number as u8; size(part)]).collect()
}

#[track_memory]
fn render(parts: &[Vec<u8>]) -> usize {
    black_box(parts.concat()).len()
}

#[track_memory]
fn store(parts: Vec<Vec<u8>>) -> usize {
    parts.into_iter().map(|part| black_box(part.into_boxed_slice()).len()).sum()
}

/// Calls itself `levels` times; each call is an operator.
#[track_memory]
fn descend(levels: u64) {
    let block = black_box(vec![1_u8; 100]);
    if levels > 0 {
        descend(levels - 1);
    }
    drop(block);
}

/// Nests `levels` scopes.
fn nest(levels: u64) {
    let _level = scope::module("level");
    drop(black_box(vec![1_u8; 100]));
    if levels > 0 {
        nest(levels - 1);
    }
}

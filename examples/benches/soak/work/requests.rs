//! Requests, each in a scope with a name of its own; some panic, and some call themselves very often.

use super::{Lap, Outcome, drawn};
use memtrack_core::{scope, track_memory};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Requests of a lap: the bound of scopes is met after some thirty.
const REQUESTS: u64 = 2200;
/// One in so many panics.
const PANICS: u64 = 40;
/// How deep requests may go.
const DEEPEST: u64 = 1500;

pub fn run(lap: &Lap<'_>) -> Outcome {
    for number in lap.numbers(REQUESTS) {
        let answered = catch_unwind(AssertUnwindSafe(|| answer(number)));
        if answered.is_err() != number.is_multiple_of(PANICS) {
            return Err(format!("request {number} ended in another way than it should").into());
        }
    }
    // A level deeper in each lap.
    descend((lap.number * 10).min(DEEPEST));
    enter_each_other((lap.number * 5).min(DEEPEST));
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
    (0..8).map(|part| vec![number as u8; 16 + drawn(number * 8 + part, 2000) as usize]).collect()
}

#[track_memory]
fn render(parts: &[Vec<u8>]) -> usize {
    black_box(parts.concat()).len()
}

#[track_memory]
fn store(parts: Vec<Vec<u8>>) -> usize {
    parts.into_iter().map(|part| black_box(part.into_boxed_slice()).len()).sum()
}

/// An operator that calls itself.
#[track_memory]
fn descend(levels: u64) {
    let held = black_box(vec![1_u8; 100]);
    if levels > 0 {
        descend(levels - 1);
    }
    drop(held);
}

/// Scopes in scopes.
fn enter_each_other(levels: u64) {
    let _level = scope::module("level");
    drop(black_box(vec![1_u8; 100]));
    if levels > 0 {
        enter_each_other(levels - 1);
    }
}

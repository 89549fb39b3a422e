//! Threads that come and go, each with a name of its own.

use super::{Lap, Outcome};
use memtrack_core::scope;
use std::hint::black_box;
use std::thread::{self, JoinHandle};

/// Threads of a lap: the bound of names is met after some thirty.
const THREADS: u64 = 2200;
/// How many of them live at once.
const AT_ONCE: usize = 32;

pub fn run(lap: &Lap<'_>) -> Outcome {
    let mut living: Vec<JoinHandle<Vec<u8>>> = Vec::with_capacity(AT_ONCE);
    let mut inherited = Vec::new();
    for number in lap.numbers(THREADS) {
        if living.len() == AT_ONCE {
            let eldest = living.remove(0);
            inherited = eldest.join().map_err(|_| "a short thread panicked")?;
        }
        let from_another = std::mem::take(&mut inherited);
        let name = format!("worker-{number}");
        living.push(thread::Builder::new().name(name).spawn(move || {
            let _work = scope::module("worker");
            drop(from_another);
            drop(black_box(vec![1_u8; 70_000]));
            black_box(vec![2_u8; 3000])
        })?);
    }
    for thread in living {
        thread.join().map_err(|_| "a short thread panicked")?;
    }
    Ok(())
}

//! Short-lived threads, each with a new name.

use super::{Lap, Outcome};
use memtrack_core::scope;
use std::hint::black_box;
use std::thread::{self, JoinHandle};

/// Threads per lap: the bound on names is reached after some thirty laps.
const THREADS: u64 = 2200;
/// The number of threads that live at the same time.
const CONCURRENT: usize = 32;

pub fn run(lap: &Lap<'_>) -> Outcome {
    let mut running: Vec<JoinHandle<Vec<u8>>> = Vec::with_capacity(CONCURRENT);
    let mut inherited = Vec::new();
    for number in lap.numbers(THREADS) {
        if running.len() == CONCURRENT {
            let oldest = running.remove(0);
            inherited = oldest.join().map_err(|_| "a short thread panicked")?;
        }
        let from_another = std::mem::take(&mut inherited);
        let name = format!("worker-{number}");
        running.push(thread::Builder::new().name(name).spawn(move || {
            let _work = scope::module("worker");
            drop(from_another);
            drop(black_box(vec![1_u8; 70_000]));
            black_box(vec![2_u8; 3000])
        })?);
    }
    for thread in running {
        thread.join().map_err(|_| "a short thread panicked")?;
    }
    Ok(())
}

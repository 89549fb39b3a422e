//! A device whose allocator reports blocks with new stacks; occasionally its memory runs out.

use super::{DEVICE, Lap, Outcome, count_device_blocks, pseudo_random};
use memtrack_core::event::StreamId;
use memtrack_core::recorder::{
    record_alloc, record_free, record_free_completed, record_free_requested, record_oom,
    record_segment_alloc, record_segment_free,
};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Blocks per lap with new stacks: the bound on stacks is reached after some thirty laps.
const NEW_PLACES: u64 = 5000;
/// Blocks per lap with a known stack: the ring is full after some twenty laps.
const BLOCKS: u64 = 50_000;
/// Memory runs out once per this many laps: the number of dumps reaches its bound after some twenty laps.
const RUNS_OUT: u64 = 3;
const SEGMENT_BYTES: u64 = 1 << 30;

pub fn run(lap: &Lap<'_>) -> Outcome {
    let stream = StreamId(lap.number % 4);
    let segment = (1 << 40) + lap.number % 1000 * SEGMENT_BYTES;
    record_segment_alloc(DEVICE, stream, segment, SEGMENT_BYTES);
    for number in 0..NEW_PLACES {
        on_a_new_path(&mut || record_alloc(DEVICE, stream, segment + number * 512, 100 + number % 400));
    }
    // Another thread frees the blocks, half of them in two steps: the request, and its completion.
    let free = move || {
        for number in 0..NEW_PLACES {
            let (address, size) = (segment + number * 512, 100 + number % 400);
            if number % 2 == 0 {
                record_free(DEVICE, stream, address, size);
            } else {
                record_free_requested(DEVICE, stream, address, size);
                record_free_completed(DEVICE, stream, address, size);
            }
        }
    };
    thread::spawn(free).join().map_err(|_| "the device's thread panicked")?;
    for number in 0..BLOCKS {
        // Random numbers compress poorly, so the recording soon reaches its maximum size.
        let random = pseudo_random(lap.number * BLOCKS + number, 1 << 18);
        let (address, size) = (segment + random * 4096, 1 + random % 4096);
        record_alloc(DEVICE, stream, address, size);
        record_free(DEVICE, stream, address, size);
    }
    if lap.number.is_multiple_of(RUNS_OUT) {
        record_oom(DEVICE, stream, SEGMENT_BYTES, 1 << 20, SEGMENT_BYTES);
    }
    record_segment_free(DEVICE, stream, segment, SEGMENT_BYTES);
    count_device_blocks(NEW_PLACES + BLOCKS);
    Ok(())
}

/// The number of calls in a call path; each call is to one of two functions.
const CALLS: u32 = 24;

/// Calls `act` on a new call path. There are 16 million paths.
pub fn on_a_new_path(act: &mut dyn FnMut()) {
    static PATHS: AtomicU64 = AtomicU64::new(0);
    left(PATHS.fetch_add(1, Ordering::Relaxed), CALLS, act);
}

#[inline(never)]
fn left(path: u64, calls: u32, act: &mut dyn FnMut()) {
    next_call(path, calls, act);
    // Prevents tail calls, and keeps the two functions different.
    black_box(calls);
}

#[inline(never)]
fn right(path: u64, calls: u32, act: &mut dyn FnMut()) {
    next_call(path, calls, act);
    black_box(path);
}

#[inline(always)]
fn next_call(path: u64, calls: u32, act: &mut dyn FnMut()) {
    match (calls, path % 2) {
        (0, _) => act(),
        (_, 0) => left(path / 2, calls - 1, act),
        _ => right(path / 2, calls - 1, act),
    }
}

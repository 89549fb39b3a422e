//! A device whose allocator reports, from ever new places in the code; now and then its memory runs out.

use super::{DEVICE, Lap, Outcome, count_device_blocks, drawn};
use memtrack_core::event::StreamId;
use memtrack_core::recorder::{
    record_alloc, record_free, record_free_completed, record_free_requested, record_oom,
    record_segment_alloc, record_segment_free,
};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Blocks of a lap that are taken at new places: the bound of stacks is met after some thirty laps.
const NEW_PLACES: u64 = 5000;
/// Blocks of a lap that are taken at old ones: the ring is full after some twenty laps.
const BLOCKS: u64 = 50_000;
/// Every so many laps it runs out: there are as many dumps as are kept after some twenty laps.
const RUNS_OUT: u64 = 3;
const SEGMENT_BYTES: u64 = 1 << 30;

pub fn run(lap: &Lap<'_>) -> Outcome {
    let stream = StreamId(lap.number % 4);
    let segment = (1 << 40) + lap.number % 1000 * SEGMENT_BYTES;
    record_segment_alloc(DEVICE, stream, segment, SEGMENT_BYTES);
    for number in 0..NEW_PLACES {
        on_a_new_path(&mut || record_alloc(DEVICE, stream, segment + number * 512, 100 + number % 400));
    }
    // Another thread gives them back, half of them in two steps.
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
        // Not what compresses well: the recording is to be full soon.
        let drawn = drawn(lap.number * BLOCKS + number, 1 << 18);
        let (address, size) = (segment + drawn * 4096, 1 + drawn % 4096);
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

/// How many calls a path has; each goes one of two ways.
const CALLS: u32 = 24;

/// Calls `act` from where nobody has called it before: as long as there are less than 16 million calls.
pub fn on_a_new_path(act: &mut dyn FnMut()) {
    static PATHS: AtomicU64 = AtomicU64::new(0);
    left(PATHS.fetch_add(1, Ordering::Relaxed), CALLS, act);
}

#[inline(never)]
fn left(path: u64, calls: u32, act: &mut dyn FnMut()) {
    go_on(path, calls, act);
    // So that nothing is the last thing that is done, and both functions stay two.
    black_box(calls);
}

#[inline(never)]
fn right(path: u64, calls: u32, act: &mut dyn FnMut()) {
    go_on(path, calls, act);
    black_box(path);
}

#[inline(always)]
fn go_on(path: u64, calls: u32, act: &mut dyn FnMut()) {
    match (calls, path % 2) {
        (0, _) => act(),
        (_, 0) => left(path / 2, calls - 1, act),
        _ => right(path / 2, calls - 1, act),
    }
}

//! `snapshot_run FILE`: a program that dumps a snapshot of itself, identical in each run except for times and lines.
//! Pools on two devices report at fixed addresses. `fixtures/snapshots/recorded` contains one such dump, and PyTorch's reports
//! on it.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{self, Options};
use memtrack_core::{scope, track_memory};

const MIB: u64 = 1 << 20;
/// Two streams of device 0, the second with a realistic handle.
const MAIN: StreamId = StreamId(0);
const SIDE: StreamId = StreamId(0x55d0_c0de_1000);
const FIRST: DeviceId = DeviceId(0);
const SECOND: DeviceId = DeviceId(1);
/// Addresses of the segments.
const WEIGHTS: u64 = 0x7f20_0000_0000;
const ACTIVATIONS: u64 = 0x7f20_1000_0000;
const COPIES: u64 = 0x7f20_2000_0000;
const SMALL: u64 = 0x7f20_3000_0000;
const OTHER: u64 = 0x7f30_0000_0000;

#[track_memory(root)]
fn model(layers: u64) {
    for layer in 0..layers {
        let _block = scope::module(&format!("block.{layer}"));
        forward(layer);
    }
}

#[track_memory]
fn forward(layer: u64) {
    let at = ACTIVATIONS + layer * 6 * MIB;
    recorder::record_alloc(FIRST, MAIN, at, 6 * MIB - 1000);
    // A short-lived block, whose memory is free afterwards.
    recorder::record_alloc(FIRST, MAIN, ACTIVATIONS + 56 * MIB, 3 * MIB);
    recorder::record_free(FIRST, MAIN, ACTIVATIONS + 56 * MIB, 3 * MIB);
}

#[track_memory(backward)]
fn backward(layers: u64) {
    for layer in (1..layers).rev() {
        let at = ACTIVATIONS + layer * 6 * MIB;
        recorder::record_free(FIRST, MAIN, at, 6 * MIB - 1000);
    }
}

#[track_memory(optimizer)]
fn step() {
    for slot in 0..30 {
        recorder::record_alloc(FIRST, MAIN, SMALL + slot * 4096, 512 * (slot % 8));
    }
    for slot in (0..30).step_by(3) {
        recorder::record_free(FIRST, MAIN, SMALL + slot * 4096, 512 * (slot % 8));
    }
}

/// Frees a block that another stream may still use; grows and shrinks an expandable segment.
#[track_memory(name = "Größe ⊕ \"copy\" it's")]
fn copy() {
    recorder::record_segment_map(FIRST, SIDE, COPIES, 20 * MIB);
    recorder::record_alloc(FIRST, SIDE, COPIES, 2 * MIB);
    recorder::record_alloc(FIRST, SIDE, COPIES + 2 * MIB, 7 * MIB + 1);
    recorder::record_free_requested(FIRST, SIDE, COPIES, 2 * MIB);
    recorder::record_segment_map(FIRST, SIDE, COPIES + 20 * MIB, 2 * MIB);
    recorder::record_segment_unmap(FIRST, SIDE, COPIES + 20 * MIB, 2 * MIB);
}

#[track_memory]
fn too_much() {
    recorder::record_oom(FIRST, MAIN, 3 << 30, 512 * MIB, 24 << 30);
}

fn work() {
    recorder::record_segment_alloc(FIRST, MAIN, WEIGHTS, 120 * MIB);
    recorder::record_segment_alloc(FIRST, MAIN, ACTIVATIONS, 64 * MIB);
    recorder::record_segment_alloc(FIRST, MAIN, SMALL, 2 * MIB);
    for slot in 0..40 {
        recorder::record_alloc(FIRST, MAIN, WEIGHTS + slot * 3 * MIB, 3 * MIB - slot * 70_000);
    }
    for _ in 0..3 {
        model(8);
        backward(8);
        recorder::record_free(FIRST, MAIN, ACTIVATIONS, 6 * MIB - 1000);
    }
    model(5);
    step();
    copy();
    too_much();
    // A short-lived segment with its block, and a free of memory that is older than the recording.
    recorder::record_segment_alloc(SECOND, MAIN, OTHER, 30 * MIB);
    recorder::record_alloc(SECOND, MAIN, OTHER + 4096, 20 * MIB);
    recorder::record_free(SECOND, MAIN, OTHER + 4096, 20 * MIB);
    recorder::record_segment_free(SECOND, MAIN, OTHER, 30 * MIB);
    recorder::record_free(SECOND, MAIN, OTHER - 4096, 77);
    // A block outside any segment.
    recorder::record_alloc(SECOND, SIDE, OTHER + 512 * MIB, 25 * MIB);
}

fn main() {
    let file = std::env::args_os().nth(1).expect("snapshot_run FILE");
    let options = Options::new().without_host_heap().context(recorder::Context::All);
    memtrack_core::start_monitor_with(&options).expect("nothing is streamed");
    work();
    memtrack_core::dump_snapshot(&file).expect("the snapshot can be written");
    drop(memtrack_core::stop());
}

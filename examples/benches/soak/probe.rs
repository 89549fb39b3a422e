//! Measures the cost of events while no other work runs, as the minimum of a few rounds.

use crate::rows::{Column, Row};
use crate::work::{self, DEVICE, STREAM};
use memtrack_core::recorder::{record_alloc, record_free};
use memtrack_core::track_memory;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 7;
const EVENTS: u32 = 2000;

/// Returns the minimum over the rounds of the time per event, in nanoseconds.
fn fastest(events: u32, mut round: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        round();
        begin.elapsed().as_nanos() as f64 / f64::from(events)
    });
    times.fold(f64::INFINITY, f64::min)
}

#[track_memory(name = "probe")]
fn operator() {
    black_box(());
}

/// Fills in the row's times.
pub fn measure(row: &mut Row) {
    row[Column::DeviceEvent] = fastest(EVENTS, || {
        for number in 0..u64::from(EVENTS / 2) {
            let address = work::PROBE_ADDRESS + number % 64 * 4096;
            record_alloc(DEVICE, STREAM, address, 4096);
            record_free(DEVICE, STREAM, address, 4096);
        }
    });
    work::count_device_blocks(u64::from(ROUNDS * EVENTS / 2));
    // Blocks of this size are all recorded, not sampled.
    row[Column::HostEvent] = fastest(EVENTS, || {
        for _ in 0..EVENTS / 2 {
            drop(black_box(Vec::<u8>::with_capacity(64 << 10)));
        }
    });
    row[Column::NewStackEvent] = fastest(EVENTS, || {
        for _ in 0..EVENTS / 2 {
            work::device::on_a_new_path(&mut || {
                record_alloc(DEVICE, STREAM, work::PROBE_ADDRESS, 4096);
                record_free(DEVICE, STREAM, work::PROBE_ADDRESS, 4096);
            });
        }
    });
    work::count_device_blocks(u64::from(ROUNDS * EVENTS / 2));
    row[Column::Operator] = fastest(EVENTS, || (0..EVENTS).for_each(|_| operator()));
}

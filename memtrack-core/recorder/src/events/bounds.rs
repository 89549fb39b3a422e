//! Checks that the bounds of all tables of the recorder add up to less than 256 MiB with default options and one device,
//! for any program and any duration (ARCHITECTURE.md has the list).

use super::Options;
use super::{
    binaries, chunk::Chunk, current_thread, filling, kits, live, marks, operators, ring, scope_sums,
    segments, thread_names,
};
use crate::stack::{capture, intern, separate_stack};
use crate::{host, python, scope};
use memtrack_model::event::Event;

const MIB: usize = 1 << 20;
/// The bytes per operator in a tracker's series (checked by a test of the tracker).
const OPERATOR_BYTES: usize = 48;

/// Returns the bounds of all tables with one device. `eighth` and `quarter` are what [`settings::eighth_if_small`] and
/// [`settings::quarter_if_small`] divide by.
fn bounds(options: &Options, eighth: usize, quarter: usize) -> Vec<(&'static str, usize)> {
    let event_bytes = size_of::<Event>();
    let states = current_thread::MAX_STATES / eighth;
    vec![
        ("ring", (options.ring_entries() as usize + ring::CHUNK_EVENTS as usize) * event_bytes),
        ("chunks being filled", filling::MAX_FILLING_EVENTS as usize / eighth * event_bytes),
        ("live blocks", live::max_bytes(options.max_live_blocks(), 0)),
        ("live filter", host::LIVE_FILTER_BYTES),
        ("transferred blocks", host::TRANSFERRED_BYTES),
        ("stacks", intern::max_bytes(eighth)),
        ("scopes", scope::MAX_BYTES + scope_sums::TABLE_BYTES),
        ("tracker", options.tracker_entries as usize * OPERATOR_BYTES + MIB),
        (
            "threads",
            current_thread::MAX_BYTES / current_thread::MAX_STATES * states
                + thread_names::MAX_BYTES
                + states * filling::FIRST_CHUNK_EVENTS as usize * event_bytes,
        ),
        ("kits", kits::max_bytes(eighth)),
        ("binaries", binaries::max_bytes(200)),
        ("unwind tables", capture::MAX_COPIED_BYTES / quarter),
        ("marked moments", marks::MAX_BYTES),
        ("tasks", crate::tasks::MAX_BYTES),
    ]
}

fn sum(bounds: &[(&str, usize)]) -> (usize, String) {
    let list: Vec<String> =
        bounds.iter().map(|(what, bytes)| format!("{what} {:.1}", *bytes as f64 / MIB as f64)).collect();
    (bounds.iter().map(|(_, bytes)| bytes).sum(), list.join(", "))
}

#[test]
fn the_bounds_of_all_tables_stay_below_256_mib() {
    let mut bounds = bounds(&Options::default(), 1, 1);
    bounds.extend([
        ("reserve", host::reserve::RESERVE_BYTES),
        ("stacks of its own", separate_stack::MAX_BYTES),
        ("mapped ranges", crate::mapped::MAX_BYTES),
        ("lines of Python", python::MAX_BYTES),
    ]);
    let (bytes, list) = sum(&bounds);
    assert!(bytes < 256 * MIB, "{} MiB: {list}", bytes / MIB);
    assert!(size_of::<Chunk<Event>>() < 64, "beside its events");
}

#[test]
fn the_bounds_of_a_service_stay_below_64_mib() {
    // Without the reserve and memtrack's stacks, which are only address space until memory runs out or a thread's stack is
    // too small, and without what only `memtrack run` records: mapped ranges and lines of Python.
    let (bytes, list) = sum(&bounds(&Options::service(), 8, 4));
    assert!(bytes < 64 * MIB, "{} MiB: {list}", bytes / MIB);
}

#[test]
fn each_further_device_adds_less_than_64_mib_and_16_to_a_service() {
    assert_further_device(&Options::default(), 64);
    assert_further_device(&Options::service(), 16);
}

fn assert_further_device(options: &Options, most_mib: usize) {
    let blocks = options.max_live_blocks();
    let segments = segments::max_segments(blocks);
    let bounds = [
        ("ring", (options.ring_entries() as usize + ring::CHUNK_EVENTS as usize) * size_of::<Event>()),
        ("live blocks", live::max_bytes(blocks, 1) - live::max_bytes(blocks, 0)),
        ("scopes", scope_sums::TABLE_BYTES),
        // There is one table for all devices: the first device's share is the largest.
        ("segments", segments::max_bytes(blocks)),
        #[cfg(feature = "cuda")]
        ("driver", super::driver_memory::max_bytes(segments)),
    ];
    let sum: usize = bounds.iter().map(|(_, bytes)| bytes).sum();
    assert!(sum < most_mib * MIB, "{} MiB of {segments} segments: {bounds:?}", sum / MIB);
}

#[test]
fn the_log_of_operators_is_off_by_default_and_stays_within_65_mib() {
    assert!(!Options::default().wants_operators());
    let most = operators::MAX_BYTES;
    assert!(most <= 65 * MIB, "{most}");
}

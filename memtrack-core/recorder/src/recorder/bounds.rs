//! What the recorder's tables may come to, added up: with default options and one device less than 256 MiB, whatever the
//! program does for however long (ARCHITECTURE.md has the list).

use super::Options;
use super::{
    binaries, chunk::Chunk, hooks, kits, live, marks, mine, operators, ring, scope_sums, segments,
    thread_names,
};
use crate::stack::{capture, intern, own_stack};
use crate::{host, scope};
use memtrack_model::event::Event;

const MIB: usize = 1 << 20;
/// What an operator takes in a tracker's series (whose own test says the same).
const OPERATOR_BYTES: usize = 48;

#[test]
fn the_bounds_of_all_tables_stay_below_256_mib() {
    let options = Options::default();
    let event_bytes = size_of::<Event>();
    let bounds = [
        ("ring", (options.ring_entries() as usize + ring::CHUNK_EVENTS as usize) * event_bytes),
        ("chunks being filled", hooks::MOST_BEING_FILLED as usize * event_bytes),
        ("live blocks", live::most_bytes(options.most_live_blocks(), 0)),
        ("followed", host::FOLLOWED_BYTES),
        ("stacks", intern::MOST_BYTES),
        ("scopes", scope::MOST_BYTES + scope_sums::TABLE_BYTES),
        ("tracker", options.tracker_entries as usize * OPERATOR_BYTES + MIB),
        (
            "threads",
            mine::MOST_BYTES
                + thread_names::MOST_BYTES
                + mine::MAX_STATES * hooks::FIRST_CHUNK_EVENTS as usize * event_bytes,
        ),
        ("kits", kits::MOST_BYTES),
        ("binaries", binaries::most_bytes(200)),
        ("unwind tables", capture::MOST_COPIED_BYTES),
        ("reserve", host::reserve::RESERVE_BYTES),
        ("stacks of its own", own_stack::MOST_BYTES),
        ("marked moments", marks::MOST_BYTES),
    ];
    let sum: usize = bounds.iter().map(|(_, bytes)| bytes).sum();
    let list: Vec<String> = bounds.iter().map(|(what, bytes)| format!("{what} {}", bytes / MIB)).collect();
    assert!(sum < 256 * MIB, "{} MiB: {}", sum / MIB, list.join(", "));
    assert!(size_of::<Chunk<Event>>() < 64, "beside its events");
}

#[test]
fn each_further_device_adds_less_than_64_mib() {
    let options = Options::default();
    let blocks = options.most_live_blocks();
    let segments = segments::most_segments(blocks);
    let bounds = [
        ("ring", (options.ring_entries() as usize + ring::CHUNK_EVENTS as usize) * size_of::<Event>()),
        ("live blocks", live::most_bytes(blocks, 1) - live::most_bytes(blocks, 0)),
        ("scopes", scope_sums::TABLE_BYTES),
        // There is one table for all devices: the first one's share is the largest.
        ("segments", segments::most_bytes(blocks)),
        #[cfg(feature = "cuda")]
        ("driver", super::driver_memory::most_bytes(segments)),
    ];
    let sum: usize = bounds.iter().map(|(_, bytes)| bytes).sum();
    assert!(sum < 64 * MIB, "{} MiB of {segments} segments: {bounds:?}", sum / MIB);
}

#[test]
fn the_log_of_operators_which_is_off_by_default_stays_within_65_mib() {
    assert!(!Options::default().wants_operators());
    let most = operators::MOST_BYTES;
    assert!(most <= 65 * MIB, "{most}");
}

//! A pool that reports its blocks, in a program that records itself.

use crate::books::{events, live_and_segment_bytes, snapshot, start};
use crate::client;
use memtrack_core::analysis::lifetimes::lifetimes;
use memtrack_core::analysis::peak::Peak;
use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_core::recorder::{record_alloc, record_free};

const DEVICE: DeviceId = DeviceId(0);
const SEGMENT: u64 = 20 << 20;

/// Runs a pool that reports only its blocks.
pub fn blocks() {
    client::begin(0);
    start();
    let segment = client::alloc(SEGMENT as usize).expect("memory");
    assert_eq!(live_and_segment_bytes(&snapshot(), DEVICE), (SEGMENT, SEGMENT));
    let other = client::alloc(1000).expect("memory");
    record_alloc(DEVICE, StreamId(0), segment, 1 << 20);
    record_alloc(DEVICE, StreamId(0), segment + (4 << 20), 2 << 20);
    let now = snapshot();
    assert_eq!(live_and_segment_bytes(&now, DEVICE), ((3 << 20) + 1000, SEGMENT + 1000));
    // In this snapshot, only the blocks that the pool reported in the segment count as allocated. The segment itself does not
    // count, not even for the time before the first report.
    assert_eq!(Peak::of(&now, DEVICE, &lifetimes(&now, DEVICE)).bytes, (3 << 20) + 1000);
    let counts = now.devices[0];
    assert_eq!(counts.allocated_bytes - counts.freed_bytes, (3 << 20) + 1000);
    assert_eq!(counts.reserved_bytes, SEGMENT + 1000);
    assert_eq!((counts.recorded, counts.allocations), (now.events.len() as u64, 3));
    record_free(DEVICE, StreamId(0), segment, 1 << 20);
    record_free(DEVICE, StreamId(0), segment + (4 << 20), 2 << 20);
    assert_eq!(live_and_segment_bytes(&snapshot(), DEVICE), (1000, SEGMENT + 1000));
    // A block that is never reported as freed is freed with its segment.
    record_alloc(DEVICE, StreamId(0), segment + 512, 4096);
    client::free(segment).expect("the block is live");
    assert_eq!(live_and_segment_bytes(&snapshot(), DEVICE), (1000, 1000));
    client::free(other).expect("the block is live");
    let recording = memtrack_core::stop();
    let end = recording.snapshot();
    assert!(end.blocks.is_empty() && end.segments.is_empty());
    assert_eq!(events(end, DEVICE, Action::Alloc), events(end, DEVICE, Action::Free));
    assert_eq!(end.devices[0].allocated_bytes, end.devices[0].freed_bytes);
}

//! Pools on top of the driver: their segments are the driver's allocations, and their blocks are those that the pools report.

use crate::books::{events, live_and_segment_bytes, snapshot, start};
use crate::{client, pool_blocks};
use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_core::recorder::{record_alloc, record_free, record_segment_alloc, record_segment_free};
use memtrack_tests::mock_cuda::run_ignored_test;

const DEVICE: DeviceId = DeviceId(0);
const SEGMENT: u64 = 20 << 20;

/// A segment that is reported twice, by the driver's hook and by a pool such as memtrack's allocator, counts once.
#[test]
#[ignore = "is run by the test below"]
fn segments() {
    client::begin(0);
    start();
    let segment = client::alloc(SEGMENT as usize).expect("memory");
    record_segment_alloc(DEVICE, StreamId(0), segment, SEGMENT);
    let now = snapshot();
    assert_eq!(live_and_segment_bytes(&now, DEVICE), (0, SEGMENT));
    assert_eq!(now.devices[0].reserved_bytes, SEGMENT);
    assert_eq!(events(&now, DEVICE, Action::SegmentAlloc), 1);
    record_alloc(DEVICE, StreamId(0), segment, 512);
    assert_eq!(live_and_segment_bytes(&snapshot(), DEVICE), (512, SEGMENT));
    record_free(DEVICE, StreamId(0), segment, 512);
    record_segment_free(DEVICE, StreamId(0), segment, SEGMENT);
    client::free(segment).expect("it succeeds");
    let recording = memtrack_core::stop();
    let end = recording.snapshot();
    assert_eq!(events(end, DEVICE, Action::SegmentFree), 1);
    assert_eq!((end.devices[0].reserved_bytes, end.blocks.len(), end.segments.len()), (0, 0, 0));
}

#[test]
fn a_pools_segment_counts_once() {
    run_ignored_test(segments, &[]);
}

#[test]
#[ignore = "is run by the test below"]
fn blocks() {
    pool_blocks::blocks();
}

#[test]
fn the_blocks_of_a_pool_replace_the_blocks_of_its_segments() {
    run_ignored_test(blocks, &[]);
}

//! Limits on devices: each device is measured separately, by the blocks that its allocator reports.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{record_alloc, record_free, record_free_completed, record_free_requested};
use memtrack_core::testing::{Limits, measure};

const STREAM: StreamId = StreamId(0);

#[test]
fn each_device_has_separate_numbers() {
    let (_, usage) = measure(|| {
        record_alloc(DeviceId(0), STREAM, 0x1000, 1 << 20);
        record_alloc(DeviceId(1), STREAM, 0x1000, 1 << 30);
        record_free(DeviceId(0), STREAM, 0x1000, 1 << 20);
        record_alloc(DeviceId(0), STREAM, 0x2000, 1 << 10);
        drop(Vec::<u8>::with_capacity(100));
    });
    let used = |device| {
        let used = usage.device(device);
        [used.peak_bytes, used.allocated_bytes, used.count, used.left_bytes]
    };
    assert_eq!(used(DeviceId(0)), [1 << 20, (1 << 20) + (1 << 10), 2, 1 << 10]);
    assert_eq!(used(DeviceId(1)), [1 << 30, 1 << 30, 1, 1 << 30]);
    assert_eq!(used(DeviceId(2)), [0; 4]);
    let devices: Vec<_> = usage.devices().iter().map(|(device, _)| *device).collect();
    assert_eq!(devices, [DeviceId(0), DeviceId(1), DeviceId::HOST]);
}

#[test]
fn a_block_that_waits_for_a_stream_is_in_use_and_no_leak() {
    let (_, usage) = measure(|| {
        record_alloc(DeviceId(0), STREAM, 0x1000, 100);
        record_alloc(DeviceId(0), STREAM, 0x2000, 100);
        record_free_requested(DeviceId(0), STREAM, 0x1000, 100);
        record_free_requested(DeviceId(0), STREAM, 0x2000, 100);
        record_free_completed(DeviceId(0), STREAM, 0x2000, 100);
        record_alloc(DeviceId(0), STREAM, 0x3000, 150);
        record_free(DeviceId(0), STREAM, 0x3000, 150);
    });
    let used = usage.device(DeviceId(0));
    assert_eq!((used.peak_bytes, used.left_bytes), (250, 0));
}

#[test]
fn a_limit_applies_to_each_device_separately() {
    Limits::new().peak(1000).run(|| {
        record_alloc(DeviceId(0), STREAM, 0x1000, 900);
        record_alloc(DeviceId(1), STREAM, 0x1000, 900);
        drop(Vec::<u8>::with_capacity(900));
    });
    // The limit for a GPU may be higher than the limit for the heap.
    Limits::new().peak(1000).devices(Limits::new().peak(1 << 30)).run(|| {
        record_alloc(DeviceId(0), STREAM, 0x1000, 1 << 30);
        drop(Vec::<u8>::with_capacity(900));
    });
}

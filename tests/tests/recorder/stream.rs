//! A stream contains the events that the ring dropped, and the stream's counts include them.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{Options, record_alloc};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::alone;

#[test]
fn events_that_the_ring_drops_are_in_the_stream() {
    const EVENTS: u64 = 50_000;
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let options = Options::new().without_host_heap().max_entries(100).stream_to(&path);
    memtrack_core::start_monitor_with(&options).unwrap();
    for address in 1..=EVENTS {
        record_alloc(DeviceId(0), StreamId(0), address << 12, 1);
    }
    let recording = memtrack_core::stop();
    let in_memory = recording.snapshot().devices[0];
    assert_eq!((in_memory.recorded, in_memory.dropped), (EVENTS, EVENTS - 100));
    let (streamed, report) = Snapshot::load(&path).unwrap();
    assert!(report.complete);
    assert_eq!(streamed.events.len() as u64, EVENTS);
    assert_eq!((streamed.devices[0].recorded, streamed.devices[0].dropped), (EVENTS, 0));
}

//! Snapshots for testing exports with a time axis: PyTorch snapshots, recordings with samples and scopes, and a
//! handmade recording that covers every kind of event.

use memtrack_formats::SnapshotFiles;
use memtrack_model::Snapshot;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StreamId, ThreadId};
use memtrack_model::snapshot::{Clock, DriverReading, LiveBlock, Module, Scope, ScopeKind, Segment, Thread};
use std::path::Path;

/// The paths of the files, relative to the workspace.
const FILES: [&str; 8] = [
    "tests/fixtures/snapshots/samples/basic-2.pickle",
    "tests/fixtures/snapshots/samples/annotated.pickle",
    "tests/fixtures/snapshots/samples/multi-gpu.pickle",
    "tests/fixtures/snapshots/samples/wrapped.pickle",
    "tests/fixtures/snapshots/samples/expandable.pickle",
    "tests/fixtures/snapshots/recorded/run.pickle",
    "memtrack-core/fuzz/corpus/recordings/whole.memtrack",
    "memtrack-core/fuzz/corpus/recordings/older_parts_gone.memtrack",
];

/// Returns all snapshots, with their names.
pub(crate) fn read_snapshots() -> Vec<(&'static str, Snapshot)> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let open = |name| Snapshot::open(workspace.join(name), Default::default()).unwrap().snapshot;
    let mut all: Vec<_> = FILES.into_iter().map(|name| (name, open(name))).collect();
    all.iter_mut().for_each(|(_, snapshot)| drop(snapshot.order_by_time()));
    all.push(("everything", full_recording()));
    all
}

/// Returns a recording of two threads with scopes, marks, an older block, a free without an allocation, an
/// out-of-memory event and driver readings. A tick is a nanosecond, and the recording starts at 1 s.
pub(crate) fn full_recording() -> Snapshot {
    const START: u64 = 1_000_000_000;
    let mut snapshot =
        Snapshot { clock: Clock { first: (0, START), last: (1_000, START + 1_000) }, ..Snapshot::default() };
    snapshot.meta.program = "/home/somebody/train".into();
    snapshot.meta.pid = 4242;
    snapshot.modules = vec![Module {
        path: "/home/somebody/train".into(),
        bias: 0x1000,
        start: 0x2000,
        end: 0x9000,
        build_id: "00ff17".into(),
        ..Module::default()
    }];
    let stacks = [snapshot.stacks.push(&[0x2100, 0x2200]), snapshot.stacks.push(&[0x2150, 0x2200])];
    snapshot.threads = vec![Thread::default(); 3];
    for (id, name) in [(1, "main"), (2, "worker")] {
        snapshot.threads[id] = Thread { name: name.into(), os_id: 4241 + id as u64 };
    }
    for (parent, kind, name) in [
        (0, ScopeKind::Root, "model"),
        (1, ScopeKind::Operator, "matmul"),
        (0, ScopeKind::Optimizer, "optimizer"),
    ] {
        snapshot.scopes.rows.push(Scope { parent: ScopeId(parent), kind, name: name.into() });
    }
    use Action::{Alloc, Free, Oom, SegmentAlloc};
    // The fields are time, thread, scope, action, address and size.
    let events = [
        (10, 1, 1, SegmentAlloc, 0x10_0000, 8192),
        (20, 1, 2, Alloc, 0x10_0000, 4096),
        (30, 2, 1, Alloc, 0x10_1000, 1000),
        (40, 1, 1, Free, 0x10_0000, 4096),
        (50, 1, 0, Free, 0x90_0000, 300),
        (60, 1, 3, Alloc, 0x10_0000, 2000),
        (70, 2, 1, Oom, 77, 1 << 40),
    ];
    for (at, (ticks, thread, scope, action, address, size_bytes)) in events.into_iter().enumerate() {
        snapshot.events.push(&Event {
            ticks,
            address,
            size_bytes,
            stack: stacks[at % 2],
            scope: ScopeId(scope),
            thread: ThreadId(thread),
            action,
            ..Event::BLANK
        });
    }
    let block = |address, size_bytes, ticks| LiveBlock {
        device: DeviceId(0),
        address,
        size_bytes,
        stream: StreamId(0),
        task: Default::default(),
        stack: stacks[1],
        scope: ScopeId::NONE,
        ticks,
        flags: EventFlags::default(),
        pending_free: false,
    };
    // No event allocates the last block.
    snapshot.blocks = vec![block(0x10_1000, 1000, 30), block(0x10_0000, 2000, 60), block(0x80_0000, 500, 0)];
    snapshot.segments = vec![Segment {
        device: DeviceId(0),
        address: 0x10_0000,
        size_bytes: 8192,
        stream: StreamId(0),
        stack: stacks[0],
        ticks: 10,
        is_expandable: false,
    }];
    snapshot.driver = vec![DriverReading {
        device: DeviceId(0),
        ticks: 65,
        free_bytes: 1234,
        total_bytes: 5678,
        ..DriverReading::default()
    }];
    snapshot.marks.push(35, ThreadId(1), "step");
    snapshot.marks.push(65, ThreadId(1), "step");
    snapshot
}

/// The numbers that memtrack's reports give for a device.
pub(crate) struct Expected {
    /// Requested bytes at the peak.
    pub(crate) peak: u64,
    /// The maximum reserved bytes.
    pub(crate) reserved: u64,
    /// Bytes and blocks that were allocated in the trace.
    pub(crate) allocated: (u64, u64),
    /// Bytes and blocks that were live at the peak.
    pub(crate) at_peak: (u64, u64),
    /// Bytes and blocks that are live at the end.
    pub(crate) at_end: (u64, u64),
}

impl Expected {
    /// Returns the numbers, taken from the ranking of all blocks.
    pub(crate) fn of(snapshot: &Snapshot, device: DeviceId) -> Self {
        use memtrack_blocks::moment::Moment;
        use memtrack_blocks::reserved::ReservedPeak;
        use memtrack_report::top::{By, TopOptions, top};
        let sums = |moment: Option<Moment>| {
            let report = top(snapshot, By::Size, device, &TopOptions::new().at(moment));
            ((report.totals.allocated_bytes, report.totals.count), report.peak.bytes)
        };
        let (allocated, peak) = sums(None);
        Self {
            peak,
            reserved: ReservedPeak::of(snapshot, device).bytes,
            allocated,
            at_peak: sums(Some(Moment::Peak)).0,
            at_end: sums(Some(Moment::End)).0,
        }
    }
}

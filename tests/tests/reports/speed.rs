//! The time of every report is proportional to the number of events, for every kind of file.
#![cfg(unix)]

use memtrack_core::event::{Action, DeviceId, Event, EventFlags, StackId};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::{DeviceStatistics, Segment, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::snapshots::{empty, event, live};
use memtrack_tests::{alone, memtrack};
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The number of blocks in the smaller file; the larger file has [`SCALE`] times as many.
const BLOCKS: u64 = 1_000;
const SCALE: u32 = 8;
/// A report whose time is proportional to the events stays below this ratio, with room for noise and a logarithmic factor; a
/// report that visits all events for each event takes 64 times as long.
const MAX_RATIO: u32 = 20;
/// Shorter times cannot be distinguished from the startup time of a process.
const MIN_TIME: Duration = Duration::from_millis(25);

/// The timed verbs, with the options that they need.
const VERBS: [&[&str]; 19] = [
    &["summary"],
    &["summary", "--json"],
    &["peak"],
    &["peak", "--of", "reserved", "--json"],
    &["check", "--max-peak", "1TiB", "--max-leak", "1TiB"],
    &["top"],
    &["top", "--by", "stack", "--json"],
    &["top", "--by", "size", "--at", "peak"],
    &["top", "--by", "pool", "--at", "end"],
    &["stats"],
    &["stats", "--json"],
    &["trace"],
    &["trace", "--json"],
    &["segments", "--folded"],
    &["segments", "--json"],
    &["memory", "--folded"],
    &["memory", "--json"],
    &["replay", "--set", ""],
    &["convert", "-", "--to", "pickle"],
];

fn with_stacks() -> Snapshot {
    let mut snapshot = empty();
    for stack in 1..20 {
        snapshot.stacks.push(&[0x1000 * stack, 0x2000, 0x3000]);
    }
    snapshot
}

/// Returns a heap with two blocks at each address: one that is freed, then one that stays live. Every third pair is sampled.
fn heap(blocks: u64) -> Snapshot {
    let mut snapshot = with_stacks();
    snapshot.meta.sample_threshold_bytes = 1 << 16;
    snapshot.meta.sample_mean_bytes = 1 << 19;
    for block in 0..blocks {
        let flags = if block % 3 == 0 { EventFlags::SAMPLED } else { EventFlags::default() };
        let stack = StackId((block % 19) as u32 + 1);
        let block_event = |ticks, action| Event {
            stack,
            flags,
            ..event(ticks, action, 0x7f00_0000_0000 + block * 4096, 1000 + block % 50)
        };
        let first = 10 * block;
        snapshot.events.push(&block_event(first, Action::Alloc));
        snapshot.events.push(&block_event(first + 1, Action::Free));
        let stays = block_event(first + 2, Action::Alloc);
        snapshot.events.push(&stays);
        snapshot.blocks.push(live(&stays));
    }
    snapshot.devices = vec![DeviceStatistics::of(DeviceId::HOST)];
    snapshot
}

/// Returns segments of eight blocks each, half of which stay live: a tenth of the segments in pinned memory, the others on a
/// device. One heap block is added, so that reports have to look up the number of each device.
fn device(blocks: u64) -> Snapshot {
    let mut snapshot = with_stacks();
    let one = event(0, Action::Alloc, 0x5000, 64);
    snapshot.events.push(&one);
    snapshot.blocks.push(live(&one));
    for number in 0..blocks / 8 {
        let device = if number % 10 == 0 { DeviceId::PINNED } else { DeviceId(0) };
        let start = 0x7000_0000_0000 + number * (2 << 20);
        let at = |ticks, action, address, size| Event {
            device,
            stack: StackId((number % 19) as u32 + 1),
            ..event(1000 * number + ticks, action, address, size)
        };
        let segment = at(1, Action::SegmentAlloc, start, 2 << 20);
        snapshot.events.push(&segment);
        snapshot.segments.push(Segment {
            device,
            address: start,
            size_bytes: 2 << 20,
            stream: segment.stream,
            stack: segment.stack,
            ticks: segment.ticks,
            is_expandable: false,
        });
        for block in 0..8 {
            let alloc = at(10 * block + 2, Action::Alloc, start + block * 65536, 60_000);
            snapshot.events.push(&alloc);
            if block % 2 == 0 {
                snapshot.events.push(&Event { ticks: alloc.ticks + 1, action: Action::Free, ..alloc });
            } else {
                snapshot.blocks.push(live(&alloc));
            }
        }
    }
    snapshot
}

/// Returns the CPU time of all child processes that have ended.
#[allow(unsafe_code)]
fn children_time() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for an `rusage`, and all zeroes are a valid value if the call fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let duration = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

/// Returns the CPU time of a verb on a file.
fn time_of(verb: &[&str], file: &Path) -> Duration {
    let mut command = Command::new(memtrack());
    command.arg(verb[0]).arg(file).args(&verb[1..]);
    let before = children_time();
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{verb:?}: {stderr}");
    children_time() - before
}

#[test]
fn the_time_of_reports_is_proportional_to_the_events() {
    // The measured CPU time includes all child processes of this process.
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (size, blocks) in [("small", BLOCKS), ("large", BLOCKS * u64::from(SCALE))] {
        heap(blocks).save(path(&format!("heap-{size}.memtrack"))).unwrap();
        let device = device(blocks);
        device.save(path(&format!("device-{size}.memtrack"))).unwrap();
        device.save_as(path(&format!("pytorch-{size}.pickle")), &mut Symbolizer::of(&device)).unwrap();
    }
    let mut slow = Vec::new();
    for (kind, suffix) in [("heap", "memtrack"), ("device", "memtrack"), ("pytorch", "pickle")] {
        for verb in VERBS {
            let file = |size: &str| path(&format!("{kind}-{size}.{suffix}"));
            let small = time_of(verb, &file("small")).max(MIN_TIME);
            // A busy machine may slow down some runs, but not all of them.
            let mut large = Duration::MAX;
            for _ in 0..20 {
                large = large.min(time_of(verb, &file("large")));
                if large <= small * MAX_RATIO {
                    break;
                }
            }
            if large > small * MAX_RATIO {
                slow.push(format!("{verb:?} of the {kind} file: {large:?} instead of {small:?}"));
            }
        }
    }
    assert!(
        slow.is_empty(),
        "{SCALE} times the events took more than {MAX_RATIO} times the time:\n{}",
        slow.join("\n")
    );
}

//! Every report takes time in proportion to the events, whatever kind of file they are in.
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

/// Blocks of the smaller file; the larger has [`TIMES`] as many.
const BLOCKS: u64 = 1_000;
const TIMES: u32 = 8;
/// What takes time in proportion to the events stays below this many times as much, with room for noise and a logarithm;
/// what goes through all events for each of them takes 64 times as much.
const AT_MOST: u32 = 20;
/// Below this nothing can be told from how long a process takes to begin.
const START: Duration = Duration::from_millis(25);

/// The verbs, each with what must be there for it to be timed.
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

/// Of each address a block that comes and goes, then one that stays; every third of both is a sample.
fn heap(blocks: u64) -> Snapshot {
    let mut snapshot = with_stacks();
    snapshot.meta.sample_threshold_bytes = 1 << 16;
    snapshot.meta.sample_mean_bytes = 1 << 19;
    for block in 0..blocks {
        let flags = if block % 3 == 0 { EventFlags::SAMPLED } else { EventFlags::default() };
        let stack = StackId((block % 19) as u32 + 1);
        let of_block = |ticks, action| Event {
            stack,
            flags,
            ..event(ticks, action, 0x7f00_0000_0000 + block * 4096, 1000 + block % 50)
        };
        let first = 10 * block;
        snapshot.events.push(&of_block(first, Action::Alloc));
        snapshot.events.push(&of_block(first + 1, Action::Free));
        let stays = of_block(first + 2, Action::Alloc);
        snapshot.events.push(&stays);
        snapshot.blocks.push(live(&stays));
    }
    snapshot.devices = vec![DeviceStatistics::of(DeviceId::HOST)];
    snapshot
}

/// Segments of eight blocks each, of which half stay, on a device and, a tenth, in pinned memory; and a block of the heap,
/// so that every device's number has to be found out.
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

/// Processor time of all children that have ended.
#[allow(unsafe_code)]
fn spent() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the place is one of that type, and zeroes are a value of it should the call fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// The processor time of a verb on a file.
fn time_of(verb: &[&str], file: &Path) -> Duration {
    let mut command = Command::new(memtrack());
    command.arg(verb[0]).arg(file).args(&verb[1..]);
    let before = spent();
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{verb:?}: {said}");
    spent() - before
}

#[test]
fn reports_take_time_in_proportion_to_the_events() {
    // The processor time is that of all children.
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (size, blocks) in [("small", BLOCKS), ("large", BLOCKS * u64::from(TIMES))] {
        heap(blocks).save(path(&format!("heap-{size}.memtrack"))).unwrap();
        let device = device(blocks);
        device.save(path(&format!("device-{size}.memtrack"))).unwrap();
        device.save_as(path(&format!("pytorch-{size}.pickle")), &mut Symbolizer::of(&device)).unwrap();
    }
    let mut slow = Vec::new();
    for (kind, suffix) in [("heap", "memtrack"), ("device", "memtrack"), ("pytorch", "pickle")] {
        for verb in VERBS {
            let file = |size: &str| path(&format!("{kind}-{size}.{suffix}"));
            let small = time_of(verb, &file("small")).max(START);
            // A busy machine may slow a run down, but not each of many.
            let mut large = Duration::MAX;
            for _ in 0..20 {
                large = large.min(time_of(verb, &file("large")));
                if large <= small * AT_MOST {
                    break;
                }
            }
            if large > small * AT_MOST {
                slow.push(format!("{verb:?} of the {kind} file: {large:?} instead of {small:?}"));
            }
        }
    }
    assert!(
        slow.is_empty(),
        "{TIMES} times the events took more than {AT_MOST} times the time:\n{}",
        slow.join("\n")
    );
}

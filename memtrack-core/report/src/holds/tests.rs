use super::*;
use memtrack_model::event::{ScopeId, StackId, StreamId, ThreadId};
use memtrack_model::snapshot::{Clock, DeviceStatistics, DriverReading, LiveBlock, ReadingMoment, Segment};

const DEVICE: DeviceId = DeviceId(0);
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// A block: its address and size in MiB, its stack, and the second at which it was allocated.
type Block = (u64, u64, u32, u64);

/// Creates a snapshot of these blocks that was taken after ten seconds. `segments` has addresses and sizes in MiB.
fn snapshot_holding(device: DeviceId, blocks: &[Block], segments: &[(u64, u64)]) -> (Snapshot, Symbolizer) {
    let mut snapshot = Snapshot {
        clock: Clock { first: (SECOND, 100 * SECOND), last: (11 * SECOND, 110 * SECOND) },
        ..Snapshot::default()
    };
    snapshot.meta.complete = true;
    for stack in 1..4 {
        snapshot.stacks.push(&[stack]);
    }
    let stream = StreamId(0);
    snapshot.blocks.extend(blocks.iter().map(|&(address, size, stack, second)| LiveBlock {
        device,
        address: address * MIB,
        size_bytes: size * MIB,
        stream,
        task: Default::default(),
        stack: StackId(stack),
        scope: ScopeId::NONE,
        ticks: (1 + second) * SECOND,
        flags: Default::default(),
        pending_free: false,
    }));
    snapshot.segments.extend(segments.iter().map(|&(address, size)| Segment {
        device,
        address: address * MIB,
        size_bytes: size * MIB,
        stream,
        stack: StackId::NONE,
        ticks: SECOND,
        is_expandable: false,
    }));
    let frame = |function: &str, line| Frame {
        function: function.into(),
        file: Some(format!("/home/ana/{}.py", if line > 90 { "elsewhere" } else { "train" })),
        line: Some(line),
        binary: None,
    };
    let named = [("load", 3), ("step", 53), ("cache", 99)];
    let symbols =
        named.into_iter().zip(1..).fold(Symbolizer::default(), |symbols, ((name, line), address)| {
            symbols.with_frames(address, vec![frame(name, line)])
        });
    (snapshot, symbols)
}

fn refused_request(requested: u64, total: u64) -> OutOfMemory {
    OutOfMemory::new(DEVICE, StreamId(0), requested * MIB, 0, total * MIB)
}

fn find_holders(snapshot: &Snapshot, symbols: &mut Symbolizer, query: &HoldsQuery) -> WhoHolds {
    WhoHolds::of_all(snapshot, symbols, query).expect("something is held")
}

#[test]
fn paragraph_shows_lines_cache_growth_and_advice() {
    let blocks = [(0, 40, 1, 1), (100, 30, 2, 2), (140, 20, 2, 8), (200, 10, 3, 3)];
    let (snapshot, mut symbols) =
        snapshot_holding(DEVICE, &blocks, &[(0, 80), (100, 80), (200, 10), (300, 30)]);
    let text = find_holders(&snapshot, &mut symbols, &HoldsQuery::default()).to_string();
    assert_eq!(
        text,
        "who holds device 0 now: 100.0 MiB in 4 blocks\n  \
         1. 50.0 MiB (50.0 %) by train.py:53 step\n  \
         2. 40.0 MiB (40.0 %) by train.py:3 load\n  \
         3. 10.0 MiB (10.0 %) by elsewhere.py:99 cache\n  \
         cache 100.0 MiB, 30.0 MiB of it in whole segments, the largest piece 40.0 MiB\n  \
         since the halfway point, 5.0 s earlier: 20.0 MiB more were allocated and are still held, all by \
         train.py:53 step\n  \
         first: look at train.py:53 step, the largest part (50.0 %)\n"
    );
}

#[test]
fn growth_counts_from_last_mark_before_moment() {
    let blocks = [(0, 40, 1, 1), (100, 30, 2, 2), (140, 20, 2, 8), (200, 10, 3, 3)];
    let (mut snapshot, mut symbols) = snapshot_holding(DEVICE, &blocks, &[]);
    for second in [3, 7, 20] {
        snapshot.marks.push(second * SECOND, ThreadId(1), "step");
    }
    let text = find_holders(&snapshot, &mut symbols, &HoldsQuery::default()).to_string();
    assert!(
        text.contains("  since the last mark \"step\", 4.0 s earlier: 20.0 MiB more were allocated"),
        "{text}"
    );
}

#[test]
fn request_that_fits_only_fragmented_cache_is_fragmentation() {
    let (snapshot, mut symbols) =
        snapshot_holding(DEVICE, &[(10, 10, 1, 1), (50, 10, 1, 1)], &[(0, 30), (40, 30)]);
    let mut advice = |requested| {
        let query = HoldsQuery::default().refused(Some(refused_request(requested, 100)));
        find_holders(&snapshot, &mut symbols, &query).advice
    };
    assert_eq!(
        advice(30),
        "try expandable segments (expandable_segments:True): 40.0 MiB are cached, in pieces of at most 10.0 MiB"
    );
    // The first request is larger than the whole cache, and the second one is smaller than a single piece of it.
    for requested in [50, 9] {
        assert_eq!(advice(requested), "look at train.py:3 load: 100.0 % of the memory is from there");
    }
    assert_eq!(
        advice(101),
        "look at what requests 101.0 MiB: a device of 100.0 MiB can never hold that much"
    );
}

#[test]
fn driver_reading_is_reported_and_decides_advice() {
    let (mut snapshot, mut symbols) = snapshot_holding(DEVICE, &[(0, 10, 1, 1)], &[]);
    snapshot.driver.push(DriverReading {
        device: DEVICE,
        moment: ReadingMoment::Last,
        total_bytes: 100 * MIB,
        free_bytes: 30 * MIB,
        tracked_bytes: 10 * MIB,
        pool_reserved_bytes: 25 * MIB,
        pool_used_bytes: 5 * MIB,
        ..DriverReading::default()
    });
    let query = |requested| HoldsQuery::default().refused(Some(refused_request(requested, 100)));
    let report = find_holders(&snapshot, &mut symbols, &query(35));
    assert_eq!(
        report.lines()[2],
        "  cache of the driver's pools 20.0 MiB; not recorded: 40.0 MiB of 70.0 MiB in use on the device (contexts, \
         libraries, other processes)"
    );
    assert_eq!(
        report.advice,
        "see what else uses the device (memtrack gpus): 40.0 MiB of its memory are not recorded here, and \
         10.0 MiB are held"
    );
    let pools = find_holders(&snapshot, &mut symbols, &query(15)).advice;
    assert_eq!(pools, "trim the driver's pools (cuMemPoolTrimTo): they keep 20.0 MiB unused");
    // A reading taken before the blocks were allocated does not apply to this moment.
    snapshot.driver[0].free_bytes = 95 * MIB;
    assert_eq!(find_holders(&snapshot, &mut symbols, &query(15)).unseen, None);
    // If there is no reading, other users are not mentioned.
    snapshot.driver.clear();
    assert_eq!(
        (report.lines().len(), find_holders(&snapshot, &mut symbols, &query(15)).lines().len()),
        (5, 4)
    );
}

#[test]
fn growth_is_counted_from_marker() {
    let blocks = [(0, 40, 1, 1), (100, 30, 2, 2), (140, 20, 2, 8)];
    let (snapshot, mut symbols) = snapshot_holding(DEVICE, &blocks, &[]);
    let mut since = |second: u64| {
        let query = HoldsQuery::default().since(Some(Marker::new((1 + second) * SECOND, "the last dump")));
        find_holders(&snapshot, &mut symbols, &query)
    };
    let some = since(1);
    assert_eq!(
        some.lines()[3],
        "  since the last dump, 9.0 s earlier: 50.0 MiB more were allocated and are still held, all by train.py:53 step"
    );
    let none = since(9).lines();
    assert_eq!(none[3], "  since the last dump, 1.0 s earlier: nothing was allocated that is still held");
    // A smaller holder that grew takes precedence over the largest one.
    let (snapshot, mut symbols) = snapshot_holding(DEVICE, &[(0, 60, 1, 1), (100, 40, 2, 8)], &[]);
    let query = HoldsQuery::default().since(Some(Marker::new(5 * SECOND, "the last dump")));
    assert_eq!(
        find_holders(&snapshot, &mut symbols, &query).advice,
        "look at train.py:53 step: it grew by 40.0 MiB since the last dump"
    );
}

#[test]
fn resident_memory_beyond_heap_blocks_is_lower_bound() {
    let (mut snapshot, mut symbols) = snapshot_holding(DeviceId::HOST, &[(0, 10, 1, 1)], &[]);
    let counted = DeviceStatistics {
        allocated_bytes: 10 * MIB,
        allocations: 1,
        reserved_bytes: 25 * MIB,
        counted: true,
        ..DeviceStatistics::of(DeviceId::HOST)
    };
    snapshot.devices.push(counted);
    let report = find_holders(&snapshot, &mut symbols, &HoldsQuery::default());
    assert_eq!(
        report.lines()[2],
        "  not recorded: at least 15.0 MiB of 25.0 MiB resident (code, stacks, C libraries, memtrack)"
    );
    // Fewer bytes are resident than are recorded, because blocks need not be resident. The untracked memory is then
    // unknown.
    snapshot.devices[0].reserved_bytes = 5 * MIB;
    assert_eq!(find_holders(&snapshot, &mut symbols, &HoldsQuery::default()).unseen, None);
}

#[test]
fn without_time_only_largest_groups_are_symbolized() {
    let blocks: Vec<Block> = (0..40).map(|number| (number * 10, 9 - number / 5, 1, 1)).collect();
    let (mut snapshot, mut symbols) = snapshot_holding(DEVICE, &blocks, &[]);
    // Give each block its own stack.
    for (row, block) in snapshot.blocks.iter_mut().enumerate() {
        block.stack = snapshot.stacks.push(&[100 + row as u64]);
    }
    for row in 0..40 {
        let frame = Frame {
            function: "step".into(),
            file: Some("/home/ana/train.py".into()),
            line: Some(7),
            binary: None,
        };
        symbols = symbols.with_frames(100 + row, vec![frame]);
    }
    let report =
        find_holders(&snapshot, &mut symbols, &HoldsQuery::default().symbol_time_limit(Duration::ZERO));
    let lines: Vec<&str> = report.holders.iter().map(|holder| holder.line.as_str()).collect();
    assert_eq!(lines, ["stacks not symbolized in time", "train.py:7 step"]);
    assert_eq!(
        report.holders.iter().map(|holder| holder.allocated_bytes).sum::<u64>(),
        report.allocated_bytes
    );
    assert_eq!(report.holders[1].count, 8);
    assert!(report.advice.starts_with("symbolize the stacks later"), "{}", report.advice);
}

#[test]
fn accelerator_comes_first_and_others_follow() {
    let (mut snapshot, mut symbols) = snapshot_holding(DEVICE, &[(0, 10, 1, 1)], &[]);
    for (device, size) in [(DeviceId::HOST, 500), (DeviceId(1), 30)] {
        let block = LiveBlock { device, size_bytes: size * MIB, ..snapshot.blocks[0] };
        snapshot.blocks.push(block);
    }
    let report = find_holders(&snapshot, &mut symbols, &HoldsQuery::default());
    assert_eq!(
        report.lines()[0],
        "who holds device 1 now: 30.0 MiB in 1 block; also host heap 500.0 MiB, device 0 10.0 MiB"
    );
    assert_eq!(WhoHolds::of(&snapshot, &mut symbols, DeviceId(5), &HoldsQuery::default()), None);
}

#[test]
fn json_has_bytes_as_integers_and_unknown_values_as_null() {
    let (snapshot, mut symbols) = snapshot_holding(DEVICE, &[(0, 10, 1, 1)], &[]);
    let report = find_holders(&snapshot, &mut symbols, &HoldsQuery::default());
    let value = serde_json::to_value(&report).unwrap();
    assert_eq!(value["requested_bytes"], 10 * MIB);
    assert_eq!(value["holders"][0]["frame"]["line"], 3);
    assert_eq!(value["device"]["number"], 0);
    assert!(
        value["holders"][0].get("requested_bytes_error").is_some_and(|error| error.is_null()),
        "it is exact"
    );
    assert!(
        value["unseen"].is_null() && value["cached"].is_null() && value["holders"][0]["module"].is_null()
    );
}

use super::*;
use memtrack_model::Frame;
use memtrack_model::event::{Event, EventFlags, StackId};
use memtrack_model::snapshot::{ResidentRange, Sampling};

const PAGE: u64 = 4096;
const HEAP: u64 = 0x10_0000;
const MAPPED: u64 = 0x80_0000;

/// A recording whose events are given in order, and readings of it.
struct Recording {
    snapshot: Snapshot,
    symbols: Symbolizer,
}

impl Recording {
    fn new() -> Self {
        let mut snapshot = Snapshot::default();
        (snapshot.clock.first, snapshot.clock.last) = ((0, 0), (1_000_000_000, 1_000_000_000));
        let mut symbols = Symbolizer::default();
        for (address, function) in [(1, "insert"), (2, "index")] {
            snapshot.stacks.push(&[address]);
            let file = Some("/home/ana/cache.rs".to_owned());
            let line = Some(10 * address as u32);
            symbols = symbols
                .with_frames(address, vec![Frame { function: function.into(), file, line, binary: None }]);
        }
        Self { snapshot, symbols }
    }

    fn event(&mut self, action: Action, device: DeviceId, address: u64, size_bytes: u64, stack: u32) {
        let ticks = self.snapshot.events.len() as u64 + 1;
        let stack = StackId(stack);
        self.snapshot.events.push(&Event {
            ticks,
            address,
            size_bytes,
            device,
            stack,
            action,
            ..Event::BLANK
        });
    }

    fn alloc(&mut self, address: u64, size_bytes: u64, stack: u32) {
        self.event(Action::Alloc, DeviceId::HOST, address, size_bytes, stack);
    }

    fn free(&mut self, address: u64, size_bytes: u64) {
        self.event(Action::Free, DeviceId::HOST, address, size_bytes, 0);
    }

    /// Adds a reading of these mappings: first page, number of pages, and run lengths.
    fn read(&mut self, mappings: &[(u64, u64, &[u32])]) -> &mut ResidentReading {
        let ticks = self.snapshot.events.len() as u64;
        let range = |&(start, pages, lengths): &(u64, u64, &[u32])| ResidentRange {
            start,
            end: start + pages * PAGE,
            resident_bytes: lengths.iter().skip(1).step_by(2).map(|run| u64::from(*run) * PAGE).sum(),
            is_break: false,
            pages: Some(lengths.to_vec()),
        };
        let ranges: Vec<ResidentRange> = mappings.iter().map(range).collect();
        let anonymous = ranges.iter().map(|range| range.resident_bytes).sum();
        let by_kind = [anonymous, 5 * PAGE, 0, 0, 7 * PAGE, PAGE];
        let reading = ResidentReading {
            ticks,
            ended_ticks: ticks,
            page_bytes: PAGE,
            by_kind,
            ranges,
            ..ResidentReading::default()
        };
        self.snapshot.resident.push(reading);
        self.snapshot.resident.last_mut().expect("it was pushed")
    }

    fn report(&mut self) -> ResidentReport {
        resident(&self.snapshot, &mut self.symbols, &TopOptions::new(), true).expect("there are readings")
    }
}

fn bytes(ledger: &Ledger, what: Resident) -> u64 {
    ledger.rows.iter().find(|row| row.what == what).map_or(0, |row| row.bytes)
}

fn sum(ledger: &Ledger) -> u64 {
    ledger.rows.iter().map(|row| row.bytes).sum()
}

#[test]
fn a_burst_leaves_pages_that_one_block_pins() {
    let mut recording = Recording::new();
    // Eight blocks of 512 bytes on each of ten pages.
    for block in 0..80 {
        recording.alloc(HEAP + block * 512, 512, 1);
    }
    recording.read(&[(HEAP, 16, &[0, 10])]);
    // On the first five pages one survives, on the others none.
    for block in 0..80 {
        if block >= 40 || block % 8 != 3 {
            recording.free(HEAP + block * 512, 512);
        }
    }
    recording.alloc(HEAP + 3 * PAGE, 100, 2);
    recording.read(&[(HEAP, 16, &[0, 10])]);
    let report = recording.report();
    assert_eq!(report.readings, 2);
    let peak = &report.peak;
    assert_eq!(bytes(peak, Resident::LiveHeap), 10 * PAGE);
    assert_eq!((sum(peak), peak.resident_bytes), (23 * PAGE, 23 * PAGE));
    let end = &report.end;
    assert_eq!(bytes(end, Resident::LiveHeap), 5 * 512 + 100);
    assert_eq!(bytes(end, Resident::KeptByAllocator), 5 * PAGE);
    assert_eq!(bytes(end, Resident::Fragmentation), 5 * PAGE - 5 * 512 - 100);
    assert_eq!((sum(end), end.trim_at_most_bytes), (23 * PAGE, Some(5 * PAGE)));
    let pages = end.sparse_pages.as_ref().unwrap();
    assert_eq!((pages.bytes, pages.live_bytes, pages.pinned_by_in_all), (5 * PAGE, 5 * 512 + 100, 2));
    let [insert, index] = &pages.pinned_by[..] else { panic!("{pages:?}") };
    assert_eq!((insert.name.as_str(), index.name.as_str()), ("cache.rs:10 insert", "cache.rs:20 index"));
    assert_eq!((insert.alone_bytes, index.alone_bytes), (4 * PAGE, 0));
    assert_eq!((insert.blocks, insert.usual_block_bytes, insert.live_bytes), (5, 512, 5 * 512));
    assert_eq!(insert.bytes + index.bytes, 5 * PAGE);
    let text = report.to_text(None);
    assert!(text.contains("would free at most 20.0 KiB"), "{text}");
    assert!(text.contains(" cache.rs:10 insert  19.3 KiB  96.7 %  16.0 KiB"), "{text}");
}

#[test]
fn mapped_memory_is_apart_and_the_allocators_mappings_are_not() {
    let mut recording = Recording::new();
    recording.event(Action::Alloc, DeviceId::MAPPED, MAPPED, 4 * PAGE, 1);
    // An allocator's own mapping, with a block in it.
    recording.event(Action::Alloc, DeviceId::MAPPED, MAPPED + 16 * PAGE, 4 * PAGE, 1);
    recording.alloc(MAPPED + 17 * PAGE, 2 * PAGE, 1);
    // Pages that became memory on demand, somewhere in their mapping.
    recording.event(Action::Alloc, DeviceId::MAPPED, MAPPED + 64 * PAGE + 1, 2 * PAGE, 1);
    recording.read(&[
        (MAPPED, 8, &[0, 8]),
        (MAPPED + 16 * PAGE, 4, &[0, 4]),
        (MAPPED + 64 * PAGE, 16, &[10, 2]),
        (MAPPED + 128 * PAGE, 1, &[0, 1]),
    ]);
    let end = recording.report().end;
    // All of a mapping that holds nothing but mapped memory counts as such.
    assert_eq!(bytes(&end, Resident::Mapped), 8 * PAGE + 2 * PAGE);
    assert_eq!(
        (bytes(&end, Resident::LiveHeap), bytes(&end, Resident::KeptByAllocator)),
        (2 * PAGE, 2 * PAGE)
    );
    assert_eq!(bytes(&end, Resident::NotExplained), PAGE);
    assert_eq!((bytes(&end, Resident::Stacks), bytes(&end, Resident::Memtrack)), (5 * PAGE, PAGE));
    assert_eq!(sum(&end), end.resident_bytes);
}

#[test]
fn live_blocks_that_were_never_touched_are_not_resident() {
    let mut recording = Recording::new();
    recording.alloc(HEAP, 100 * PAGE, 1);
    recording.read(&[(HEAP, 100, &[0, 1])]);
    let end = recording.report().end;
    assert_eq!((bytes(&end, Resident::LiveHeap), end.live_not_resident_bytes), (PAGE, 99 * PAGE));
}

#[test]
fn samples_leave_free_memory_undivided() {
    let mut recording = Recording::new();
    recording.snapshot.meta.budget = 0.03;
    recording.snapshot.sampling =
        Some(Sampling { unrecorded_blocks: 10, unrecorded_bytes: 1000, ..Sampling::default() });
    recording.alloc(HEAP, 4 * PAGE, 1);
    let sampled = Event {
        ticks: 2,
        address: HEAP + 5 * PAGE,
        size_bytes: 100,
        device: DeviceId::HOST,
        stack: StackId(2),
        action: Action::Alloc,
        flags: EventFlags::SAMPLED.with_interval_class(8),
        ..Event::BLANK
    };
    recording.snapshot.events.push(&sampled);
    recording.read(&[(HEAP, 16, &[0, 16])]);
    let end = recording.report().end;
    assert_eq!((end.sparse_pages, end.trim_at_most_bytes), (None, None));
    let live = end.rows.iter().find(|row| row.what == Resident::LiveHeap).unwrap();
    assert!(!live.bytes_error.is_exact() && live.bytes > 4 * PAGE, "{live:?}");
    let free = end.rows.iter().find(|row| row.what == Resident::FreeInAllocator).unwrap();
    assert_eq!(live.bytes + free.bytes, 16 * PAGE);
    assert!(!free.bytes_error.is_exact(), "{free:?}");
}

#[test]
fn what_changed_during_a_reading_is_its_error() {
    let mut recording = Recording::new();
    recording.alloc(HEAP, PAGE, 1);
    recording.read(&[(HEAP, 2, &[0, 2])]).ended_ticks = 3;
    recording.alloc(HEAP + PAGE, 1000, 1);
    recording.free(HEAP + PAGE, 1000);
    recording.alloc(HEAP + PAGE, 50, 1);
    let report = recording.report();
    assert_eq!(report.end.changed_bytes, 2000);
    assert!(report.to_text(None).contains("allocated and freed 2.0 KiB while pages were read"));
}

#[test]
fn pages_that_cannot_be_read_are_not_divided() {
    let mut recording = Recording::new();
    recording.alloc(HEAP, PAGE, 1);
    recording.read(&[(HEAP, 4, &[0, 3])]).ranges[0].pages = None;
    let end = recording.report().end;
    assert_eq!((bytes(&end, Resident::Heap), bytes(&end, Resident::LiveHeap)), (3 * PAGE, 0));
    assert_eq!(end.sparse_pages, None);
    assert_eq!(sum(&end), end.resident_bytes);
}

#[test]
fn at_most_60_points_are_shown_with_the_last_one() {
    let mut recording = Recording::new();
    for _ in 0..500 {
        recording.alloc(HEAP, PAGE, 1);
        recording.free(HEAP, PAGE);
        recording.read(&[(HEAP, 2, &[0, 2])]);
    }
    let report = recording.report();
    assert!((50..=60).contains(&report.over_time.len()), "{}", report.over_time.len());
    assert_eq!(report.over_time.last().unwrap().seconds, report.end.seconds);
}

#[test]
fn mappings_that_overlap_count_once() {
    let mut recording = Recording::new();
    recording.event(Action::Alloc, DeviceId::MAPPED, MAPPED, 6 * PAGE, 1);
    // The end of the first was not recorded.
    recording.event(Action::Alloc, DeviceId::MAPPED, MAPPED + 2 * PAGE, 2 * PAGE, 1);
    recording.event(Action::Alloc, DeviceId::MAPPED, MAPPED + 5 * PAGE, u64::MAX, 1);
    recording.read(&[(MAPPED, 8, &[0, 8])]);
    let end = recording.report().end;
    assert_eq!((bytes(&end, Resident::Mapped), sum(&end)), (8 * PAGE, end.resident_bytes));
}

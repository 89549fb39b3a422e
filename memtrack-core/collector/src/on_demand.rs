//! Addresses whose pages become memory when the program writes to them: mappings with `MAP_NORESERVE`, as jemalloc and mimalloc
//! make them, and pages that were given back by `madvise`. The program reports the ranges; which of their pages are memory is
//! read here from outside, from the system's table of the process's pages (`/proc/PID/pagemap`).
//!
//! What a range has gained since the last reading becomes an allocation with the range's stack, what it has lost a free. Their
//! times are those of the readings, so a short peak between two readings is not seen. Their addresses are the range's, but not
//! those of the pages.

use memtrack_model::event::{Action, DeviceId, Event};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const PAGE_BYTES: u64 = 4096;
/// The size of an entry of the system's table.
const ENTRY_BYTES: u64 = 8;
/// The bits of an entry that say that the page is in memory, or swapped out.
const IS_MEMORY: u64 = 1 << 63 | 1 << 62;
/// Only ranges up to this size in all are read: the table has an entry for each page, used or not.
const MAX_READ_BYTES: u64 = 64 << 30;
/// The number of blocks of a range from which on they are merged.
const MAX_BLOCKS: usize = 256;
/// The shortest time between two readings, the longest one, and the share of the time that readings may take.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
const MAX_INTERVAL: Duration = Duration::from_millis(500);
const INTERVALS_PER_READING: u32 = 50;

/// The ranges of a process.
#[derive(Debug, Default)]
pub(crate) struct OnDemand {
    ranges: BTreeMap<u64, Range>,
    address_bytes: u64,
    max_address_bytes: u64,
    next_reading: Option<Instant>,
    interval: Duration,
    /// The sums of the events made here.
    sums: Sums,
}

/// Sums of allocations and frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) allocated_bytes: u64,
    pub(crate) allocations: u64,
    pub(crate) freed_bytes: u64,
    pub(crate) frees: u64,
}

#[derive(Debug)]
struct Range {
    /// The event that reported the range.
    mapped: Event,
    /// The blocks that stand for the pages that are memory: address and size.
    blocks: Vec<(u64, u64)>,
    /// The time of the newest event of these blocks, in ticks.
    newest_ticks: u64,
}

impl Range {
    fn held_bytes(&self) -> u64 {
        self.blocks.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns an address for a new block: it is no multiple of a page, so no other kind of block has it.
    fn next_address(&self) -> u64 {
        self.blocks.last().map_or(self.mapped.address, |(last, _)| *last) + 1
    }
}

impl OnDemand {
    /// Returns the addresses in the ranges, in bytes.
    pub(crate) fn address_bytes(&self) -> u64 {
        self.address_bytes
    }

    /// Returns the highest number of addresses in the ranges, in bytes.
    pub(crate) fn max_address_bytes(&self) -> u64 {
        self.max_address_bytes
    }

    /// Returns the sums of the allocations and frees that were made here.
    pub(crate) fn sums(&self) -> Sums {
        self.sums
    }

    /// Takes the reports about ranges out of the events, and puts the frees of ranges that ended in their place.
    pub(crate) fn apply(&mut self, events: &mut Vec<Event>) {
        let is_report = |event: &Event| {
            event.device == DeviceId::MAPPED
                && matches!(event.action, Action::SegmentMap | Action::SegmentUnmap)
        };
        if !events.iter().any(is_report) {
            return;
        }
        // The pages of several threads are not in the order of time, but a range may end on another thread.
        let mut reports: Vec<Event> = events.extract_if(.., |event| is_report(event)).collect();
        reports.sort_by_key(|event| event.ticks);
        for report in reports {
            if report.action == Action::SegmentMap {
                self.begin(report);
            } else {
                self.end(&report, events);
            }
        }
    }

    fn begin(&mut self, mapped: Event) {
        self.address_bytes += mapped.size_bytes;
        self.max_address_bytes = self.max_address_bytes.max(self.address_bytes);
        self.ranges.insert(mapped.address, Range { mapped, blocks: Vec::new(), newest_ticks: mapped.ticks });
        self.interval = MIN_INTERVAL;
        self.next_reading = Some(Instant::now());
    }

    fn end(&mut self, report: &Event, events: &mut Vec<Event>) {
        let Some(mut range) = self.ranges.remove(&report.address) else { return };
        self.address_bytes -= range.mapped.size_bytes;
        let held = range.held_bytes();
        // A reading may have been later than the end, which the program reported only now.
        let ticks = report.ticks.max(range.newest_ticks + 1);
        self.sums.shrink(&mut range, held, ticks, events);
    }

    /// Reads which pages are memory, if a reading is due, and returns the events of what has changed. `ticks` is the present
    /// time.
    pub(crate) fn read(&mut self, pid: u32, ticks: u64) -> Vec<Event> {
        let begun = Instant::now();
        if self.ranges.is_empty() || self.next_reading.is_some_and(|next| begun < next) {
            return Vec::new();
        }
        let mut events = Vec::new();
        if let Ok(table) = File::open(format!("/proc/{pid}/pagemap")) {
            let mut left = MAX_READ_BYTES;
            for range in self.ranges.values_mut() {
                let Some(rest) = left.checked_sub(range.mapped.size_bytes) else { continue };
                left = rest;
                let Some(now) = memory_bytes(&table, &range.mapped) else { break };
                let before = range.held_bytes();
                if now > before {
                    self.sums.grow(range, now - before, ticks, &mut events);
                } else {
                    self.sums.shrink(range, before - now, ticks, &mut events);
                }
            }
        }
        // Programs that are idle are read less often.
        self.interval = if events.is_empty() { self.interval * 2 } else { MIN_INTERVAL }
            .max(begun.elapsed() * INTERVALS_PER_READING)
            .clamp(MIN_INTERVAL, MAX_INTERVAL);
        self.next_reading = Some(Instant::now() + self.interval);
        events
    }
}

impl Sums {
    /// Adds memory to a range, as one more block.
    fn grow(&mut self, range: &mut Range, more: u64, ticks: u64, events: &mut Vec<Event>) {
        let mut size_bytes = more;
        if range.blocks.len() >= MAX_BLOCKS {
            size_bytes += range.held_bytes();
            self.shrink(range, size_bytes - more, ticks, events);
        }
        let address = range.next_address();
        range.blocks.push((address, size_bytes));
        range.newest_ticks = ticks;
        self.allocated_bytes += size_bytes;
        self.allocations += 1;
        events.push(Event { ticks, address, size_bytes, action: Action::Alloc, ..range.mapped });
    }

    /// Takes memory from a range: its newest blocks, the last of them in part.
    fn shrink(&mut self, range: &mut Range, less: u64, ticks: u64, events: &mut Vec<Event>) {
        let mut left = less;
        while left > 0
            && let Some((address, size_bytes)) = range.blocks.pop()
        {
            self.freed_bytes += size_bytes;
            self.frees += 1;
            events.push(Event { ticks, address, size_bytes, action: Action::Free, ..range.mapped });
            if size_bytes > left {
                self.grow(range, size_bytes - left, ticks + 1, events);
            }
            left = left.saturating_sub(size_bytes);
        }
    }
}

/// Returns how many bytes of a range are memory; `None` if the process has ended.
fn memory_bytes(table: &File, range: &Event) -> Option<u64> {
    let mut buffer = vec![0_u8; 64 << 10];
    let (mut offset, end) = (
        range.address / PAGE_BYTES * ENTRY_BYTES,
        range.address.saturating_add(range.size_bytes) / PAGE_BYTES * ENTRY_BYTES,
    );
    let mut pages = 0;
    while offset < end {
        let wanted = buffer.len().min((end - offset) as usize);
        let count = table.read_at(&mut buffer[..wanted], offset).ok().filter(|&count| count > 0)?;
        let entries = buffer[..count].as_chunks::<{ ENTRY_BYTES as usize }>().0;
        pages += entries.iter().filter(|entry| u64::from_ne_bytes(**entry) & IS_MEMORY != 0).count() as u64;
        offset += count as u64;
    }
    Some(pages * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::{EventFlags, ScopeId, StackId, StreamId, ThreadId};

    const MIB: u64 = 1 << 20;

    fn report(action: Action, ticks: u64, address: u64, size_bytes: u64) -> Event {
        Event {
            ticks,
            address,
            size_bytes,
            stream: StreamId(0),
            stack: StackId(7),
            scope: ScopeId(3),
            thread: ThreadId(1),
            device: DeviceId::MAPPED,
            action,
            flags: EventFlags::default(),
        }
    }

    /// Returns the live bytes that events leave, and checks that no address is used twice.
    fn live(events: &[Event]) -> u64 {
        let mut blocks = BTreeMap::new();
        for event in events {
            match event.action {
                Action::Alloc => assert_eq!(blocks.insert(event.address, event.size_bytes), None),
                _ => assert_eq!(blocks.remove(&event.address), Some(event.size_bytes)),
            }
            assert_eq!((event.stack, event.scope), (StackId(7), ScopeId(3)));
        }
        blocks.values().sum()
    }

    #[test]
    fn what_this_process_writes_is_found_and_ends_with_the_range() {
        let mut pages = vec![0_u8; 9 * MIB as usize];
        let address = (pages.as_ptr().addr() as u64).next_multiple_of(PAGE_BYTES);
        let mut on_demand = OnDemand::default();
        let mut events = vec![report(Action::SegmentMap, 1, address, 8 * MIB)];
        on_demand.apply(&mut events);
        assert_eq!((events.len(), on_demand.address_bytes()), (0, 8 * MIB));
        let pid = std::process::id();
        let mut all = on_demand.read(pid, 2);
        let begun = live(&all);
        pages[2 * MIB as usize..5 * MIB as usize].fill(1);
        on_demand.next_reading = None;
        all.extend(on_demand.read(pid, 3));
        // A page at each end may have been in use before.
        assert!(live(&all) - begun >= 3 * MIB - 2 * PAGE_BYTES, "{all:?}");
        let mut events = vec![report(Action::SegmentUnmap, 4, address, 8 * MIB)];
        on_demand.apply(&mut events);
        assert!(!events.is_empty() && events.iter().all(|event| event.action == Action::Free));
        all.extend(events);
        assert_eq!((live(&all), on_demand.address_bytes(), on_demand.max_address_bytes()), (0, 0, 8 * MIB));
        let sums = on_demand.sums();
        assert_eq!((sums.allocated_bytes, sums.allocations), (sums.freed_bytes, sums.frees));
    }

    #[test]
    fn blocks_follow_growth_and_loss() {
        let mapped = report(Action::SegmentMap, 1, 1 << 40, 4096 * MIB);
        let mut range = Range { mapped, blocks: Vec::new(), newest_ticks: mapped.ticks };
        let (mut sums, mut events) = (Sums::default(), Vec::new());
        for _ in 0..3 * MAX_BLOCKS {
            sums.grow(&mut range, MIB, 2, &mut events);
        }
        assert_eq!(live(&events), 3 * MAX_BLOCKS as u64 * MIB);
        assert!(range.blocks.len() <= MAX_BLOCKS);
        sums.shrink(&mut range, 5 * MIB / 2, 3, &mut events);
        assert_eq!(live(&events), (3 * MAX_BLOCKS as u64 * MIB) - 5 * MIB / 2);
        sums.grow(&mut range, MIB, 4, &mut events);
        assert_eq!(live(&events), range.held_bytes());
    }

    #[test]
    fn an_ended_process_changes_nothing() {
        let mut on_demand = OnDemand::default();
        on_demand.apply(&mut vec![report(Action::SegmentMap, 1, 1 << 40, MIB)]);
        // No process has this id.
        assert_eq!(on_demand.read(u32::MAX, 2), []);
        assert_eq!(on_demand.address_bytes(), MIB);
    }
}

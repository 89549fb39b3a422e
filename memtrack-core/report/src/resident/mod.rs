//! Where the resident memory of a process is: a ledger whose rows add up to what the kernel counts. `memtrack rss` and
//! [`Recording::resident`] print it.
//!
//! A reading has the process's resident pages at one moment (`ResidentReading`); the events show which blocks were live then. Each
//! resident page of anonymous memory goes to the first of these that is true:
//!
//! 1. A live heap block is on it: its bytes there are live, the rest is free memory that the block pins.
//! 2. It lies in a mapping that the program made itself, without heap blocks in it: mapped memory.
//! 3. Heap blocks were allocated in the same mapping of the kernel at some time: the allocator keeps the page.
//! 4. The program made a mapping in it: mapped memory that became resident page by page.
//! 5. Otherwise it is not explained.
//!
//! What is not anonymous has its kind from the kernel's list. Where small blocks were sampled, 1 and 3 cannot be distinguished on a
//! page, and the ledger has one row for all free memory in the allocator. Where events were lost, the heap is one row.
//!
//! [`Recording::resident`]: https://docs.rs/memtrack-core/latest/memtrack_core/struct.Recording.html

mod pages;
mod pins;
mod text;

use crate::top::TopOptions;
use memtrack_blocks::estimate::{Estimate, Precision, Sum};
use memtrack_blocks::lifetimes::{Lifetime, lifetimes};
use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::{Charged, MappingKind, ResidentReading, Snapshot};
use memtrack_symbols::Symbolizer;
use pages::{Block, PageSums, add_up, containing};
use pins::{Lines, UnnamedPins};
use serde::Serialize;
use std::ops::Range;

pub use pins::{Pin, SparsePages};

/// The most readings of which the ledger over time has rows; others are left out evenly.
const MAX_POINTS: usize = 60;

/// Where the resident memory of a process was at its highest reading and at the last one, as `memtrack rss --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ResidentReport {
    /// The reading with the most resident memory. Between two readings there may have been more.
    pub peak: Ledger,
    /// The last reading.
    pub end: Ledger,
    /// The readings in the order of time, at most 60 of them; empty unless they are requested.
    pub over_time: Vec<LedgerPoint>,
    /// The number of readings in the recording.
    pub readings: u64,
    /// Whether the recording is complete. If not, the process went on after the last reading.
    pub complete: bool,
}

/// The resident memory at one reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Ledger {
    /// The time of the reading, in seconds since the start of the recording.
    pub seconds: f64,
    /// The time from the reading to the end of the recording, in seconds.
    pub seconds_before_end: f64,
    /// The resident bytes, as the kernel counts them: the sum of the rows.
    pub resident_bytes: u64,
    /// What the resident memory is.
    pub rows: Vec<LedgerRow>,
    /// The bytes of live heap blocks that are not resident, because the program has never touched them, or they were swapped out.
    pub live_not_resident_bytes: u64,
    /// The bytes that were swapped out.
    pub swapped_bytes: u64,
    /// The bytes that were allocated and freed while the pages were read. Rows may be off by as much.
    pub changed_bytes: u64,
    /// What the container is charged for; null if there is no container or its numbers cannot be read.
    pub charged: Option<Charged>,
    /// The pages of which at most a quarter is live, and the lines whose blocks pin them; null if that is unknown, because small
    /// blocks were sampled, events were lost, or pages could not be read.
    pub sparse_pages: Option<SparsePages>,
    /// The most that the allocator could return to the system now: its free pages. Null if that is unknown.
    pub trim_at_most_bytes: Option<u64>,
}

/// A row of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LedgerRow {
    /// What the memory is.
    pub what: Resident,
    /// The resident bytes.
    pub bytes: u64,
    /// The margin of error of the bytes; null if they are exact.
    pub bytes_error: Estimate,
    /// The share of all resident bytes, from 0 to 1.
    pub share: f64,
}

/// One of several readings.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LedgerPoint {
    /// The time of the reading, in seconds since the start of the recording.
    pub seconds: f64,
    /// The resident bytes, as the kernel counts them.
    pub resident_bytes: u64,
    /// What the resident memory is.
    pub rows: Vec<LedgerRow>,
}

/// What resident memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Resident {
    /// Bytes of live heap blocks.
    LiveHeap,
    /// Pages without live blocks that the allocator keeps.
    KeptByAllocator,
    /// Memory beside live blocks, on the same pages: free blocks, rounding, and the allocator's own notes.
    Fragmentation,
    /// The last two together, where small blocks were sampled.
    FreeInAllocator,
    /// The last three together, where events were lost or pages could not be read.
    Heap,
    /// Memory that the program mapped itself.
    Mapped,
    /// Stacks of threads.
    Stacks,
    /// Files that are mapped.
    Files,
    /// Memory shared with other processes.
    Shared,
    /// Code and data of programs and libraries.
    Binaries,
    /// memtrack's own memory in the process.
    Memtrack,
    /// Everything else.
    NotExplained,
}

/// The blocks of a snapshot on the host, prepared for several readings.
struct HostBlocks<'a> {
    snapshot: &'a Snapshot,
    heap: Vec<Lifetime>,
    mapped: Vec<Lifetime>,
    precision: Precision,
    /// Whether small blocks were sampled.
    is_sampled: bool,
    /// Whether it is unknown which blocks were live, because events were lost.
    is_incomplete: bool,
}

/// Finds where the resident memory of the snapshot's process was; `None` if the snapshot has no readings. If `over_time` is set,
/// the report has the rows of other readings as well. Lines are those of [`TopOptions`], and so is their number.
pub fn resident(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    options: &TopOptions,
    over_time: bool,
) -> Option<ResidentReport> {
    let readings = &snapshot.resident;
    let end = readings.last()?;
    // Of equal readings, the first.
    let peak = readings.iter().rev().max_by_key(|reading| reading.resident_bytes())?;
    let blocks = HostBlocks::of(snapshot);
    let mut lines = Lines::new(snapshot, symbols, &blocks.heap, options);
    let (mut peak, pins_at_peak) = blocks.ledger(peak, &mut lines);
    let (mut end, pins_at_end) = blocks.ledger(end, &mut lines);
    let named = lines.name(vec![pins_at_peak, pins_at_end], &blocks.precision);
    for (ledger, named) in [&mut peak, &mut end].into_iter().zip(named) {
        ledger.sparse_pages = ledger.trim_at_most_bytes.map(|_| named);
    }
    let step = readings.len().div_ceil(MAX_POINTS);
    // The last reading is always among them.
    let points = readings.iter().rev().step_by(step).filter(|_| over_time);
    let mut over_time: Vec<LedgerPoint> = points.map(|reading| blocks.point(reading)).collect();
    over_time.reverse();
    Some(ResidentReport {
        peak,
        end,
        over_time,
        readings: readings.len() as u64,
        complete: snapshot.meta.complete,
    })
}

impl<'a> HostBlocks<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let heap = lifetimes(snapshot, DeviceId::HOST);
        let precision = Precision::of(snapshot, DeviceId::HOST, &heap);
        let mapped = lifetimes(snapshot, DeviceId::MAPPED);
        // The recorder's own table of live blocks does not depend on events. `memtrack run` has only the events.
        let is_of_run = snapshot.address_space.is_some();
        let lost = snapshot.devices.iter().find(|counts| counts.device == DeviceId::HOST);
        let is_incomplete = is_of_run && lost.is_some_and(|counts| counts.dropped > 0);
        let is_sampled = snapshot.may_lack_small_blocks();
        Self { snapshot, heap, mapped, precision, is_sampled, is_incomplete }
    }

    fn point(&self, reading: &ResidentReading) -> LedgerPoint {
        let sums = self.sums(reading, |_| {});
        LedgerPoint {
            seconds: self.snapshot.clock.seconds_since_start(reading.ticks),
            resident_bytes: reading.resident_bytes(),
            rows: sums.rows(reading),
        }
    }

    /// Returns the ledger of a reading without its sparse pages, and these.
    fn ledger(&self, reading: &ResidentReading, lines: &mut Lines<'_>) -> (Ledger, UnnamedPins) {
        let mut pins = UnnamedPins::default();
        let sums = self.sums(reading, |page| lines.add(&mut pins, &page));
        let clock = self.snapshot.clock;
        let last = clock.last.0.max(self.snapshot.events.ticks.last().copied().unwrap_or(0));
        let ledger = Ledger {
            seconds: clock.seconds_since_start(reading.ticks),
            seconds_before_end: (clock.seconds_since_start(last) - clock.seconds_since_start(reading.ticks))
                .max(0.0),
            resident_bytes: reading.resident_bytes(),
            rows: sums.rows(reading),
            live_not_resident_bytes: sums.live_not_resident,
            swapped_bytes: reading.swapped_bytes,
            changed_bytes: self.changed_during(reading),
            charged: reading.charged,
            sparse_pages: None,
            trim_at_most_bytes: sums.knows_pages.then_some(sums.kept),
        };
        (ledger, pins)
    }

    /// Returns the row of the last event up to `ticks`.
    fn row_at(&self, ticks: u64) -> Option<usize> {
        self.snapshot.events.ticks.partition_point(|&event| event <= ticks).checked_sub(1)
    }

    /// Returns the bytes of host memory that were allocated or freed during a reading.
    fn changed_during(&self, reading: &ResidentReading) -> u64 {
        let events = &self.snapshot.events;
        let [from, to] = [reading.ticks, reading.ended_ticks]
            .map(|ticks| events.ticks.partition_point(|&event| event <= ticks));
        let is_host = |device: DeviceId| [DeviceId::HOST, DeviceId::MAPPED].contains(&device);
        let changes = (from..to.max(from)).filter(|&row| {
            is_host(events.device[row]) && matches!(events.action[row], Action::Alloc | Action::Free)
        });
        changes.fold(0, |sum, row| sum.saturating_add(self.snapshot.weighed_event(row).bytes))
    }

    /// Adds up a reading. Calls `sparse` for each sparse page.
    fn sums(&self, reading: &ResidentReading, mut sparse: impl FnMut(pages::SparsePage<'_>)) -> Sums {
        let row = self.row_at(reading.ticks);
        let is_live = |lifetime: &&Lifetime| lifetime.is_live_after(row);
        let place = |(index, lifetime): (usize, &Lifetime)| {
            let start = lifetime.address(self.snapshot);
            Block { start, end: start.saturating_add(lifetime.size_bytes), index: index as u32 }
        };
        let live_rows = || self.heap.iter().enumerate().filter(|(_, lifetime)| lifetime.is_live_after(row));
        let mut live: Vec<Block> = live_rows().map(place).filter(|block| block.start < block.end).collect();
        live.sort_unstable_by_key(|block| block.start);
        let ranges: Vec<Range<u64>> = reading.ranges.iter().map(|range| range.start..range.end).collect();
        let mut mapped: Vec<Range<u64>> = self
            .mapped
            .iter()
            .filter(is_live)
            .map(|lifetime| {
                let start = lifetime.address(self.snapshot);
                start..start.saturating_add(lifetime.size_bytes)
            })
            .collect();
        mapped.sort_unstable_by_key(|range| range.start);
        let (had_heap, heap_mappings) = self.holds_heap(&ranges, &mapped);
        let mut has_mapped = vec![false; ranges.len()];
        for range in &mapped {
            if let Some(index) = containing(&ranges, range.start) {
                has_mapped[index] = true;
            }
        }
        // A mapping with heap blocks belongs to the allocator. One that is not of whole pages stands for pages that became
        // memory somewhere in the mapping.
        let mut own: Vec<Range<u64>> = mapped
            .iter()
            .zip(&heap_mappings)
            .filter(|(range, has_heap)| !**has_heap && range.start % reading.page_bytes == 0)
            .map(|(range, _)| {
                range.start..range.end.checked_next_multiple_of(reading.page_bytes).unwrap_or(range.end)
            })
            .collect();
        // They overlap where the end of one was not recorded.
        own.dedup_by(|next, before| {
            let overlaps = next.start < before.end;
            if overlaps {
                before.end = before.end.max(next.end);
            }
            overlaps
        });
        let mut sums = Sums { knows_pages: !self.is_sampled && !self.is_incomplete, ..Sums::default() };
        for (index, range) in reading.ranges.iter().enumerate() {
            let is_heap = had_heap[index] || range.is_break;
            if range.pages.is_none() {
                // Nothing is known about single pages: the mapping is what it mostly is.
                sums.knows_pages &= !is_heap;
                sums.lacks_pages |= is_heap;
                sums.add(
                    is_heap,
                    has_mapped[index],
                    PageSums { free: range.resident_bytes, ..PageSums::default() },
                );
                continue;
            }
            let mut found = add_up(range, reading.page_bytes, &live, &own, &mut sparse);
            // The pages were read a moment after the kernel's sum.
            found.fit(range.resident_bytes);
            sums.add(is_heap, has_mapped[index], found);
        }
        let live_bytes =
            live_rows().fold(0_u64, |sum, (_, lifetime)| sum.saturating_add(lifetime.size_bytes));
        sums.live_not_resident = live_bytes.saturating_sub(sums.live);
        if self.is_sampled && !self.is_incomplete {
            // Blocks that always are recorded are known by address, the others are estimated.
            let mut sampled = Sum::default();
            live_rows()
                .filter(|(_, lifetime)| lifetime.estimated)
                .for_each(|(_, lifetime)| sampled.add(lifetime.size_bytes as f64, lifetime.blocks));
            let recorded = live_rows()
                .filter(|(_, lifetime)| lifetime.estimated)
                .fold(0_u64, |sum, (_, lifetime)| sum.saturating_add(lifetime.size_bytes));
            let exact = sums.live.saturating_sub(recorded);
            sums.live_estimate = Some(self.precision.bytes(&sampled).add(&Estimate::exact(exact as f64)));
        }
        if !sums.knows_pages {
            sums.live_not_resident = 0;
        }
        sums
    }

    /// Returns which ranges and which of the program's own mappings have ever held a heap block.
    fn holds_heap(&self, ranges: &[Range<u64>], mapped: &[Range<u64>]) -> (Vec<bool>, Vec<bool>) {
        let (mut in_range, mut in_mapping) = (vec![false; ranges.len()], vec![false; mapped.len()]);
        for lifetime in &self.heap {
            let address = lifetime.address(self.snapshot);
            if let Some(index) = containing(ranges, address) {
                in_range[index] = true;
            }
            if let Some(index) = containing(mapped, address) {
                in_mapping[index] = true;
            }
        }
        (in_range, in_mapping)
    }
}

impl PageSums {
    /// Reduces the sums to `bytes` in all: what is free first.
    fn fit(&mut self, bytes: u64) {
        let mut over = (self.live + self.beside_live + self.mapped + self.free).saturating_sub(bytes);
        for part in [&mut self.free, &mut self.mapped, &mut self.beside_live, &mut self.live] {
            let less = over.min(*part);
            *part -= less;
            over -= less;
        }
        // Or fewer pages than the kernel counted.
        let sum = self.live + self.beside_live + self.mapped + self.free;
        self.free = self.free.saturating_add(bytes.saturating_sub(sum));
    }
}

/// The sums of a reading's anonymous memory.
#[derive(Debug, Default)]
struct Sums {
    live: u64,
    beside_live: u64,
    kept: u64,
    mapped: u64,
    not_explained: u64,
    live_not_resident: u64,
    /// Whether it is known of each page of the heap what is on it.
    knows_pages: bool,
    /// Whether the pages of a mapping of the heap could not be read.
    lacks_pages: bool,
    /// The live bytes where small blocks were sampled.
    live_estimate: Option<Estimate>,
}

impl Sums {
    fn add(&mut self, is_heap: bool, has_mapped: bool, pages: PageSums) {
        self.live += pages.live;
        self.beside_live += pages.beside_live;
        self.mapped += pages.mapped;
        match (is_heap, has_mapped) {
            (true, _) => self.kept = self.kept.saturating_add(pages.free),
            (false, true) => self.mapped = self.mapped.saturating_add(pages.free),
            (false, false) => self.not_explained = self.not_explained.saturating_add(pages.free),
        }
    }

    fn rows(&self, reading: &ResidentReading) -> Vec<LedgerRow> {
        let all = reading.resident_bytes();
        let exact = |what, bytes: u64| (what, bytes, Estimate::exact(bytes as f64));
        let heap_bytes = self.live.saturating_add(self.beside_live).saturating_add(self.kept);
        let heap = if self.knows_pages {
            vec![
                exact(Resident::LiveHeap, self.live),
                exact(Resident::KeptByAllocator, self.kept),
                exact(Resident::Fragmentation, self.beside_live),
            ]
        } else if let Some(live) = self.live_estimate.filter(|_| !self.lacks_pages) {
            let live = live.at_most(heap_bytes as f64).at_least(0.0);
            let live_bytes = live.value.round() as u64;
            let free = Estimate::exact(heap_bytes as f64).minus(&live);
            vec![
                (Resident::LiveHeap, live_bytes, live),
                (Resident::FreeInAllocator, heap_bytes - live_bytes.min(heap_bytes), free),
            ]
        } else {
            vec![exact(Resident::Heap, heap_bytes)]
        };
        let others = [
            exact(Resident::Mapped, self.mapped),
            exact(Resident::Stacks, reading.of(MappingKind::Stack)),
            exact(Resident::Files, reading.of(MappingKind::File)),
            exact(Resident::Shared, reading.of(MappingKind::Shared)),
            exact(Resident::Binaries, reading.of(MappingKind::Binary)),
            exact(Resident::Memtrack, reading.of(MappingKind::Memtrack)),
            exact(Resident::NotExplained, self.not_explained),
        ];
        let share = |bytes: u64| if all == 0 { 0.0 } else { bytes as f64 / all as f64 };
        let row = |(what, bytes, bytes_error)| LedgerRow { what, bytes, bytes_error, share: share(bytes) };
        heap.into_iter().chain(others).map(row).collect()
    }
}

#[cfg(test)]
mod tests;

//! The data of a running tracker: a 48-byte record for each of the newest operators, and the data about older ones that
//! a summary needs. Names are assembled when the data is read, not when an operator ends. However long the program
//! runs, the series needs memory only for the kept records plus one chunk.
//!
//! **What is kept?** By default, the newest 262,144 operators are kept (`Options::tracker_entries`). Of the older ones,
//! only the peaks and the 1,000 operators with the largest growth are kept; a summary ranks these operators.

use super::Mark;
use memtrack_model::snapshot::ScopeKind;
use memtrack_recorder::internal_bytes;
use memtrack_recorder::scope::ScopeNode;
use memtrack_tracker::{AllocatedPeak, Folded, Growth, ReachedPeak, Sample, TrackerStats};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

/// The number of bytes in a MiB, the tracker's unit.
const MIB: f64 = 1_048_576.0;
/// The number of records in a chunk. The oldest records are folded, that is, reduced to their peaks and largest growths,
/// one chunk at a time.
const CHUNK_RECORDS: usize = 4096;
/// The maximum number of folded operators kept with their names. These are the ones with the largest growth.
const MAX_FOLDED_NAMES: usize = 1000;

/// The allocated, active and reserved bytes after an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) allocated: i64,
    pub(super) active: i64,
    pub(super) reserved: i64,
}

/// The record of one operator.
#[derive(Clone, Copy)]
struct Record {
    node: &'static ScopeNode,
    /// The number of earlier operators with the same name.
    count: u64,
    levels: Levels,
    /// The time at which the operator ended, in ticks of the recorder's clock. It is used to locate the peak.
    ticks: u64,
}

/// The records of one run.
pub(super) struct Series {
    chunks: VecDeque<Vec<Record>>,
    /// The size of the chunks, which counts as memtrack's own memory.
    chunk_memory: InternalMemory,
    /// The minimum number of records to keep.
    keep: usize,
    /// The number of folded operators.
    folded: u64,
    /// The time at which the last folded operator ended.
    folded_ticks: u64,
    /// The number of bytes allocated after the last folded operator, or before the first operator.
    previous_bytes: i64,
    /// The maximum of each counter after folded operators.
    peaks: Levels,
    /// The largest growths of folded operators, in a heap with the smallest growth on top, because the smallest is
    /// replaced first.
    growths: BinaryHeap<Reverse<FoldedGrowth>>,
}

/// Memory for a record, preallocated while no thread is waiting for the run.
#[derive(Default)]
pub(super) struct SpareMemory {
    chunk: Option<Vec<Record>>,
    list: VecDeque<Vec<Record>>,
}

impl SpareMemory {
    /// Allocates memory for one more record in a series of `chunks` chunks.
    pub(super) fn new(chunks: usize) -> Self {
        Self {
            chunk: Some(Vec::with_capacity(CHUNK_RECORDS)),
            list: VecDeque::with_capacity(2 * chunks + 16),
        }
    }
}

/// A number of bytes that count as memtrack's memory until this value is dropped.
struct InternalMemory(usize);

impl InternalMemory {
    fn add(&mut self, bytes: usize) {
        internal_bytes::add(bytes);
        self.0 += bytes;
    }
}

impl Drop for InternalMemory {
    fn drop(&mut self) {
        internal_bytes::subtract(self.0);
    }
}

/// The growth of memory during a folded operator. Of two operators with equal growth, the earlier one is ordered as the
/// larger.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FoldedGrowth {
    bytes: i64,
    index: Reverse<u64>,
    node: u32,
    count: u64,
}

impl Series {
    /// Creates an empty series that keeps at least `keep` records. `previous_bytes` were allocated before the first
    /// operator.
    pub(super) fn new(keep: u64, previous_bytes: i64) -> Self {
        let none = Levels { allocated: i64::MIN, active: i64::MIN, reserved: i64::MIN };
        let keep = usize::try_from(keep).unwrap_or(usize::MAX).max(1);
        Self {
            chunks: VecDeque::new(),
            chunk_memory: InternalMemory(0),
            keep,
            folded: 0,
            folded_ticks: 0,
            previous_bytes,
            peaks: none,
            growths: BinaryHeap::with_capacity(MAX_FOLDED_NAMES),
        }
    }

    /// Sets the number of bytes allocated before the first operator, once it is known.
    pub(super) fn set_previous(&mut self, bytes: i64) {
        self.previous_bytes = bytes;
    }

    /// Returns the number of chunks.
    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Returns whether the series has enough records without its oldest chunk, in which case that chunk is reused.
    fn is_full(&self) -> bool {
        self.chunks.len().saturating_sub(1).saturating_mul(CHUNK_RECORDS) >= self.keep
    }

    fn needs_chunk(&self) -> bool {
        self.chunks.back().is_none_or(|last| last.len() == CHUNK_RECORDS)
    }

    /// Returns whether one more record can be added without memory beyond `spare`.
    pub(super) fn fits(&self, spare: &SpareMemory) -> bool {
        let list = self.chunks.capacity().max(spare.list.capacity());
        !self.needs_chunk() || self.is_full() || spare.chunk.is_some() && self.chunks.len() < list
    }

    /// Appends a record, for which `spare` must suffice. Afterwards, `spare` contains the memory to be freed.
    pub(super) fn push(
        &mut self,
        node: &'static ScopeNode,
        count: u64,
        levels: Levels,
        ticks: u64,
        spare: &mut SpareMemory,
    ) {
        if self.needs_chunk() {
            let next = if self.is_full() { self.fold_oldest() } else { self.new_chunk(spare) };
            self.chunks.push_back(next);
        }
        let last = self.chunks.back_mut().expect("a chunk was appended");
        last.push(Record { node, count, levels, ticks });
    }

    fn new_chunk(&mut self, spare: &mut SpareMemory) -> Vec<Record> {
        move_into_larger(&mut self.chunks, &mut spare.list);
        self.chunk_memory.add(CHUNK_RECORDS * size_of::<Record>());
        spare.chunk.take().unwrap_or_default()
    }

    /// Folds the records in the oldest chunk and returns the emptied chunk.
    fn fold_oldest(&mut self) -> Vec<Record> {
        let mut oldest = self.chunks.pop_front().unwrap_or_default();
        oldest.iter().for_each(|record| self.fold(record));
        oldest.clear();
        oldest
    }

    /// Allocates memory for a copy of a series of `chunks` chunks.
    pub(super) fn reserve_chunks(&mut self, chunks: usize) {
        self.chunks.resize_with(chunks, || Vec::with_capacity(CHUNK_RECORDS));
    }

    /// Copies the series into `copy`, which must be empty, without allocating memory. Returns `false` if `copy` is too
    /// small.
    pub(super) fn copy_into(&self, copy: &mut Self) -> bool {
        if copy.chunks.len() < self.chunks.len() {
            return false;
        }
        self.chunks.iter().zip(&mut copy.chunks).for_each(|(from, to)| to.extend_from_slice(from));
        copy.growths.extend(self.growths.iter().cloned());
        (copy.folded, copy.previous_bytes, copy.peaks) = (self.folded, self.previous_bytes, self.peaks);
        copy.folded_ticks = self.folded_ticks;
        true
    }

    fn fold(&mut self, &Record { node, count, levels, ticks }: &Record) {
        self.folded_ticks = ticks;
        let bytes = levels.allocated - self.previous_bytes;
        self.previous_bytes = levels.allocated;
        self.peaks.allocated = self.peaks.allocated.max(levels.allocated);
        self.peaks.active = self.peaks.active.max(levels.active);
        self.peaks.reserved = self.peaks.reserved.max(levels.reserved);
        let growth = FoldedGrowth { bytes, index: Reverse(self.folded), node: node.id.0, count };
        self.folded += 1;
        if self.growths.len() < MAX_FOLDED_NAMES {
            self.growths.push(Reverse(growth));
        } else if let Some(mut smallest) = self.growths.peek_mut()
            && smallest.0 < growth
        {
            *smallest = Reverse(growth);
        }
    }

    /// Returns the number of operators so far.
    pub(super) fn total(&self) -> u64 {
        self.folded + self.chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>()
    }

    /// Returns a peak along with its position among the kept records.
    pub(super) fn locate_peak(&self, peak: &ReachedPeak) -> AllocatedPeak {
        let (least, most) = (peak.least_bytes / MIB, peak.most_bytes / MIB);
        if self.folded > 0 && peak.ticks <= self.folded_ticks {
            return AllocatedPeak::new(least, most, None, false);
        }
        let records = || self.chunks.iter().flatten().enumerate();
        let is_around = |record: &Record| peak.operators.contains(&record.node.id);
        let after = |&(_, record): &(usize, &Record)| record.ticks >= peak.ticks;
        // With several threads, the first operator that ends after the peak need not be the one that contains the peak.
        let around = records().find(|entry| after(entry) && is_around(entry.1));
        let next = || records().find(after).map_or_else(|| records().count(), |(index, _)| index);
        let index = around.map_or_else(next, |(index, _)| index);
        AllocatedPeak::new(least, most, Some(index as u64), around.is_some())
    }

    /// Returns the records with their names. For each marker, `markers` contains the index of the operator that
    /// followed it, counted from the run's first operator; `marks` also contains the markers of earlier iterations.
    pub(super) fn stats(&self, markers: &[(&'static str, u64)], marks: &[Mark]) -> TrackerStats {
        let mut names = OperatorNames::default();
        let kept = self.chunks.iter().map(Vec::len).sum();
        let mut stats = TrackerStats::default();
        let series =
            [&mut stats.memories_allocated, &mut stats.memories_active, &mut stats.memories_reserved];
        series.into_iter().for_each(|series| series.reserve_exact(kept));
        for Record { node, count, levels, .. } in self.chunks.iter().flatten() {
            let operator = names.full_name(node, *count);
            let sample = |bytes| Sample::new(Arc::clone(&operator), to_mib(bytes));
            stats.memories_allocated.push(sample(levels.allocated));
            stats.memories_active.push(sample(levels.active));
            stats.memories_reserved.push(sample(levels.reserved));
        }
        stats.op_index = kept as u64;
        // A marker whose operator was folded has no position among the kept records.
        let shifted =
            markers.iter().filter_map(|&(name, at)| Some((name.to_owned(), at.checked_sub(self.folded)?)));
        stats.markers = shifted.collect();
        let mut shared: HashMap<&str, Arc<str>> = HashMap::new();
        let earlier = marks.iter().filter(|mark| !markers.contains(&(mark.name, mark.op_index)));
        let earlier = earlier.filter_map(|mark| {
            let name = shared.entry(mark.name).or_insert_with(|| mark.name.into());
            Some((Arc::clone(name), mark.op_index.checked_sub(self.folded)?))
        });
        stats.earlier_markers = earlier.collect();
        if self.folded > 0 {
            stats.folded = self.folded_stats(&mut names);
        }
        stats
    }

    fn folded_stats(&self, names: &mut OperatorNames) -> Folded {
        let mut growths: Vec<&FoldedGrowth> = self.growths.iter().map(|Reverse(growth)| growth).collect();
        growths.sort_by_key(|growth| growth.index.0);
        let nodes: HashMap<u32, _> =
            memtrack_recorder::scope::nodes_after(0).map(|node| (node.id.0, node)).collect();
        let with_name = |growth: &&FoldedGrowth| {
            let operator = names.full_name(nodes.get(&growth.node)?, growth.count);
            Some(Growth::new(operator, to_mib(growth.bytes)))
        };
        let mut folded = Folded::default();
        folded.operators = self.folded;
        folded.allocated_mib = to_mib(self.previous_bytes);
        folded.peak_allocated_mib = to_mib(self.peaks.allocated);
        folded.peak_active_mib = to_mib(self.peaks.active);
        folded.peak_reserved_mib = to_mib(self.peaks.reserved);
        folded.growths = growths.iter().filter_map(with_name).collect();
        folded
    }
}

/// Moves the contents of `list` into the memory of `spare` if `spare` has the larger capacity. Afterwards, `spare`
/// contains the memory to be freed.
pub(super) fn move_into_larger<T>(list: &mut VecDeque<T>, spare: &mut VecDeque<T>) {
    if spare.capacity() > list.capacity() {
        std::mem::swap(list, spare);
        list.extend(spare.drain(..));
    }
}

/// Converts bytes to MiB, the tracker's unit.
pub(super) fn to_mib(bytes: i64) -> f64 {
    bytes as f64 / MIB
}

/// A cache of the full names of operators, without the number at the end.
#[derive(Default)]
struct OperatorNames(HashMap<u32, String>);

impl OperatorNames {
    /// Returns the name that `MemoryTracker` gives to an operator that has already run `count` times.
    fn full_name(&mut self, node: &'static ScopeNode, count: u64) -> Arc<str> {
        let name = self.0.entry(node.id.0).or_insert_with(|| {
            let place = node.place();
            match node.kind {
                ScopeKind::Operator => place.operator_name().unwrap_or_default(),
                // This is a whole backward pass or optimizer step. If the code inside it is not annotated, this is the
                // only record.
                _ => format!("{}.{}", place.prefix(), node.name()),
            }
        });
        format!("{name}_{count}").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_scopes::with_scopes;

    const MIB: i64 = 1 << 20;

    #[test]
    fn operator_takes_48_bytes() {
        assert_eq!(size_of::<Record>(), 48);
    }

    fn node(name: &str) -> &'static ScopeNode {
        with_scopes(|| ScopeNode::child(None, ScopeKind::Operator, name))
    }

    /// Creates a series of `operators` operators. `level` returns the number of MiB allocated after the operator with a
    /// given index.
    fn run(keep: u64, operators: u64, level: impl Fn(u64) -> i64) -> Series {
        let mut series = Series::new(keep, 0);
        let node = node("series");
        for count in 0..operators {
            let bytes = level(count) * MIB;
            let mut spare = SpareMemory::default();
            if !series.fits(&spare) {
                spare = SpareMemory::new(series.chunk_count());
            }
            let levels = Levels { allocated: bytes, active: bytes + 1, reserved: 2 * bytes };
            series.push(node, count, levels, 10 * count, &mut spare);
        }
        series
    }

    #[test]
    fn newest_operators_are_kept_and_older_ones_counted() {
        let (keep, operators) = (10_000, 100_000);
        let stats = run(keep, operators, |count| count as i64).stats(&[], &[]);
        let kept = stats.memories_allocated.len() as u64;
        assert!((keep..keep + 2 * CHUNK_RECORDS as u64).contains(&kept), "{kept}");
        assert_eq!((stats.folded.operators + kept, stats.op_index), (operators, kept));
        let first = operators - kept;
        assert_eq!(&*stats.memories_allocated[0].operator, format!(".series_{first}"));
        assert_eq!(stats.memories_allocated[0].mib, first as f64);
        assert_eq!(stats.memories_reserved.last().unwrap().mib, 2.0 * (operators - 1) as f64);
        assert_eq!(
            (stats.folded.allocated_mib, stats.folded.peak_reserved_mib),
            ((first - 1) as f64, 2.0 * (first - 1) as f64)
        );
    }

    #[test]
    fn summary_includes_folded_operators_with_largest_growth() {
        let level = |count: u64| count as i64 + 100 * i64::from(count > 77) + 50 * i64::from(count > 59_998);
        let whole = run(u64::MAX, 60_000, level).stats(&[], &[]);
        let folded = run(1, 60_000, level).stats(&[], &[]);
        assert_eq!((whole.folded.operators, folded.folded.operators > 50_000), (0, true));
        assert_eq!(
            folded.summary_since(20, 0.0).unwrap().operators,
            whole.summary_since(20, 0.0).unwrap().operators
        );
        assert_eq!(&*folded.summary_since(2, 0.0).unwrap().operators[0].operator, ".series_78");
    }

    #[test]
    fn memory_is_constant_once_series_is_full() {
        let series = run(8192, 200_000, |_| 0);
        let capacity: usize = series.chunks.iter().map(Vec::capacity).sum();
        assert!(
            capacity <= 8192 + 2 * CHUNK_RECORDS && series.growths.len() <= MAX_FOLDED_NAMES,
            "{capacity}"
        );
        assert_eq!(series.total(), 200_000);
    }

    #[test]
    fn copy_has_same_statistics() {
        let series = run(8192, 50_000, |count| (count as i64 * 7919) % 1000);
        let mut copy = Series::new(1, 0);
        assert!(!series.copy_into(&mut copy));
        copy.reserve_chunks(series.chunk_count() + 2);
        assert!(series.copy_into(&mut copy));
        assert_eq!(copy.stats(&[("fw_start", 49_000)], &[]), series.stats(&[("fw_start", 49_000)], &[]));
    }

    #[test]
    fn markers_of_folded_operators_are_dropped_and_others_keep_their_operators() {
        let series = run(4096, 50_000, |_| 0);
        let stats = series.stats(&[("fw_start", 3), ("fw_bw_boundary", 49_999)], &[]);
        assert_eq!(stats.markers, [("fw_bw_boundary".to_owned(), stats.op_index - 1)]);
    }

    fn mark(name: &'static str, iteration: u64, op_index: u64) -> Mark {
        Mark { name, iteration, op_index }
    }

    #[test]
    fn markers_of_earlier_iterations_are_kept() {
        let series = run(u64::MAX, 1000, |_| 0);
        let marks: Vec<Mark> =
            (0..10).flat_map(|i| [mark("fw_start", i, 100 * i), mark("end", i, 100 * i + 50)]).collect();
        let stats = series.stats(&[("fw_start", 900), ("end", 950)], &marks);
        assert_eq!(stats.markers, [("fw_start".to_owned(), 900), ("end".to_owned(), 950)]);
        let earlier: Vec<u64> = stats.earlier_markers.iter().map(|marker| marker.1).collect();
        assert_eq!(earlier, (0..18).map(|at| 50 * at).collect::<Vec<u64>>());
    }

    #[test]
    fn peak_lies_in_running_operator_or_before_next_to_end() {
        let series = run(u64::MAX, 100, |_| 0);
        let reached = |ticks, operators: &[_]| {
            let mut peak = ReachedPeak::at(3.0 * MIB as f64, 4.0 * MIB as f64, ticks);
            peak.operators = operators.to_vec();
            series.locate_peak(&peak)
        };
        let id = node("series").id;
        assert_eq!(reached(75, &[id]), AllocatedPeak::new(3.0, 4.0, Some(8), true));
        assert_eq!(reached(75, &[]), AllocatedPeak::new(3.0, 4.0, Some(8), false));
        assert_eq!(reached(5000, &[id]).op_index, Some(100));
        let folded = run(1, 60_000, |_| 0);
        assert_eq!(folded.locate_peak(&ReachedPeak::at(1.0, 1.0, 10)).op_index, None);
    }
}

//! The memory that each of the program's own intervals left behind: the blocks that were allocated in it and never
//! freed.

use super::Amount;
use super::alive::BlockSums;
use crate::top::TopRow;
use memtrack_blocks::estimate::Precision;
use memtrack_blocks::lifetimes::Lifetime;
#[cfg(feature = "schema")]
use memtrack_model::answer::NameAnswer;
use memtrack_model::answer::serialize_as_name;
use memtrack_model::snapshot::{Since, Snapshot};
use serde::Serialize;
use std::collections::HashMap;

/// The maximum number of groups to list per generation.
const MAX_SHARES: usize = 3;

/// The memory that one group left behind in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Share {
    /// The group's name.
    #[serde(flatten, serialize_with = "serialize_as_name")]
    #[cfg_attr(feature = "schema", schemars(with = "NameAnswer"))]
    pub name: String,
    /// The memory that the group left behind in the interval.
    pub left: Amount,
}

/// One of the program's own intervals, and the memory that it left behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Generation {
    /// The number of the interval; 0 is the time before the first mark.
    pub number: usize,
    /// The start of the interval in seconds; null for the time before the first mark or if the file does not record
    /// times.
    pub from_seconds: Option<f64>,
    /// The end of the interval in seconds; null for the time after the last mark or if the file does not record times.
    pub to_seconds: Option<f64>,
    /// The memory that was allocated in the interval.
    pub allocated: Amount,
    /// The part of the memory in `allocated` that was live when the last interval ended. For the time after the last
    /// interval, this is the part that was never freed.
    pub left: Amount,
    /// The groups that left the most memory behind in the interval, at most three.
    #[serde(rename = "groups")]
    pub shares: Vec<Share>,
    /// The total number of groups that left any memory behind in the interval.
    #[serde(rename = "groups_in_all")]
    pub shares_in_all: usize,
}

/// The memory that the program's own intervals left behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Generations {
    /// The name of the intervals.
    pub name: String,
    /// The number of the program's marks that separate the intervals.
    pub marks: usize,
    /// The origin from which the seconds are counted: `start` or `first_event`.
    #[serde(rename = "seconds_since")]
    pub since: Since,
    /// The number of intervals between two marks that left any memory behind.
    pub leaving: usize,
    /// The median over all intervals between two marks of the bytes that an interval left behind.
    pub median_left_bytes: u64,
    /// The intervals that left the most memory behind, in chronological order.
    pub rows: Vec<Generation>,
    /// The total number of intervals, including the times before the first mark and after the last.
    pub rows_in_all: usize,
}

/// Accumulates the surviving memory of each interval as blocks are added.
pub(super) struct Survivors<'a> {
    marks: &'a [u64],
    allocated: Vec<BlockSums>,
    left: Vec<BlockSums>,
    by_group: HashMap<(u32, u32), BlockSums, foldhash::fast::RandomState>,
    /// For each group, the memory that the last whole interval left behind and that was freed later. It counts as left
    /// behind only if the group also left memory behind in the interval before the last. Otherwise, a further interval
    /// would probably have freed it.
    freed_after_last: HashMap<u32, BlockSums, foldhash::fast::RandomState>,
}

impl<'a> Survivors<'a> {
    pub(super) fn new(marks: &'a [u64]) -> Self {
        let none = vec![BlockSums::default(); marks.len() + 1];
        Self {
            marks,
            allocated: none.clone(),
            left: none,
            by_group: HashMap::default(),
            freed_after_last: HashMap::default(),
        }
    }

    /// Adds a block that was allocated at `ticks`. `is_left` is true if the block was live when the last interval ended
    /// or was never freed.
    pub(super) fn add_allocated(&mut self, ticks: u64, block: &Lifetime, group: u32, is_left: bool) {
        let number = self.marks.partition_point(|&mark| mark < ticks);
        self.allocated[number].add(block.size_bytes, block.blocks);
        if !is_left {
            return;
        }
        if block.to.is_some() && number + 1 == self.marks.len() && number > 1 {
            self.freed_after_last.entry(group).or_default().add(block.size_bytes, block.blocks);
        } else {
            self.left[number].add(block.size_bytes, block.blocks);
            self.by_group.entry((number as u32, group)).or_default().add(block.size_bytes, block.blocks);
        }
    }
}

impl Generations {
    pub(super) fn of(
        survivors: Survivors<'_>,
        name: String,
        snapshot: &Snapshot,
        groups: &[TopRow],
        precision: &Precision,
        limit: usize,
        has_times: bool,
    ) -> Self {
        let Survivors { marks, allocated, mut left, mut by_group, freed_after_last } = survivors;
        let last = marks.len().saturating_sub(1) as u32;
        for (group, freed) in freed_after_last {
            if by_group.contains_key(&(last - 1, group)) {
                left[last as usize] = left[last as usize].with(&freed);
                let all = by_group.entry((last, group)).or_default();
                *all = all.with(&freed);
            }
        }
        let mut shares: HashMap<usize, Vec<Share>> = HashMap::new();
        for ((number, group), left) in by_group {
            let name = groups.get(group as usize).map_or_else(String::new, |row| row.name.clone());
            let share = Share { name, left: left.amount(precision) };
            shares.entry(number as usize).or_default().push(share);
        }
        let seconds = |ticks: &u64| snapshot.clock.seconds_since_start(*ticks);
        let row = |(number, (allocated, left)): (usize, (&BlockSums, &BlockSums))| {
            let mut shares = shares.remove(&number).unwrap_or_default();
            let shares_in_all = shares.len();
            shares.sort_by(|a, b| b.left.bytes.cmp(&a.left.bytes).then_with(|| a.name.cmp(&b.name)));
            shares.truncate(MAX_SHARES);
            Generation {
                number,
                from_seconds: number
                    .checked_sub(1)
                    .and_then(|before| marks.get(before))
                    .filter(|_| has_times)
                    .map(seconds),
                to_seconds: marks.get(number).filter(|_| has_times).map(seconds),
                allocated: allocated.amount(precision),
                left: left.amount(precision),
                shares,
                shares_in_all,
            }
        };
        let mut rows: Vec<Generation> = allocated.iter().zip(&left).enumerate().map(row).collect();
        // The times before the first mark and after the last mark are not whole intervals.
        let whole = &rows[1..rows.len().saturating_sub(1).max(1)];
        let leaving = whole.iter().filter(|row| row.left.blocks > 0).count();
        let mut all: Vec<u64> = whole.iter().map(|row| row.left.bytes).collect();
        all.sort_unstable();
        let median_left_bytes = all.get(all.len() / 2).copied().unwrap_or(0);
        let rows_in_all = rows.len();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.left.bytes), row.number));
        rows.truncate(limit);
        rows.sort_by_key(|row| row.number);
        Self {
            name,
            marks: marks.len(),
            since: snapshot.seconds_since(),
            leaving,
            median_left_bytes,
            rows,
            rows_in_all,
        }
    }
}

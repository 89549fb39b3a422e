//! The age and growth of the memory that is live at a given moment. They distinguish a leak from memory that is meant
//! to stay and from temporary memory. Ages and growth are either exact, or bounds, or missing.
//!
//! **Why compare with the halfway point instead of counting the memory allocated since then?** Most of that memory
//! would be allocated and freed in every step. If the oldest parts of a recording are missing, growth is not reported,
//! because the halfway point may lie in them. Ages are reported even then.

use memtrack_blocks::change::{Amount, Change};
use memtrack_blocks::estimate::{Estimate, Precision, Sum};
use memtrack_blocks::lifetimes::Lifetime;
use memtrack_blocks::moment::Moment;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::times::human_age;
use serde::Serialize;

/// The time since an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Exactly this many nanoseconds.
    Exact(u64),
    /// At least this many nanoseconds. Either the block is older than the trace, or the age is that of a group's oldest
    /// block, and an even older one may have no sample or no known time.
    AtLeast(u64),
}

impl Age {
    /// Returns the age, or the lower bound on it, in nanoseconds.
    pub const fn ns(self) -> u64 {
        match self {
            Self::Exact(ns) | Self::AtLeast(ns) => ns,
        }
    }

    /// Formats the age, as in `12.3 s` or `> 12.3 s`.
    pub fn text(self) -> String {
        match self {
            Self::Exact(ns) => human_age(ns),
            Self::AtLeast(ns) => format!("> {}", human_age(ns)),
        }
    }
}

/// The age of a row's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowAge {
    /// The age of the oldest block.
    pub oldest: Age,
    /// The median age, so half of the bytes are at least this old; `None` if blocks were sampled or the times of some
    /// allocations are unknown.
    pub median: Option<Age>,
}

/// The growth of a row in the second half of the time up to a given moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RowGrowth {
    /// The memory that was live at the halfway point only, and the memory that is live at the given moment only. Blocks
    /// that are live at both are ignored and add no error.
    pub(super) change: Change,
}

impl RowGrowth {
    /// Returns the row's bytes at the reported moment minus its bytes at the halfway point; negative if the row shrank.
    pub fn bytes(&self) -> i64 {
        self.change.clamped_growth()
    }

    /// Formats the growth, as in `+1.2 MiB`, `−12.0 KiB ± 4 %` or `±0 B`.
    pub fn text(&self) -> String {
        self.change.format_bytes()
    }
}

/// The times that ages and growth refer to, in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    snapshot: &'a Snapshot,
    moment: u64,
    /// The time of the device's first event. Blocks without a known time of allocation are older than it. `None` if the
    /// oldest parts of a recording are missing, because this does not hold then: the first remaining part repeats the
    /// allocations of the blocks that were live when it started, with their times, and a block without a time may be
    /// younger than these.
    begin: Option<u64>,
    /// The halfway point, and the last row at or before it; `None` if the oldest parts are missing, because the halfway
    /// point may lie in them.
    middle: Option<(u64, usize)>,
}

impl<'a> Span<'a> {
    /// Creates the span from a device's first event to the given moment, which is right after the event in `row`.
    /// Returns `None` if no time passes between them or the file does not record times.
    pub(super) fn of(
        snapshot: &'a Snapshot,
        device: DeviceId,
        at: Moment,
        row: Option<usize>,
    ) -> Option<Self> {
        if !snapshot.has_times() {
            return None;
        }
        let ticks = &snapshot.events.ticks;
        let begin = snapshot.events.rows_of(device).map(|row| ticks[row]).min()?;
        let moment = match at {
            // Use the last event of any device, because this device may have had none for a long time.
            Moment::End => *ticks.iter().max()?,
            _ => *ticks.get(row?)?,
        };
        // A recording in PyTorch's format does not state why events are missing, so assume that its oldest parts are.
        let dropped = || snapshot.devices.iter().any(|row| row.device == device && row.dropped > 0);
        if snapshot.meta.earlier_parts > 0 || (snapshot.pytorch.is_some() && dropped()) {
            return Some(Self { snapshot, moment, begin: None, middle: None });
        }
        if moment <= begin {
            return None;
        }
        let halfway = begin + (moment - begin) / 2;
        let middle = snapshot.events.rows_of(device).filter(|&row| ticks[row] <= halfway).last()?;
        Some(Self { snapshot, moment, begin: Some(begin), middle: Some((halfway, middle)) })
    }

    /// Returns whether a block was live at the halfway point.
    pub(super) fn was_live_halfway(&self, lifetime: &Lifetime) -> bool {
        self.middle.is_some_and(|(_, row)| lifetime.is_live_after(Some(row)))
    }

    /// Returns the halfway point in seconds since the start.
    pub(super) fn middle_seconds(&self) -> Option<f64> {
        self.middle.map(|(halfway, _)| self.snapshot.clock.seconds_since_start(halfway))
    }

    /// Returns the age of a block that was allocated at the ticks `born`, or before the trace if `born` is `None`.
    fn block_age(&self, born: Option<u64>) -> Option<Age> {
        let clock = &self.snapshot.clock;
        let since = |ticks| clock.time_ns(self.moment).saturating_sub(clock.time_ns(ticks));
        match born {
            Some(born) => Some(Age::Exact(since(born))),
            None => self.begin.map(|begin| Age::AtLeast(since(begin))),
        }
    }

    /// Returns the ticks of a block's allocation. For a block that is older than the trace, returns the time in the
    /// table of live blocks, or `None` if there is none.
    fn allocation_ticks(&self, lifetime: &Lifetime) -> Option<u64> {
        match (lifetime.from, lifetime.block) {
            (Some(row), _) => Some(self.snapshot.events.ticks[row]),
            // The table of live blocks has times only in memtrack's own files.
            (None, Some(block)) if self.snapshot.pytorch.is_none() => {
                self.snapshot.blocks.get(block as usize).map(|block| block.ticks).filter(|&ticks| ticks > 0)
            }
            _ => None,
        }
    }
}

/// The blocks from which the ages and growth of one row are computed.
#[derive(Default)]
pub(super) struct TrendSums {
    /// The ticks of the blocks' allocations (`None` means before the trace), with the blocks' bytes.
    born: Vec<(Option<u64>, u64)>,
    added: (u64, Sum),
    freed: (u64, Sum),
}

impl TrendSums {
    /// Adds a block that is live at the given moment.
    pub(super) fn add_live(&mut self, span: &Span<'_>, lifetime: &Lifetime) {
        self.born.push((span.allocation_ticks(lifetime), lifetime.bytes));
        if !span.was_live_halfway(lifetime) {
            add_lifetime(&mut self.added, lifetime);
        }
    }

    /// Adds a block that was live at the halfway point but is not live at the given moment.
    pub(super) fn add_freed(&mut self, lifetime: &Lifetime) {
        add_lifetime(&mut self.freed, lifetime);
    }

    /// Returns the growth, or `None` if the memory that was live at the halfway point is unknown.
    pub(super) fn growth(&self, span: &Span<'_>, precision: &Precision) -> Option<RowGrowth> {
        let amount = |(bytes, sum): &(u64, Sum)| Amount::new(*bytes, precision.bytes(sum));
        let change = || Change { before: amount(&self.freed), after: amount(&self.added) };
        span.middle.map(|_| RowGrowth { change: change() })
    }

    /// Returns the ages, or `None` if no age is known. `estimated` must be true if some of the blocks are samples.
    pub(super) fn block_age(&mut self, span: &Span<'_>, estimated: bool) -> Option<RowAge> {
        // Blocks that are older than the trace come first.
        self.born.sort_unstable();
        let is_known = |&&(born, _): &&(Option<u64>, u64)| born.is_some() || span.begin.is_some();
        let &(first, _) = self.born.iter().find(is_known)?;
        let oldest = span.block_age(first)?;
        // If blocks are samples or some times are unknown, there may be an older block, so the age is only a lower
        // bound.
        if estimated || !self.born.first().as_ref().is_some_and(is_known) {
            return Some(RowAge { oldest: Age::AtLeast(oldest.ns()), median: None });
        }
        let all: u128 = self.born.iter().map(|&(_, bytes)| u128::from(bytes)).sum();
        let mut until = 0u128;
        let median = self.born.iter().find(|&&(_, bytes)| {
            until += u128::from(bytes);
            until * 2 >= all
        });
        Some(RowAge { oldest, median: median.and_then(|&(born, _)| span.block_age(born)) })
    }
}

fn add_lifetime((bytes, sum): &mut (u64, Sum), lifetime: &Lifetime) {
    *bytes = bytes.saturating_add(lifetime.bytes);
    sum.add(lifetime.size_bytes as f64, lifetime.blocks);
}

/// The age of a row's blocks, and the row's growth, at the moment [`TopOptions::at`](super::TopOptions::at).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Trend {
    /// The age of the row's blocks. `None` if there is no such moment, if no time passed between the device's first event and
    /// that moment, or if no age is known.
    pub age: Option<RowAge>,
    /// The growth in bytes from halfway between the device's first event and that moment until that moment. `None` if there is
    /// no such moment or if the memory that was live halfway is unknown.
    pub growth: Option<RowGrowth>,
}

memtrack_model::serialize_as!(Trend => TrendForm: TrendForm::of);

/// The ages and growth of a row at a given moment; null if they are unknown or all allocations are ranked.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct TrendForm {
    /// The age of the row's oldest block at the given moment, in ns; null if it is unknown or only a lower bound is
    /// known.
    oldest_age_ns: Option<u64>,
    /// A lower bound on the age of the row's oldest block at the given moment, in ns; null if unknown.
    oldest_age_at_least_ns: Option<u64>,
    /// The median age of the row's bytes at the given moment, in ns. At least half of the bytes are at least this old.
    /// Null if it is unknown or only a lower bound is known.
    median_age_ns: Option<u64>,
    /// A lower bound on the median age of the row's bytes at the given moment, in ns; null if unknown.
    median_age_at_least_ns: Option<u64>,
    /// The row's bytes at the given moment minus its bytes halfway between the device's first event and that moment;
    /// negative if the row shrank, and null if the growth is unknown.
    growth_bytes: Option<i64>,
    /// The margin of error of the growth; null if the growth is exact.
    growth_bytes_error: Option<Estimate>,
}

impl TrendForm {
    fn of(trend: &Trend) -> Self {
        let exact = |age: Option<Age>| match age {
            Some(Age::Exact(ns)) => Some(ns),
            _ => None,
        };
        let (oldest, median) = (trend.age.map(|age| age.oldest), trend.age.and_then(|age| age.median));
        let inexact = trend.growth.filter(|growth| !growth.change.is_exact());
        Self {
            oldest_age_ns: exact(oldest),
            oldest_age_at_least_ns: oldest.map(Age::ns),
            median_age_ns: exact(median),
            median_age_at_least_ns: median.map(Age::ns),
            growth_bytes: trend.growth.map(|growth| growth.bytes()),
            growth_bytes_error: inexact.map(|growth| growth.change.estimate()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_without_exact_time_are_lower_bounds() {
        assert_eq!(Age::AtLeast(1500).text(), "> 1.5 µs");
    }
}

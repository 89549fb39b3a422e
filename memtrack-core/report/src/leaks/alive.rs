//! Tracks the memory of each group that stayed through the periods, and decides which groups leak. Recordings and
//! series of snapshots share this code.

use super::ages::Ages;
use super::growth::{Amounts, judge_growth};
use super::{Amount, FreedLate, Leak, LeakOptions};
use crate::top::{By, TopRow};
use memtrack_blocks::estimate::{Estimate, Precision, Sum};
use memtrack_frames::ownership::Owners;

/// The minimum share of a group's growth that must be freed in the last moments for these frees to be attributed to the
/// program's shutdown.
const MIN_FREED_LATE_SHARE: f64 = 0.5;

/// Running sums of bytes and blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockSums {
    bytes: Sum,
    blocks: Sum,
}

impl BlockSums {
    pub(super) fn add(&mut self, size_bytes: u64, weight: f64) {
        self.bytes.add(size_bytes as f64, weight);
        self.blocks.add(1.0, weight);
    }

    pub(super) fn with(self, other: &Self) -> Self {
        Self { bytes: self.bytes.with(&other.bytes), blocks: self.blocks.with(&other.blocks) }
    }

    fn amounts(&self) -> Amounts {
        [self.bytes.value(), self.blocks.value()]
    }

    pub(super) fn amount(&self, precision: &Precision) -> Amount {
        Amount {
            bytes: self.bytes.value().round() as u64,
            blocks: self.blocks.value().round() as u64,
            bytes_error: precision.bytes(&self.bytes),
            blocks_error: precision.blocks(&self.blocks),
        }
    }
}

/// The periods over which groups are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedPeriods {
    /// The length of a period in seconds.
    pub(super) seconds: f64,
    /// The minimum number of periods over which a leak must grow.
    pub(super) least: usize,
    /// The ticks at which the last period ends.
    pub(super) end: u64,
    /// The length of one tick; `None` if the file does not record times.
    pub(super) seconds_per_tick: Option<f64>,
    /// Whether each period lasts from one snapshot to the next. A group's memory is then known at one more moment than there
    /// are periods.
    pub(super) between_snapshots: bool,
}

/// A group to be judged.
pub(super) struct Group {
    pub(super) row: TopRow,
    /// Blocks that were allocated in the judged periods and were never freed, or only after the last step.
    pub(super) never_freed: BlockSums,
    /// The part of `never_freed` that was freed after the last step.
    pub(super) freed_later: BlockSums,
    /// Blocks that are still live at the end. They are reported for groups that do not leak.
    pub(super) left: BlockSums,
    pub(super) stays: Option<(StayedBlocks, Option<Ages>)>,
}

/// The blocks of one group that stayed through each period, and those that left, i.e. were freed after they had stayed.
/// [`growth`](super::growth) defines both terms.
#[derive(Clone, Debug)]
pub(super) struct StayedBlocks {
    stayed: Vec<BlockSums>,
    left: Vec<BlockSums>,
    /// For each window of [`LateWindows`], the blocks that were freed in the last moments, and the ticks of the first
    /// of those frees.
    late: [(BlockSums, u64); LateWindows::WINDOW_COUNT],
}

/// The possible starts of a program's shutdown, in ticks. A shutdown starts in the last period or, because large
/// programs take long to shut down, in the one before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateWindows([u64; Self::WINDOW_COUNT]);

impl LateWindows {
    const WINDOW_COUNT: usize = 2;

    /// Returns the windows for periods that end at `ends`; the first window starts no earlier than `latest`.
    pub(super) fn of(ends: &[u64], latest: u64) -> Self {
        let after = |periods: usize| ends.len().checked_sub(1 + periods).map_or(0, |period| ends[period] + 1);
        Self([latest.max(after(1)), after(2)])
    }
}

impl StayedBlocks {
    pub(super) fn new(periods: usize) -> Self {
        let none = vec![BlockSums::default(); periods];
        Self {
            stayed: none.clone(),
            left: none,
            late: [(BlockSums::default(), u64::MAX); LateWindows::WINDOW_COUNT],
        }
    }

    /// Adds a block that stayed from period `from` on and left in period `to`, if there is such a period.
    pub(super) fn add(&mut self, from: usize, to: usize, size_bytes: u64, weight: f64) {
        self.stayed[from].add(size_bytes, weight);
        if let Some(left) = self.left.get_mut(to) {
            left.add(size_bytes, weight);
        }
    }

    /// Adds the free of a block that stayed. `born` and `freed` are the ticks of its allocation (0 if not recorded) and
    /// of its free.
    pub(super) fn add_freed(
        &mut self,
        from: LateWindows,
        [born, freed]: [u64; 2],
        size_bytes: u64,
        weight: f64,
    ) {
        for ((late, late_from), window) in self.late.iter_mut().zip(from.0) {
            if born < window && freed >= window {
                late.add(size_bytes, weight);
                *late_from = freed.min(*late_from);
            }
        }
    }

    /// Returns the group's late frees if it grew like a leak up to the last period and was freed in the last moments.
    fn find_freed_late(
        &self,
        row: &TopRow,
        periods: &JudgedPeriods,
        precision: &Precision,
    ) -> Option<FreedLate> {
        (1..)
            .zip(&self.late)
            .find_map(|(window, late)| self.freed_in_window(late, window, row, periods, precision))
    }

    /// Does the same as [`Self::find_freed_late`], but only for frees in the last `window` periods.
    fn freed_in_window(
        &self,
        (late, late_from): &(BlockSums, u64),
        window: usize,
        row: &TopRow,
        periods: &JudgedPeriods,
        precision: &Precision,
    ) -> Option<FreedLate> {
        let all = self.stayed.len().checked_sub(window).filter(|_| late.blocks.value() > 0.0)?;
        let amounts = |all: &[BlockSums]| all.iter().map(BlockSums::amounts).collect::<Vec<_>>();
        let (stayed, left) = (amounts(&self.stayed[..all]), amounts(&self.left[..all]));
        let steady = judge_growth(&stayed, &left, periods.least - window, false)?;
        let grown: f64 = (steady.from..all).map(|period| stayed[period][0] - left[period][0]).sum();
        (late.bytes.value() >= MIN_FREED_LATE_SHARE * grown).then(|| FreedLate {
            name: row.name.clone(),
            place: row.name.clone(),
            freed: late.amount(precision),
            grew: steady.grew,
            periods: steady.periods,
            last_seconds: periods
                .seconds_per_tick
                .map(|per_tick| periods.end.saturating_sub(*late_from) as f64 * per_tick),
        })
    }

    /// Returns whether the group might be a leak. Ages are computed only for such groups.
    pub(super) fn may_leak(&self) -> bool {
        self.stayed.iter().skip(1).filter(|stayed| stayed.blocks.value() > 0.0).count() > 1
    }

    /// Returns the leak, or `None` if the group does not leak.
    pub(super) fn to_leak(
        &self,
        row: TopRow,
        freed_later: &BlockSums,
        ages: Option<&Ages>,
        periods: &JudgedPeriods,
        precision: &Precision,
    ) -> Option<Leak> {
        let amounts = |all: &[BlockSums]| all.iter().map(BlockSums::amounts).collect::<Vec<_>>();
        let (stayed, left) = (amounts(&self.stayed), amounts(&self.left));
        let age = ages.and_then(Ages::age);
        // If blocks usually live as long as a period, a few blocks that are far older are no evidence of a leak.
        let is_old = age.is_some_and(|age| age.far_older > 2 && age.usual_seconds < periods.seconds);
        let steady = judge_growth(&stayed, &left, periods.least, is_old)?;
        let sum = |all: &[BlockSums]| {
            all[steady.from..].iter().fold(BlockSums::default(), |sum, one| sum.with(one))
        };
        let growth =
            precision.bytes(&sum(&self.stayed).bytes).minus(&precision.bytes(&sum(&self.left).bytes));
        if growth.low <= 0.0 {
            return None;
        }
        let mut held = 0.0;
        let held_bytes = stayed.iter().zip(&left).map(|(stayed, left)| {
            held += stayed[0] - left[0];
            held.max(0.0).round() as u64
        });
        let held_bytes: Vec<u64> = held_bytes.collect();
        let (mut arrived, mut freed) = (Sum::default(), Sum::default());
        let held_errors = self.stayed.iter().zip(&self.left).map(|(stayed, left)| {
            (arrived, freed) = (arrived.with(&stayed.bytes), freed.with(&left.bytes));
            precision.bytes(&arrived).minus(&precision.bytes(&freed)).at_least(0.0)
        });
        let held_errors: Vec<Estimate> = held_errors.collect();
        let shown = steady.from - usize::from(periods.between_snapshots)..;
        let each = |bytes: f64| bytes / steady.periods as f64;
        Some(Leak {
            row,
            freed_later: freed_later.amount(precision),
            grew: steady.grew,
            periods: steady.periods,
            each_bytes: Estimate {
                value: each(growth.value),
                standard_error: each(growth.standard_error),
                low: each(growth.low),
                high: each(growth.high),
                bound: each(growth.bound),
                counted: false,
            },
            held_bytes: held_bytes[shown.clone()].to_vec(),
            held_errors: held_errors[shown].to_vec(),
            age,
        })
    }
}

/// The groups that leak, and the memory of the groups that do not.
pub(super) struct JudgedGroups {
    pub(super) leaks: Vec<Leak>,
    pub(super) leaks_in_all: usize,
    pub(super) leaked: BlockSums,
    pub(super) alive: BlockSums,
    pub(super) alive_groups: usize,
    pub(super) freed_late: Vec<FreedLate>,
}

impl JudgedGroups {
    /// Judges all groups.
    pub(super) fn of(
        groups: impl Iterator<Item = Group>,
        periods: &JudgedPeriods,
        precision: &Precision,
        options: &LeakOptions,
    ) -> Self {
        let mut judged = Self {
            leaks: Vec::new(),
            leaks_in_all: 0,
            leaked: BlockSums::default(),
            alive: BlockSums::default(),
            alive_groups: 0,
            freed_late: Vec::new(),
        };
        let mut owners = Owners::new(&options.rules);
        let is_of_stacks = matches!(options.by, By::Line | By::Stack | By::Python);
        let mut own_line = |row: &mut TopRow| {
            if is_of_stacks && row.owned.mine.is_none() && !row.stack.is_empty() {
                row.owned = owners.owner_of(row.stack.iter().map(|line| &line.frame));
            }
        };
        for Group { mut row, never_freed, freed_later, left, stays } in groups {
            let mut late =
                stays.as_ref().and_then(|(stays, _)| stays.find_freed_late(&row, periods, precision));
            if let Some(late) = &mut late {
                own_line(&mut row);
                late.place = super::text::describe_place(&row);
            }
            let leak = stays.and_then(|(stays, ages)| {
                stays.to_leak(row, &freed_later, ages.as_ref(), periods, precision)
            });
            match leak {
                Some(leak) => {
                    judged.leaked = judged.leaked.with(&never_freed);
                    judged.leaks.push(leak);
                }
                None => {
                    judged.freed_late.extend(late);
                    judged.alive = judged.alive.with(&left);
                    judged.alive_groups += usize::from(left.blocks.value() > 0.0);
                }
            }
        }
        judged.leaks.sort_by(|a, b| {
            let order = b.row.allocated_bytes.cmp(&a.row.allocated_bytes);
            let order = order.then_with(|| b.row.count.cmp(&a.row.count));
            order.then_with(|| a.row.name.cmp(&b.row.name))
        });
        judged.freed_late.sort_by(|a, b| {
            let order = b.freed.bytes.cmp(&a.freed.bytes);
            order.then_with(|| a.name.cmp(&b.name))
        });
        judged.leaks_in_all = judged.leaks.len();
        judged.leaks.truncate(options.limit);
        judged.leaks.iter_mut().for_each(|leak| own_line(&mut leak.row));
        judged
    }
}

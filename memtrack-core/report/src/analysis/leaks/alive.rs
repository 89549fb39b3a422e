//! The part of each group that stayed over the periods, and the decision which groups leak: shared by
//! recordings and series of snapshots.

use super::ages::Ages;
use super::growth::{Amounts, steady};
use super::{Amount, FreedLate, Leak, LeakOptions};
use crate::analysis::estimate::{Estimate, Precision, Sum};
use crate::analysis::ownership::Owners;
use crate::analysis::top::{By, TopRow};

/// The share of the growth that is freed in the last moments, if they are a program's end.
const MOST_OF_IT: f64 = 0.5;

/// Running sums of bytes and blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Both {
    bytes: Sum,
    blocks: Sum,
}

impl Both {
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
pub(super) struct Measure {
    /// The length of a period, in seconds.
    pub(super) seconds: f64,
    /// The number of periods in which a leak must grow.
    pub(super) least: usize,
    /// The ticks of the end, and the length of one tick; none if the file does not contain times.
    pub(super) end: u64,
    pub(super) seconds_per_tick: Option<f64>,
    /// Whether the periods lie between moments, and the state of a group is known at each of those: one more than there
    /// are periods.
    pub(super) are_between: bool,
}

/// A group before the decision.
pub(super) struct Group {
    pub(super) row: TopRow,
    /// Blocks that were allocated in the time judged and never freed, or only after the last step.
    pub(super) never_freed: Both,
    /// The part of them that was freed after the last step.
    pub(super) freed_later: Both,
    /// Blocks left at the end, whenever they were allocated, as far as reported for groups that are no leak.
    pub(super) left: Both,
    pub(super) stays: Option<(Stays, Option<Ages>)>,
}

/// Blocks of one group that stayed and that left in each period.
#[derive(Clone, Debug)]
pub(super) struct Stays {
    stayed: Vec<Both>,
    left: Vec<Both>,
    /// Blocks that were freed in the last moments, in each of the windows of [`LateFrom`], and the ticks at
    /// which those began.
    late: [(Both, u64); LateFrom::WINDOWS],
}

/// The possible begin of a program's end: in the last period, or in the one before, because the end of a large
/// program takes its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateFrom([u64; Self::WINDOWS]);

impl LateFrom {
    const WINDOWS: usize = 2;

    /// Returns the windows of periods with these `ends`; the first is no longer than the ticks from `latest` on.
    pub(super) fn of(ends: &[u64], latest: u64) -> Self {
        let after = |periods: usize| ends.len().checked_sub(1 + periods).map_or(0, |period| ends[period] + 1);
        Self([latest.max(after(1)), after(2)])
    }
}

impl Stays {
    pub(super) fn new(periods: usize) -> Self {
        let none = vec![Both::default(); periods];
        Self { stayed: none.clone(), left: none, late: [(Both::default(), u64::MAX); LateFrom::WINDOWS] }
    }

    /// Adds a block that stayed from one period on, and left in another if that is one of them.
    pub(super) fn add(&mut self, from: usize, to: usize, size_bytes: u64, weight: f64) {
        self.stayed[from].add(size_bytes, weight);
        if let Some(left) = self.left.get_mut(to) {
            left.add(size_bytes, weight);
        }
    }

    /// Adds one of those blocks that was allocated at the first of these ticks, if that was recorded, and freed
    /// at the second.
    pub(super) fn add_freed(
        &mut self,
        from: LateFrom,
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

    /// Returns whether the group grew like a leak up to the last period, and was freed in the last moments.
    fn freed_late(&self, row: &TopRow, periods: &Measure, precision: &Precision) -> Option<FreedLate> {
        (1..).zip(&self.late).find_map(|(window, late)| self.freed_in(late, window, row, periods, precision))
    }

    /// Returns the same, for blocks freed in that many of the last periods.
    fn freed_in(
        &self,
        (late, late_from): &(Both, u64),
        window: usize,
        row: &TopRow,
        periods: &Measure,
        precision: &Precision,
    ) -> Option<FreedLate> {
        let all = self.stayed.len().checked_sub(window).filter(|_| late.blocks.value() > 0.0)?;
        let amounts = |all: &[Both]| all.iter().map(Both::amounts).collect::<Vec<_>>();
        let (stayed, left) = (amounts(&self.stayed[..all]), amounts(&self.left[..all]));
        let steady = steady(&stayed, &left, periods.least - window, false)?;
        let grown: f64 = (steady.from..all).map(|period| stayed[period][0] - left[period][0]).sum();
        (late.bytes.value() >= MOST_OF_IT * grown).then(|| FreedLate {
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

    /// Returns whether the group may be a leak, so that its ages are worth computing.
    pub(super) fn may_leak(&self) -> bool {
        self.stayed.iter().skip(1).filter(|stayed| stayed.blocks.value() > 0.0).count() > 1
    }

    /// Returns the leak, if the group is one.
    pub(super) fn leak(
        &self,
        row: TopRow,
        freed_later: &Both,
        ages: Option<&Ages>,
        periods: &Measure,
        precision: &Precision,
    ) -> Option<Leak> {
        let amounts = |all: &[Both]| all.iter().map(Both::amounts).collect::<Vec<_>>();
        let (stayed, left) = (amounts(&self.stayed), amounts(&self.left));
        let age = ages.and_then(Ages::age);
        // If blocks usually live as long as a period, some that do are no evidence.
        let is_old = age.is_some_and(|age| age.far_older > 2 && age.usual_seconds < periods.seconds);
        let steady = steady(&stayed, &left, periods.least, is_old)?;
        let sum = |all: &[Both]| all[steady.from..].iter().fold(Both::default(), |sum, one| sum.with(one));
        let growth = precision.bytes(&sum(&self.stayed).bytes).less(&precision.bytes(&sum(&self.left).bytes));
        if growth.low <= 0.0 {
            return None;
        }
        let mut held = 0.0;
        let held_bytes = stayed.iter().zip(&left).map(|(stayed, left)| {
            held += stayed[0] - left[0];
            held.max(0.0).round() as u64
        });
        let held_bytes: Vec<u64> = held_bytes.collect();
        let (mut came, mut went) = (Sum::default(), Sum::default());
        let held_errors = self.stayed.iter().zip(&self.left).map(|(stayed, left)| {
            (came, went) = (came.with(&stayed.bytes), went.with(&left.bytes));
            precision.bytes(&came).less(&precision.bytes(&went)).at_least(0.0)
        });
        let held_errors: Vec<Estimate> = held_errors.collect();
        let shown = steady.from - usize::from(periods.are_between)..;
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

/// The leaks among groups, and the memory of the others.
pub(super) struct Sorted {
    pub(super) leaks: Vec<Leak>,
    pub(super) leaks_in_all: usize,
    pub(super) leaked: Both,
    pub(super) alive: Both,
    pub(super) alive_groups: usize,
    pub(super) freed_late: Vec<FreedLate>,
}

impl Sorted {
    /// Judges all groups.
    pub(super) fn of(
        groups: impl Iterator<Item = Group>,
        periods: &Measure,
        precision: &Precision,
        options: &LeakOptions,
    ) -> Self {
        let mut sorted = Self {
            leaks: Vec::new(),
            leaks_in_all: 0,
            leaked: Both::default(),
            alive: Both::default(),
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
            let mut late = stays.as_ref().and_then(|(stays, _)| stays.freed_late(&row, periods, precision));
            if let Some(late) = &mut late {
                own_line(&mut row);
                late.place = super::text::place_of(&row);
            }
            let leak = stays
                .and_then(|(stays, ages)| stays.leak(row, &freed_later, ages.as_ref(), periods, precision));
            match leak {
                Some(leak) => {
                    sorted.leaked = sorted.leaked.with(&never_freed);
                    sorted.leaks.push(leak);
                }
                None => {
                    sorted.freed_late.extend(late);
                    sorted.alive = sorted.alive.with(&left);
                    sorted.alive_groups += usize::from(left.blocks.value() > 0.0);
                }
            }
        }
        sorted.leaks.sort_by(|a, b| {
            let order = b.row.allocated_bytes.cmp(&a.row.allocated_bytes);
            let order = order.then_with(|| b.row.count.cmp(&a.row.count));
            order.then_with(|| a.row.name.cmp(&b.row.name))
        });
        sorted.freed_late.sort_by(|a, b| {
            let order = b.freed.bytes.cmp(&a.freed.bytes);
            order.then_with(|| a.name.cmp(&b.name))
        });
        sorted.leaks_in_all = sorted.leaks.len();
        sorted.leaks.truncate(options.limit);
        sorted.leaks.iter_mut().for_each(|leak| own_line(&mut leak.row));
        sorted
    }
}

//! The groups of allocations that leak: they grow from period to period and are never freed, in contrast to
//! groups that are merely alive. `memtrack leaks` prints them; the repository's docs/TESTING.md explains the
//! rule.
//!
//! The time of a recording is cut into `periods`; several snapshots of one process can be used instead (`series`).
//! `growth` judges the part of each group that stays over the periods, `ages` compares the age of that part with the
//! usual lifetime, `suppress` leaves out known leaks, and `generations` sums up the memory that each of the program's
//! own steps left behind.

mod ages;
mod alive;
mod generations;
mod growth;
mod json;
mod passes;
mod periods;
mod recording;
mod series;
mod suppress;
mod text;

pub use ages::Age;
pub use generations::{Generation, Generations, Share};
pub use json::{
    AgeAnswer, AmountAnswer, CalledAnswer, DeviceLeaksAnswer, FreedLateAnswer, GenerationAnswer,
    GenerationsAnswer, LeakAnswer, LeaksAnswer, LeftAnswer,
};
pub use periods::{CutBy, NoSuchInterval};
pub use series::{NotASeries, ReducedSnapshot};
pub use suppress::Suppressions;

use super::estimate::Estimate;
use super::framework_operators::Patterns;
use super::ownership::Rules;
use super::top::{By, TopRow};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_symbols::Symbolizer;

/// The number of periods that a recording is cut into.
pub const PERIODS: usize = 10;
/// With fewer periods, growth cannot be distinguished from chance.
pub const LEAST_PERIODS: usize = 5;

/// A recording shorter than this, in seconds, covers only a program's start, whose allocations look like growth, unless the
/// program marks its own intervals.
pub const LEAST_SECONDS: f64 = 0.5;
/// The same limit for one period.
pub const LEAST_PERIOD_SECONDS: f64 = 0.02;

/// The options of the leak report.
///
/// ```
/// # use memtrack_report::analysis::leaks::LeakOptions;
/// let options = LeakOptions::new().per("request").limit(5);
/// # assert_eq!((options.limit, options.per.as_deref()), (5, Some("request")));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeakOptions {
    /// The key of the groups.
    pub by: By,
    /// For lines: whether memory without a line in the user's code is split by stack; otherwise all memory of an
    /// interpreter would be one group.
    pub split_foreign_by_stack: bool,
    /// The rules that define which frames are the user's.
    pub rules: Rules,
    /// The patterns that name operators where no scope does.
    pub patterns: Patterns,
    /// The maximum number of periods.
    pub periods: usize,
    /// The name of the program's own intervals that make up the periods and that are listed one by one.
    pub per: Option<String>,
    /// The leaks that are left out.
    pub suppressions: Suppressions,
    /// The maximum number of leaks, and of generations, that are listed for each device.
    pub limit: usize,
}

impl Default for LeakOptions {
    /// Returns lines in the user's code, and stacks where there is none; ten periods, 20 leaks.
    fn default() -> Self {
        Self {
            by: By::Line,
            split_foreign_by_stack: true,
            rules: Rules::new(),
            patterns: Patterns::default(),
            periods: PERIODS,
            per: None,
            suppressions: Suppressions::new(),
            limit: 20,
        }
    }
}

impl LeakOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the key of the groups, and nothing else: by [`By::Line`], memory without a line in the user's code
    /// and with the same name is one group.
    #[must_use]
    pub fn by(mut self, by: By) -> Self {
        (self.by, self.split_foreign_by_stack) = (by, false);
        self
    }

    /// Sets the rules that define which frames are the user's.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets the patterns that name operators where no scope does.
    #[must_use]
    pub fn patterns(mut self, patterns: Patterns) -> Self {
        self.patterns = patterns;
        self
    }

    /// Sets the maximum number of periods; at least [`LEAST_PERIODS`].
    #[must_use]
    pub fn periods(mut self, periods: usize) -> Self {
        self.periods = periods.max(LEAST_PERIODS);
        self
    }

    /// Cuts the periods at the program's own intervals of that name, and lists the memory that each interval left
    /// behind.
    #[must_use]
    pub fn per(mut self, name: impl Into<String>) -> Self {
        self.per = Some(name.into());
        self
    }

    /// Sets the leaks that are left out.
    #[must_use]
    pub fn suppressions(mut self, suppressions: Suppressions) -> Self {
        self.suppressions = suppressions;
        self
    }

    /// Sets the maximum number of leaks, and of generations, that are listed for each device.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

/// A group that leaks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Leak {
    /// The group: its name, line and first stack, and the memory of it that was never freed, or freed only after the last
    /// of the program's steps: bytes, blocks and their errors.
    pub row: TopRow,
    /// The part of that memory that was freed after the last step, as at a program's end.
    pub freed_later: Amount,
    /// The number of periods in which the group grew.
    pub grew: usize,
    /// The number of periods, from the first in which any memory of the group stayed.
    pub periods: usize,
    /// The group's average growth per period, in bytes.
    pub each_bytes: Estimate,
    /// The bytes of the group that lived through each of these periods; for a series of snapshots, the bytes in each
    /// snapshot, beginning with the one before the first of these periods.
    pub held_bytes: Vec<u64>,
    /// The error of each number in [`Self::held_bytes`].
    pub held_errors: Vec<Estimate>,
    /// The ages of the group's blocks compared with the usual lifetime; none where too few of its blocks were freed to
    /// know that.
    pub age: Option<Age>,
}

/// A group that grew like a leak and was freed in the last moments of a recording, as in a program that frees all its
/// memory when it exits.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FreedLate {
    /// The group.
    pub name: String,
    /// The group in a few words: for a stack, its own line.
    pub place: String,
    /// The memory of the group that was freed in the last moments.
    pub freed: Amount,
    /// The number of periods before the last in which the group grew.
    pub grew: usize,
    /// The number of judged periods.
    pub periods: usize,
    /// The start of the last moments, in seconds before the end; none if the file does not contain times.
    pub last_seconds: Option<f64>,
}

/// Bytes and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Amount {
    /// Requested bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// The error of the bytes.
    pub bytes_error: Estimate,
    /// The error of the blocks.
    pub blocks_error: Estimate,
}

/// The leaks on one device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceLeaks {
    /// The device's ordinal in reports.
    pub device: u16,
    /// The device's name: `device 0`, `host heap` or `pinned host memory`.
    pub device_name: String,
    /// Whether the device is the host heap.
    pub is_host: bool,
    /// Whether the device is pinned host memory.
    pub is_pinned: bool,
    /// The reason why the device's leaks cannot be determined; none where they can.
    pub blind: Option<String>,
    /// The leaks, those with the most bytes first, up to [`LeakOptions::limit`].
    pub leaks: Vec<Leak>,
    /// The number of leaks.
    pub leaks_in_all: usize,
    /// The memory of all leaks that was never freed, including those that are not in [`Self::leaks`].
    pub leaked: Amount,
    /// Memory that was allocated in the recording, was not freed, and is not a leak: it is merely alive. For a series of
    /// snapshots, all memory of the newest snapshot in groups that do not leak.
    pub alive: Amount,
    /// The number of groups with memory in [`Self::alive`].
    pub alive_groups: usize,
    /// Memory that is live and older than the first event: its growth was not recorded, so it was not judged. Zero for a
    /// series of snapshots.
    pub older: Amount,
    /// Memory that was never freed and that a suppression excludes.
    pub suppressed: Amount,
    /// Groups that allocated less than this in small blocks may have no sample, and grow undetected; 0 where every block was
    /// recorded.
    pub detection_limit_bytes: u64,
    /// Older events that did not fit the recorder's ring.
    pub dropped: u64,
    /// Groups that grew like leaks and were freed in the last moments, those with the most bytes first. They are not
    /// counted as leaks.
    pub freed_late: Vec<FreedLate>,
    /// The memory that each of the program's own intervals left behind, if requested.
    pub generations: Option<Generations>,
}

/// The leaks of a recording or a series of snapshots.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LeakReport {
    /// The key of the groups.
    pub by: By,
    /// Whether groups without a line in the user's code are stacks.
    pub split_foreign_by_stack: bool,
    /// The way in which the periods were cut.
    pub cut: CutBy,
    /// Whether the recording is complete. Otherwise, the numbers are lower bounds on the remaining memory of each
    /// group.
    pub complete: bool,
    /// The number of periods.
    pub periods: usize,
    /// The average length of the periods, in seconds; none where the files have no times.
    pub period_seconds: Option<f64>,
    /// The devices.
    pub devices: Vec<DeviceLeaks>,
    /// Caveats about the comparison of the files.
    pub notes: Vec<String>,
    /// Patterns of [`LeakOptions::suppressions`] that match no stack of the files.
    pub unused_suppressions: Vec<String>,
}

impl LeakReport {
    /// Returns whether any group leaks.
    pub fn is_leaking(&self) -> bool {
        self.devices.iter().any(|device| device.leaks_in_all > 0)
    }

    /// Returns whether any group grew like a leak and was freed only at the end: a program that collects a result does
    /// that too.
    pub fn is_freed_only_at_the_end(&self) -> bool {
        self.devices.iter().any(|device| !device.freed_late.is_empty())
    }

    /// Returns whether no group leaks, and whether leaks could be determined on at least one device: the condition that
    /// a test should check. In a recording that is too short, leaks cannot be determined, and [`Self::is_leaking`] is
    /// false nevertheless.
    pub fn is_clean(&self) -> bool {
        !self.is_leaking() && self.devices.iter().any(|device| device.blind.is_none())
    }

    /// Returns the reason why leaks cannot be determined on any device; none where they can.
    pub fn blind(&self) -> Option<String> {
        let mut devices = self.devices.iter().map(|device| (&device.device_name, &device.blind));
        if devices.clone().any(|(_, blind)| blind.is_none()) {
            return None;
        }
        let several = self.devices.len() > 1;
        let why = devices.by_ref().filter_map(|(name, blind)| {
            let why = blind.as_deref()?;
            Some(if several { format!("{name}: {why}") } else { why.to_owned() })
        });
        let why: Vec<String> = why.collect();
        Some(if why.is_empty() { "it holds no memory and no events".into() } else { why.join("; ") })
    }
}

/// Finds the leaks on `devices` of a recording or of a snapshot with its trace.
///
/// # Errors
/// Fails when [`LeakOptions::per`] names intervals that the snapshot does not have.
pub fn leaks(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    devices: &[DeviceId],
    options: &LeakOptions,
) -> Result<LeakReport, NoSuchInterval> {
    recording::leaks(snapshot, symbols, devices, options)
}

/// Finds the leaks over several snapshots of one process, in the order in which they were taken.
///
/// # Errors
/// Fails when there are too few snapshots, or when they are not from one process or not in order.
pub fn leaks_over(snaps: Vec<ReducedSnapshot>, options: &LeakOptions) -> Result<LeakReport, NotASeries> {
    series::leaks(snaps, options)
}

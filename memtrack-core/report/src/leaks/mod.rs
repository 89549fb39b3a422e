//! The groups of allocations that leak: their memory grows from period to period and is never freed, as opposed to
//! groups that are merely alive. `memtrack leaks` prints them; the repository's docs/TESTING.md explains the rule.
//!
//! `periods` divides the time of a recording into periods; alternatively, several snapshots of one process can be used
//! (`series`). `growth` judges how the part of each group that stays changes over the periods, `ages` compares the age
//! of that part with the usual lifetime, `suppress` leaves out known leaks, and `generations` adds up the memory that
//! each of the program's own steps left behind.

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
pub use periods::{CutBy, NoSuchInterval};
pub use series::{NotASeries, ReducedSnapshot};
pub use suppress::Suppressions;

use crate::top::{By, TopRow};
use memtrack_blocks::estimate::Estimate;
use memtrack_frames::framework_operators::Patterns;
use memtrack_frames::ownership::Rules;
#[cfg(feature = "schema")]
use memtrack_model::answer::NameAnswer;
use memtrack_model::answer::{DeviceAnswer, serialize_as_name};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::units::printable;
use memtrack_symbols::Symbolizer;
use serde::{Serialize, Serializer};

/// The number of periods into which a recording is divided.
pub const PERIODS: usize = 10;
/// With fewer periods than this, growth cannot be distinguished from chance.
pub const MIN_PERIODS: usize = 5;

/// A recording shorter than this, in seconds, covers only the program's startup, and allocations during startup look
/// like growth. The limit does not apply if the program marks its own intervals.
pub const MIN_SECONDS: f64 = 0.5;
/// The minimum length of a single period, in seconds. Like [`MIN_SECONDS`], it does not apply if the program marks its own
/// intervals.
pub const LEAST_PERIOD_SECONDS: f64 = 0.02;

/// Options for the leak report.
///
/// ```
/// # use memtrack_report::leaks::LeakOptions;
/// let options = LeakOptions::new().per("request").limit(5);
/// # assert_eq!((options.limit, options.per.as_deref()), (5, Some("request")));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeakOptions {
    /// The key by which allocations are grouped.
    pub by: By,
    /// Whether, when grouping by line, memory without a line in the user's code is split by stack. Otherwise, all
    /// memory of an interpreter would form a single group.
    pub split_foreign_by_stack: bool,
    /// The rules that decide which frames are the user's.
    pub rules: Rules,
    /// The patterns that name operators when no scope does.
    pub patterns: Patterns,
    /// The maximum number of periods.
    pub periods: usize,
    /// The name of the program's own intervals that serve as periods and are listed one by one.
    pub per: Option<String>,
    /// Leaks to leave out of the report.
    pub suppressions: Suppressions,
    /// The maximum number of leaks, and of generations, to list per device.
    pub limit: usize,
}

impl Default for LeakOptions {
    /// Returns options that group by line in the user's code, or by stack if there is no such line, with ten periods
    /// and up to 20 leaks.
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

    /// Sets the key by which allocations are grouped and turns off splitting: with [`By::Line`], memory without a line
    /// in the user's code forms a single group for each name.
    #[must_use]
    pub fn by(mut self, by: By) -> Self {
        (self.by, self.split_foreign_by_stack) = (by, false);
        self
    }

    /// Sets the rules that decide which frames are the user's.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets the patterns that name operators when no scope does.
    #[must_use]
    pub fn patterns(mut self, patterns: Patterns) -> Self {
        self.patterns = patterns;
        self
    }

    /// Sets the maximum number of periods, but at least [`MIN_PERIODS`].
    #[must_use]
    pub fn periods(mut self, periods: usize) -> Self {
        self.periods = periods.max(MIN_PERIODS);
        self
    }

    /// Uses the program's own intervals with this name as periods, and lists the memory that each of them left behind.
    #[must_use]
    pub fn per(mut self, name: impl Into<String>) -> Self {
        self.per = Some(name.into());
        self
    }

    /// Sets the leaks to leave out of the report.
    #[must_use]
    pub fn suppressions(mut self, suppressions: Suppressions) -> Self {
        self.suppressions = suppressions;
        self
    }

    /// Sets the maximum number of leaks, and of generations, to list per device.
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
    /// The group's name, line and first stack, along with the bytes and blocks (and their errors) of its memory that
    /// was never freed or was freed only after the last of the program's steps.
    pub row: TopRow,
    /// The part of that memory that was freed after the last step, e.g. when the program exited.
    pub freed_later: Amount,
    /// The number of periods in which the group grew.
    pub grew: usize,
    /// The number of periods, starting with the first one in which any memory of the group stayed.
    pub periods: usize,
    /// The group's average growth per period, in bytes.
    pub each_bytes: Estimate,
    /// The group's bytes that lived through each of these periods. For a series of snapshots, these are the bytes in
    /// each snapshot, starting with the one before the first of these periods.
    pub held_bytes: Vec<u64>,
    /// The error of each number in [`Self::held_bytes`].
    pub held_errors: Vec<Estimate>,
    /// The ages of the group's blocks compared with their usual lifetime; `None` if too few blocks were freed to know
    /// the usual lifetime.
    pub age: Option<Age>,
}

/// A group that grew like a leak but was freed in the last moments of a recording, as happens in a program that frees
/// all its memory when it exits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FreedLate {
    /// The group's name.
    #[serde(flatten, serialize_with = "serialize_as_name")]
    #[cfg_attr(feature = "schema", schemars(with = "NameAnswer"))]
    pub name: String,
    /// The group's memory that was freed in the last moments.
    pub freed: Amount,
    /// The number of periods in which the group grew before its memory was freed.
    #[serde(rename = "grew_periods")]
    pub grew: usize,
    /// The number of periods in which the group's growth was judged.
    pub periods: usize,
    /// The time in seconds from the first free in the last moments to the end; null if the file does not record times.
    pub last_seconds: Option<f64>,
    /// A short description of the group; for a stack, its line in the user's code.
    #[serde(serialize_with = "serialize_printable")]
    pub place: String,
}

/// Serializes a text without characters that a terminal would act on.
fn serialize_printable<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    printable(text).serialize(to)
}

/// An amount of memory, in bytes and in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Amount {
    /// The amount in requested bytes.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    pub bytes_error: Estimate,
    /// The amount as a number of blocks.
    #[serde(rename = "count")]
    pub blocks: u64,
    /// The margin of error of the number of blocks; null if it is exact.
    #[serde(rename = "count_error")]
    pub blocks_error: Estimate,
}

/// The leaks on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DeviceLeaks {
    /// The device.
    pub device: DeviceAnswer,
    /// The reason why the device's leaks cannot be determined; null if they can.
    pub blind: Option<String>,
    /// The leaks, largest first.
    pub leaks: Vec<Leak>,
    /// The total number of leaks, including those beyond the limit.
    pub leaks_in_all: usize,
    /// The never-freed memory of all leaks, including those beyond the limit.
    pub leaked: Amount,
    /// Memory that was allocated during the recording and not freed but does not belong to a leak. For a series of
    /// snapshots, this is all memory in the newest snapshot that does not belong to a leak.
    pub alive: Amount,
    /// The number of groups that have memory in `alive`.
    pub alive_groups: usize,
    /// Live memory that is older than the first event, and so was not judged.
    pub older: Amount,
    /// Memory that was never freed but is excluded by a suppression.
    pub suppressed: Amount,
    /// The detection limit for leaks in small blocks, in bytes. Because small blocks are sampled, a group that leaves
    /// behind less than this has a chance of at least 5 % of having no sample at all; 0 if every block was recorded.
    pub detection_limit_bytes: u64,
    /// The number of the device's older events that were dropped because they did not fit in the recorder's ring.
    #[serde(rename = "dropped_events")]
    pub dropped: u64,
    /// Groups that grew like leaks but were freed in the last moments, e.g. when the program exited, largest first.
    pub freed_late: Vec<FreedLate>,
    /// The memory that each of the program's own intervals left behind; null unless `--per` was given.
    pub generations: Option<Generations>,
}

/// The leaks, as `memtrack leaks --json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LeakReport {
    /// The key by which allocations are grouped, as given to `--by`.
    pub by: By,
    /// Whether any group leaks.
    pub leaking: bool,
    /// Whether the recording is complete. If not, the numbers are lower bounds on each group's remaining memory.
    pub complete: bool,
    /// The reason why leaks cannot be determined on any device; null if they can.
    pub blind: Option<String>,
    /// The summary as sentences, with a line for each device.
    pub answer: Vec<String>,
    /// How the periods were determined.
    #[serde(flatten)]
    pub cut: CutBy,
    /// The number of periods into which the recording or the series of snapshots is divided.
    pub periods: usize,
    /// The number of events in each period; null unless `cut_by` is `events`.
    pub period_events: Option<usize>,
    /// The average length of a period in seconds; null if the files have no times.
    pub period_seconds: Option<f64>,
    /// The leaks on each device.
    pub devices: Vec<DeviceLeaks>,
    /// The patterns given to `--suppress` that match no stack.
    pub unused_suppressions: Vec<String>,
    /// Caveats about how the files compare.
    pub notes: Vec<String>,
    /// Whether groups without a line in the user's code are stacks.
    #[serde(skip)]
    pub split_foreign_by_stack: bool,
}

impl LeakReport {
    /// Returns the report with its verdict and its summary, which follow from the leaks on each device.
    fn summed_up(mut self) -> Self {
        self.leaking = self.devices.iter().any(|device| device.leaks_in_all > 0);
        self.blind = self.blind_reason();
        self.answer = self.summary_sentences();
        self
    }

    /// Returns whether any group grew like a leak and was freed only at the end, which also happens in programs that
    /// collect a result.
    pub fn is_freed_only_at_the_end(&self) -> bool {
        self.devices.iter().any(|device| !device.freed_late.is_empty())
    }

    /// Returns whether no group leaks even though leaks could be determined on at least one device. This is the
    /// condition that tests should check, because [`Self::leaking`] is also false for recordings that are too short to
    /// determine leaks.
    pub fn is_clean(&self) -> bool {
        !self.leaking && self.devices.iter().any(|device| device.blind.is_none())
    }

    /// Returns the reason why leaks cannot be determined on any device; `None` if they can be determined on at least one.
    fn blind_reason(&self) -> Option<String> {
        let mut devices = self.devices.iter().map(|device| (&device.device.name, &device.blind));
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

/// Finds leaks on `devices` in a recording, or in a snapshot with its trace.
///
/// # Errors
/// Returns an error if [`LeakOptions::per`] names intervals that the snapshot does not have.
pub fn leaks(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    devices: &[DeviceId],
    options: &LeakOptions,
) -> Result<LeakReport, NoSuchInterval> {
    recording::find_leaks(snapshot, symbols, devices, options)
}

/// Finds leaks across several snapshots of one process, given in the order in which they were taken.
///
/// # Errors
/// Returns an error if there are too few snapshots, or if they are not from the same process or not in order.
pub fn leaks_over(snaps: Vec<ReducedSnapshot>, options: &LeakOptions) -> Result<LeakReport, NotASeries> {
    series::find_leaks(snaps, options)
}

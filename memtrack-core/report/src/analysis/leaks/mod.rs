//! What leaks: which groups of allocations grow from period to period and are never given back, as opposed to what is merely
//! alive. `memtrack leaks` prints it; the repository's docs/TESTING.md explains the rule.
//!
//! The time of a recording is cut into `periods`; several snapshots of one process are as good (`series`). `growth` judges what
//! stays of each group over them, `ages` compares its age with what is usual, `suppress` leaves out known leaks, and
//! `generations` says what each of the program's own steps left behind.

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
pub use series::{NotASeries, Snap};
pub use suppress::Suppressions;

use super::estimate::Estimate;
use super::ownership::Rules;
use super::patterns::Patterns;
use super::top::{By, TopRow};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_symbols::Symbolizer;

/// Periods that a recording is cut into.
pub const PERIODS: usize = 10;
/// With fewer, growth cannot be told from chance.
pub const LEAST_PERIODS: usize = 5;

/// What is shorter than this, in seconds, is the start of a program: its parts cannot be told from growth, unless the program
/// marks its own intervals.
pub const LEAST_SECONDS: f64 = 0.5;
/// The same of one period.
pub const LEAST_PERIOD_SECONDS: f64 = 0.02;

/// What to look for.
///
/// ```
/// # use memtrack_report::analysis::leaks::LeakOptions;
/// let options = LeakOptions::new().per("request").limit(5);
/// # assert_eq!((options.limit, options.per.as_deref()), (5, Some("request")));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeakOptions {
    /// What the groups are.
    pub by: By,
    /// Of lines: what has no line of the user's own is told apart by stack, or a whole interpreter would be one group.
    pub apart: bool,
    /// Which frames are the user's own.
    pub rules: Rules,
    /// Which functions name operators where no scope does.
    pub patterns: Patterns,
    /// How many periods there are at most.
    pub periods: usize,
    /// The program's own intervals of which the periods consist, and that are told one by one.
    pub per: Option<String>,
    /// What is left out.
    pub suppressions: Suppressions,
    /// How many leaks, and how many generations, are told of each device at most.
    pub limit: usize,
}

impl Default for LeakOptions {
    /// Lines of the user's own, and stacks where there is none; ten periods, 20 leaks.
    fn default() -> Self {
        Self {
            by: By::Line,
            apart: true,
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
    /// The default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the groups are, and nothing else: by [`By::Line`], all that has no line of the user's own and the same name is one.
    #[must_use]
    pub fn by(mut self, by: By) -> Self {
        (self.by, self.apart) = (by, false);
        self
    }

    /// Which frames are the user's own.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Which functions name operators where no scope does.
    #[must_use]
    pub fn patterns(mut self, patterns: Patterns) -> Self {
        self.patterns = patterns;
        self
    }

    /// How many periods there are at most; at least [`LEAST_PERIODS`].
    #[must_use]
    pub fn periods(mut self, periods: usize) -> Self {
        self.periods = periods.max(LEAST_PERIODS);
        self
    }

    /// Has the periods consist of the program's own intervals of that name, and tells what each left behind.
    #[must_use]
    pub fn per(mut self, name: impl Into<String>) -> Self {
        self.per = Some(name.into());
        self
    }

    /// What is left out.
    #[must_use]
    pub fn suppressions(mut self, suppressions: Suppressions) -> Self {
        self.suppressions = suppressions;
        self
    }

    /// How many leaks, and how many generations, are told of each device at most.
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
    /// The group: its name, line and first stack, and what of it was never freed, or only after the last of the program's
    /// steps: bytes, blocks and their errors.
    pub row: TopRow,
    /// The part of that which was freed after the last step, as at a program's end.
    pub freed_later: Amount,
    /// In how many periods it grew.
    pub grew: usize,
    /// Of how many, counted from the first in which anything of it stayed.
    pub periods: usize,
    /// By how many bytes in each, on average.
    pub each_bytes: Estimate,
    /// What of it lived through each of these periods, in bytes; over snapshots, what each has of it, from that before the
    /// first of these periods on.
    pub held_bytes: Vec<u64>,
    /// How far off each of those may be.
    pub held_errors: Vec<Estimate>,
    /// How old it is beside what is usual; none where too few of its blocks were freed to know that.
    pub age: Option<Age>,
}

/// A group that grew like a leak, and was given back in the last moments of a recording, as a program does that frees all it has
/// when it ends.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FreedLate {
    /// The group.
    pub name: String,
    /// The group in a few words: of a stack, the line of it that is the user's.
    pub place: String,
    /// What of it was freed then.
    pub freed: Amount,
    /// In how many periods before the last it grew.
    pub grew: usize,
    /// Of how many.
    pub periods: usize,
    /// How long before the end that began, in seconds; none if the file does not contain times.
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
    /// How far off the bytes may be.
    pub bytes_error: Estimate,
    /// How far off the blocks may be.
    pub blocks_error: Estimate,
}

/// What leaks on one device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeviceLeaks {
    /// The device's ordinal in reports.
    pub device: u16,
    /// Its name: `device 0`, `host heap` or `pinned host memory`.
    pub device_name: String,
    /// Whether it is the host heap.
    pub is_host: bool,
    /// Whether it is pinned host memory.
    pub is_pinned: bool,
    /// Why nothing can be told; none where something can.
    pub blind: Option<String>,
    /// What leaks, that with the most bytes first, at most as many as were asked for.
    pub leaks: Vec<Leak>,
    /// How many there are.
    pub leaks_in_all: usize,
    /// What all of them have never freed, including those that are not in [`Self::leaks`].
    pub leaked: Amount,
    /// What was allocated while it was recorded, was not freed, and is no leak: it is merely alive. Over snapshots, all that the
    /// newest has of groups that are no leak.
    pub alive: Amount,
    /// How many groups have any of that.
    pub alive_groups: usize,
    /// What is live and older than the first event: nobody saw it grow, so it was not judged. Nothing over several snapshots.
    pub older: Amount,
    /// What the patterns left out of what was never freed.
    pub suppressed: Amount,
    /// Groups that allocated less than this in small blocks may have left no sample, and grow unseen; 0 where every block was
    /// recorded.
    pub detection_limit_bytes: u64,
    /// Older events that did not fit the recorder's ring.
    pub dropped: u64,
    /// What grew as leaks do and was freed in the last moments, that with the most bytes first. They are no leaks.
    pub freed_late: Vec<FreedLate>,
    /// What each of the program's own intervals left behind, where it was asked for.
    pub generations: Option<Generations>,
}

/// What leaks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LeakReport {
    /// What the groups are.
    pub by: By,
    /// Groups without a line of the user's own are stacks.
    pub apart: bool,
    /// What the periods are.
    pub cut: CutBy,
    /// Whether the recording has its end. Without it, what each group has left is at least as large as the numbers.
    pub complete: bool,
    /// How many there are.
    pub periods: usize,
    /// How long they are on average, in seconds; none where the files do not say.
    pub period_seconds: Option<f64>,
    /// The devices.
    pub devices: Vec<DeviceLeaks>,
    /// What a reader should know about how far the files can be compared.
    pub notes: Vec<String>,
    /// Patterns of [`LeakOptions::suppressions`] that match no stack of the files.
    pub unused_suppressions: Vec<String>,
}

impl LeakReport {
    /// Whether something leaks.
    pub fn is_leaking(&self) -> bool {
        self.devices.iter().any(|device| device.leaks_in_all > 0)
    }

    /// Returns whether something grew like a leak and was freed only at the end: a program that collects a result does that too.
    pub fn is_freed_only_at_the_end(&self) -> bool {
        self.devices.iter().any(|device| !device.freed_late.is_empty())
    }

    /// Whether nothing leaks, and that could be told of a device at least: what a test asserts. Of a recording that is too
    /// short nothing can be told, and [`Self::is_leaking`] is false all the same.
    pub fn is_clean(&self) -> bool {
        !self.is_leaking() && self.devices.iter().any(|device| device.blind.is_none())
    }

    /// Why nothing can be told of any device; none where something can.
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

/// What leaks on `devices` of a recording or of a snapshot with its trace.
///
/// # Errors
/// When [`LeakOptions::per`] names intervals that it does not have.
pub fn leaks(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    devices: &[DeviceId],
    options: &LeakOptions,
) -> Result<LeakReport, NoSuchInterval> {
    recording::leaks(snapshot, symbols, devices, options)
}

/// What leaks over several snapshots of one process, in the order in which they were taken.
///
/// # Errors
/// When they are too few, or not of one process and in order.
pub fn leaks_over(snaps: Vec<Snap>, options: &LeakOptions) -> Result<LeakReport, NotASeries> {
    series::leaks(snaps, options)
}

//! The columns of a heat map. If all ranks mark steps with the same name, the columns are steps, because nothing else
//! aligns ranks as exactly. Otherwise, the columns are spans of time, measured by the ranks' clocks if the clocks agree,
//! and from each file's first event if not. In files without times, the columns are ranges of events.

use super::NONE;
use crate::ranks::digest::{DeviceDigest, RankDigest};
use crate::ranks::memory::RanksMemory;
use memtrack_model::units::{counted, human_count};
use std::collections::BTreeSet;

/// With fewer steps than this, columns that are spans of time are more informative than steps.
const MIN_STEPS: usize = 4;
/// Clocks agree if the time that all files together cover, by these clocks, is at most this many times the duration of
/// the longest file.
const MAX_CLOCK_SPAN: f64 = 2.0;
/// The processes of a job never all start within this many nanoseconds of each other.
const MIN_START_SPREAD_NS: u64 = 1000;
/// The maximum rounding error of a position, in columns.
const MAX_ROUNDING_ERROR: f64 = 1e-6;

/// The meaning of a heat map's columns.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HeatColumns {
    /// Steps that all ranks mark.
    Steps {
        /// The name of the steps.
        name: String,
        /// For each column, the numbers of its first and last steps.
        numbers: Vec<(u64, u64)>,
        /// The number of steps.
        steps: usize,
    },
    /// Equal spans of time by the ranks' clocks, starting at the first event of any rank.
    Clock {
        /// The number of columns.
        columns: usize,
        /// The length of a column in seconds.
        seconds: f64,
    },
    /// Equal spans of time since each file's own first event.
    SinceFirst {
        /// The number of columns.
        columns: usize,
        /// The length of a column in seconds.
        seconds: f64,
    },
    /// Equal parts of each file, from its first event to its last, by event number because there are no times.
    Parts {
        /// The number of columns.
        columns: usize,
    },
}

impl HeatColumns {
    /// Returns the number of columns.
    pub fn count(&self) -> usize {
        match self {
            Self::Steps { numbers, .. } => numbers.len(),
            Self::Clock { columns, .. } | Self::SinceFirst { columns, .. } | Self::Parts { columns } => {
                *columns
            }
        }
    }

    /// Formats a column's name, as in `step 3`, `steps 30 to 39`, `at 1.25 s` or `at 50 %`.
    pub fn label(&self, column: usize) -> String {
        match self {
            Self::Steps { numbers, .. } => match numbers.get(column) {
                Some((first, last)) if first == last => format!("step {first}"),
                Some((first, last)) => format!("steps {first} to {last}"),
                None => String::new(),
            },
            _ => format!("at {}", self.format_start(column)),
        }
    }

    /// Formats the start of a column, as in `1.25 s` or `50 %`.
    fn format_start(&self, column: usize) -> String {
        match self {
            Self::Steps { .. } => String::new(),
            Self::Clock { seconds, .. } | Self::SinceFirst { seconds, .. } => {
                format!("{:.*} s", decimal_places(*seconds), *seconds * column as f64)
            }
            Self::Parts { columns } => format!("{:.0} %", 100.0 * column as f64 / *columns as f64),
        }
    }

    /// Describes the horizontal axis and the cells, in one sentence each.
    pub fn sentences(&self) -> [String; 2] {
        const LIVE: &str = "the most requested bytes that were live";
        let long = |columns: usize, seconds: f64| {
            let digits = decimal_places(seconds);
            let all = format!("{:.*} s", digits, seconds * columns as f64);
            (all, format!("A cell is {LIVE} within {:.*} s.", digits.min(9) + 1, seconds))
        };
        match self {
            Self::Steps { name, numbers, steps } => {
                let (first, last) =
                    (numbers.first().map_or(0, |at| at.0), numbers.last().map_or(0, |at| at.1));
                let left = format!("{} ({name}), from {first} to {last}.", counted(*steps as u64, "step"));
                let cell = match steps.div_ceil(numbers.len().max(1)) {
                    0 | 1 => format!("A cell is {LIVE} in the step."),
                    several => {
                        let several = human_count(several as u64);
                        format!("A cell is {LIVE} in any of {several} steps, so that no peak is lost.")
                    }
                };
                [left, cell]
            }
            Self::Clock { columns, seconds } => {
                let (all, cell) = long(*columns, *seconds);
                [format!("{all} by the clocks of the ranks, from the first event of all of them on."), cell]
            }
            Self::SinceFirst { columns, seconds } => {
                let (all, cell) = long(*columns, *seconds);
                [format!("{all}, in each file from its own first event on."), cell]
            }
            Self::Parts { columns } => [
                "each file from its first event to its last: there are no times in it.".into(),
                format!("A cell is {LIVE} in one of {} equal parts.", human_count(*columns as u64)),
            ],
        }
    }

    /// Returns about `most` labels along the axis, each with its position in columns from the left.
    pub fn axis_labels(&self, most: usize) -> Vec<(f64, String)> {
        let most = most.max(1);
        match self {
            Self::Steps { numbers, .. } => {
                let (first, last) =
                    (numbers.first().map_or(0, |at| at.0), numbers.last().map_or(0, |at| at.1));
                let every = round_up((last - first) as f64 / most as f64).max(1.0) as u64;
                let round =
                    |&(first, last): &(u64, u64)| Some(last / every * every).filter(|&round| round >= first);
                let mark = |(at, ends)| Some((at as f64 + 0.5, round(ends)?.to_string()));
                numbers.iter().enumerate().filter_map(mark).collect()
            }
            Self::Clock { columns, seconds } | Self::SinceFirst { columns, seconds } => {
                let long = seconds * *columns as f64;
                if long <= 0.0 {
                    return Vec::new();
                }
                let every = round_up(long / most as f64);
                let times = (long / every * (1.0 + MAX_ROUNDING_ERROR)).floor() as usize;
                let mark = |at: usize| {
                    let at = every * at as f64;
                    (at / seconds, format!("{:.*} s", decimal_places(every), at))
                };
                (0..=times).map(mark).collect()
            }
            Self::Parts { columns } => {
                (0..=4).map(|at| ((columns * at) as f64 / 4.0, format!("{} %", 25 * at))).collect()
            }
        }
    }
}

/// Rounds a number up to the next number in the series …, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, …
fn round_up(number: f64) -> f64 {
    if number <= 0.0 || !number.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(number.log10().floor());
    let times =
        [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= number * (1.0 - MAX_ROUNDING_ERROR));
    times.unwrap_or(10.0) * power
}

/// Returns the number of decimal places needed to distinguish times that differ by this many seconds.
fn decimal_places(seconds: f64) -> usize {
    if seconds > 0.0 { (-seconds.log10()).ceil().clamp(0.0, 9.0) as usize } else { 0 }
}

/// The columns, and the data needed to assign a rank's memory to them.
pub(super) struct Cutter {
    pub(super) columns: HeatColumns,
    /// The numbers of all steps; empty unless the columns are steps.
    numbers: Vec<u64>,
    /// The first event of any rank, in nanoseconds since the Unix epoch; `None` unless the ranks' clocks agree.
    begin_ns: Option<u64>,
}

impl Cutter {
    pub(super) fn new(ranks: &[RankDigest], memory: &RanksMemory, most: usize) -> Self {
        let numbers = common_steps(ranks, memory);
        if let Some((name, numbers)) = numbers {
            let steps = numbers.len();
            let ends = |some: &[u64]| (some[0], some[some.len() - 1]);
            let columns = numbers.chunks(steps.div_ceil(most)).map(ends).collect();
            let columns = HeatColumns::Steps { name, numbers: columns, steps };
            return Self { columns, numbers, begin_ns: None };
        }
        let members = || memory.members.iter().map(|&(rank, at)| (&ranks[rank], &ranks[rank].devices[at]));
        let bins = members().map(|(_, device)| device.timeline.requested_bytes.len()).max().unwrap_or(1);
        let mut columns = bins.clamp(1, most);
        let longest = members().map(|(_, device)| duration_seconds(device)).fold(0.0, f64::max);
        let begins: Option<Vec<u64>> = members().map(|(rank, device)| begin_ns(rank, device)).collect();
        let Some(begins) = begins else {
            return Self { columns: HeatColumns::Parts { columns }, numbers: Vec::new(), begin_ns: None };
        };
        if longest <= 0.0 {
            columns = 1;
        }
        let first = begins.iter().copied().min().unwrap_or(0);
        let end = |(begin, (_, device)): (&u64, (&RankDigest, &DeviceDigest))| {
            begin.saturating_sub(first) as f64 / 1e9 + duration_seconds(device)
        };
        let whole = begins.iter().zip(members()).map(end).fold(0.0, f64::max);
        // If all files start at the same moment, their clock times are not real but were replaced, e.g. by scrubbing.
        let agree = begins.iter().any(|&begin| begin - first > MIN_START_SPREAD_NS)
            && whole <= MAX_CLOCK_SPAN * longest;
        let seconds = if agree { whole } else { longest } / columns as f64;
        let columns = match agree {
            true => HeatColumns::Clock { columns, seconds },
            false => HeatColumns::SinceFirst { columns, seconds },
        };
        Self { columns, numbers: Vec::new(), begin_ns: agree.then_some(first) }
    }

    /// Appends a rank's memory in each column to `series`.
    pub(super) fn cut(&self, rank: &RankDigest, device: &DeviceDigest, series: &mut Vec<u64>) {
        let from = series.len();
        series.resize(from + self.columns.count(), NONE);
        let cells = &mut series[from..];
        let raise = |cell: &mut u64, bytes: u64| {
            *cell = if *cell == NONE { bytes.min(NONE - 1) } else { (*cell).max(bytes.min(NONE - 1)) };
        };
        match &self.columns {
            HeatColumns::Steps { numbers, steps, .. } => {
                let steps_per_column = steps.div_ceil(numbers.len().max(1)).max(1);
                for step in &device.steps {
                    if let Ok(at) = self.numbers.binary_search(&step.number) {
                        raise(&mut cells[at / steps_per_column], step.peak_requested_bytes);
                    }
                }
            }
            HeatColumns::Clock { seconds, .. } | HeatColumns::SinceFirst { seconds, .. } => {
                let late = match (self.begin_ns, begin_ns(rank, device)) {
                    (Some(first), Some(own)) => own.saturating_sub(first) as f64 / 1e9,
                    _ => 0.0,
                };
                add_bins(
                    cells,
                    &device.timeline.requested_bytes,
                    late / seconds,
                    duration_seconds(device) / seconds,
                    raise,
                );
            }
            HeatColumns::Parts { columns } => {
                add_bins(cells, &device.timeline.requested_bytes, 0.0, *columns as f64, raise);
            }
        }
    }
}

/// Adds bins to the columns that they overlap. The first bin starts at `begin`, and all bins together last for `long`;
/// both are measured in columns.
fn add_bins(cells: &mut [u64], bins: &[u64], begin: f64, long: f64, raise: impl Fn(&mut u64, u64)) {
    let last = cells.len() - 1;
    // If all events in all files have the same time, columns have no length.
    let begin = if begin.is_finite() { begin } else { 0.0 };
    let bin_long = if long.is_finite() { long / bins.len().max(1) as f64 } else { 0.0 };
    for (at, &bytes) in bins.iter().enumerate() {
        let from = begin + bin_long * at as f64;
        let first = ((from + MAX_ROUNDING_ERROR).floor() as usize).min(last);
        let end = ((from + bin_long - MAX_ROUNDING_ERROR).ceil() as usize).clamp(first + 1, last + 1);
        cells[first..end].iter_mut().for_each(|cell| raise(cell, bytes));
    }
}

/// Returns the duration of a device's timeline in seconds.
fn duration_seconds(device: &DeviceDigest) -> f64 {
    device.timeline.bin_seconds * device.timeline.requested_bytes.len() as f64
}

/// Returns the start of a device's first bin in nanoseconds since the Unix epoch.
fn begin_ns(rank: &RankDigest, device: &DeviceDigest) -> Option<u64> {
    let since = (device.timeline.begin_seconds * 1e9).round();
    rank.begin_ns.map(|begin| begin.saturating_add_signed(since as i64))
}

/// Returns the name and the numbers of the steps; `None` unless all ranks mark steps with the same name and there are at
/// least [`MIN_STEPS`].
fn common_steps(ranks: &[RankDigest], memory: &RanksMemory) -> Option<(String, Vec<u64>)> {
    let &(first, _) = memory.members.first()?;
    let name = ranks[first].step_name.as_ref()?;
    let mut numbers = BTreeSet::new();
    for &(rank, at) in &memory.members {
        let steps = &ranks[rank].devices[at].steps;
        if ranks[rank].step_name.as_ref() != Some(name) || steps.is_empty() {
            return None;
        }
        numbers.extend(steps.iter().map(|step| step.number));
    }
    (numbers.len() >= MIN_STEPS).then(|| (name.clone(), numbers.into_iter().collect()))
}

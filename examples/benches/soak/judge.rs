//! Checks that the measurements of a run stay flat: compares the last third of the rows with the second. In the first
//! third, memtrack reaches all of its bounds.

use crate::rows::{Column, Row};
use crate::service::MAX_BYTES;
use std::fmt;

const MIB: f64 = (1 << 20) as f64;
/// The bound on memtrack's memory with default options, for the host heap and one device.
const MAX_OWN_BYTES: f64 = (256.0 + 64.0) * MIB;

/// A check of one column.
#[derive(Clone, Copy, Debug)]
struct Check {
    name: &'static str,
    column: Column,
    unit: Unit,
    /// The quantile of a third's values that represents this third.
    of: Quantile,
    /// The allowed growth from the second third to the last: a share, plus an absolute value.
    share: f64,
    more: f64,
    /// The maximum that no value of the column may exceed, if there is one.
    most: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Mib,
    Number,
    Nanoseconds,
}

#[derive(Clone, Copy, Debug)]
enum Quantile {
    /// The lower quartile, for values that other programs on the machine can increase.
    LowerQuarter,
    Median,
    /// The maximum, for values that rise and fall.
    Largest,
}

impl Quantile {
    fn of(self, mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        let last = values.len().saturating_sub(1);
        let at = match self {
            Self::LowerQuarter => last / 4,
            Self::Median => last / 2,
            Self::Largest => last,
        };
        values.get(at).copied().unwrap_or(0.0)
    }
}

const fn memory(name: &'static str, column: Column, of: Quantile, share: f64, more_mib: f64) -> Check {
    Check { name, column, unit: Unit::Mib, of, share, more: more_mib * MIB, most: None }
}

const fn number(name: &'static str, column: Column, more: f64) -> Check {
    Check { name, column, unit: Unit::Number, of: Quantile::Median, share: 0.02, more, most: None }
}

const fn time(name: &'static str, column: Column) -> Check {
    Check {
        name,
        column,
        unit: Unit::Nanoseconds,
        of: Quantile::LowerQuarter,
        share: 0.25,
        more: 5.0,
        most: None,
    }
}

// Between laps memtrack's memory is at one of two levels, 5 MiB apart (211 or 216 MiB, over ninety laps); a median would only
// show which level is more frequent.
const CHECKS: [Check; 12] = [
    Check {
        most: Some(MAX_OWN_BYTES),
        ..memory("memtrack's own memory", Column::OwnBytes, Quantile::Largest, 0.02, 2.0)
    },
    // A few rows also include the memory of a dump, or of a list of the largest allocations, that another thread is writing.
    memory("heap in use", Column::HeapBytes, Quantile::LowerQuarter, 0.02, 2.0),
    // The C library retains the memory of freed snapshots, and a late snapshot may be the largest, so some growth is allowed.
    memory("resident set", Column::ResidentBytes, Quantile::Median, 1.0, 64.0),
    Check {
        most: Some(MAX_BYTES as f64),
        ..memory("the recording", Column::RecordingBytes, Quantile::Largest, 0.05, 1.0)
    },
    memory("all files", Column::FileBytes, Quantile::Largest, 0.1, 4.0),
    number("threads", Column::Threads, 0.0),
    number("descriptors", Column::Descriptors, 1.0),
    number("mappings", Column::Mappings, 16.0),
    time("an event of a device", Column::DeviceEvent),
    time("an event of the heap", Column::HostEvent),
    time("an event at a new place", Column::NewStackEvent),
    time("an operator", Column::Operator),
];

/// The result of one check.
#[derive(Clone, Copy, Debug)]
pub struct CheckResult {
    check: Check,
    first: f64,
    second: f64,
    last: f64,
    largest: f64,
    is_checked: bool,
}

impl CheckResult {
    /// Returns whether the check passed or was skipped.
    pub fn holds(&self) -> bool {
        let Check { share, more, most, .. } = self.check;
        let grows = self.last > self.second * (1.0 + share) + more;
        let exceeds = most.is_some_and(|most| self.largest > most);
        !self.is_checked || !(grows || exceeds)
    }
}

impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Check { name, unit, share, more, most, .. } = self.check;
        let number = |value: f64| match unit {
            Unit::Mib => format!("{:.1} MiB", value / MIB),
            Unit::Number => format!("{value}"),
            Unit::Nanoseconds => format!("{value:.0} ns"),
        };
        let verdict = match (self.is_checked, self.holds()) {
            (false, _) => "not checked",
            (true, true) => "flat",
            (true, false) => "GROWS",
        };
        write!(
            f,
            "{name:24} {:>11} {:>11} {:>11}   {verdict:11} (+ {:.0} % and {} allowed",
            number(self.first),
            number(self.second),
            number(self.last),
            100.0 * share,
            number(more),
        )?;
        match most {
            Some(most) => write!(f, "; at most {}, was {})", number(most), number(self.largest)),
            None => f.write_str(")"),
        }
    }
}

/// Returns the header of the table of results.
pub fn head() -> String {
    format!("{:24} {:>11} {:>11} {:>11}", "", "first third", "second", "last")
}

/// Performs all checks.
pub fn judge(rows: &[Row], checks_times: bool) -> Vec<CheckResult> {
    let third = rows.len() / 3;
    let result = |check: Check| {
        let value = |rows: &[Row]| check.of.of(rows.iter().map(|row| row[check.column]).collect());
        CheckResult {
            check,
            first: value(&rows[..third]),
            second: value(&rows[third..rows.len() - third]),
            last: value(&rows[rows.len() - third..]),
            largest: Quantile::Largest.of(rows.iter().map(|row| row[check.column]).collect()),
            is_checked: checks_times || check.unit != Unit::Nanoseconds,
        }
    };
    CHECKS.into_iter().map(result).collect()
}

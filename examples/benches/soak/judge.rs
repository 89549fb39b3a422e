//! Whether the numbers of a run stay flat: the last third of the rows is compared with the second. The first is for getting
//! warm, until all of memtrack's bounds are met.

use crate::rows::{Column, Row};
use crate::service::MAX_BYTES;
use std::fmt;

const MIB: f64 = (1 << 20) as f64;
/// What memtrack may hold with default options and one device besides the host's heap.
const MOST_OWN_BYTES: f64 = (256.0 + 64.0) * MIB;

/// One question to the rows.
#[derive(Clone, Copy, Debug)]
struct Question {
    name: &'static str,
    column: Column,
    unit: Unit,
    /// Which of a third's values, in their order, stands for it.
    of: Quantile,
    /// How much larger the last third's may be than the second's, as a share and besides.
    share: f64,
    more: f64,
    /// What it may never exceed.
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
    /// For what other programs on the machine make larger, and nothing makes smaller.
    LowerQuarter,
    Median,
    /// For what goes up and down.
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

const fn memory(name: &'static str, column: Column, of: Quantile, share: f64, more_mib: f64) -> Question {
    Question { name, column, unit: Unit::Mib, of, share, more: more_mib * MIB, most: None }
}

const fn number(name: &'static str, column: Column, more: f64) -> Question {
    Question { name, column, unit: Unit::Number, of: Quantile::Median, share: 0.02, more, most: None }
}

const fn time(name: &'static str, column: Column) -> Question {
    Question {
        name,
        column,
        unit: Unit::Nanoseconds,
        of: Quantile::LowerQuarter,
        share: 0.25,
        more: 5.0,
        most: None,
    }
}

// Between two laps memtrack holds one of two levels, 5 MiB apart (211 or 216 MiB, over ninety laps); a median tells which of
// them was seen more often, not whether anything grows.
const QUESTIONS: [Question; 12] = [
    Question {
        most: Some(MOST_OWN_BYTES),
        ..memory("memtrack's own memory", Column::OwnBytes, Quantile::Largest, 0.02, 2.0)
    },
    // Of a row that is read while another thread makes a dump, or says who holds the memory, what that takes is in it.
    memory("heap in use", Column::HeapBytes, Quantile::LowerQuarter, 0.02, 2.0),
    // The C library keeps what a snapshot took while it was made, and the largest may come late.
    memory("resident set", Column::ResidentBytes, Quantile::Median, 1.0, 64.0),
    Question {
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

/// What one question's answer was.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    question: Question,
    first: f64,
    second: f64,
    last: f64,
    largest: f64,
    is_judged: bool,
}

impl Answer {
    /// Whether it stays flat, as far as that is judged.
    pub fn holds(&self) -> bool {
        let Question { share, more, most, .. } = self.question;
        let grows = self.last > self.second * (1.0 + share) + more;
        let exceeds = most.is_some_and(|most| self.largest > most);
        !self.is_judged || !(grows || exceeds)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Question { name, unit, share, more, most, .. } = self.question;
        let number = |value: f64| match unit {
            Unit::Mib => format!("{:.1} MiB", value / MIB),
            Unit::Number => format!("{value}"),
            Unit::Nanoseconds => format!("{value:.0} ns"),
        };
        let verdict = match (self.is_judged, self.holds()) {
            (false, _) => "not judged",
            (true, true) => "flat",
            (true, false) => "GROWS",
        };
        write!(
            f,
            "{name:24} {:>11} {:>11} {:>11}   {verdict:10} (+ {:.0} % and {} allowed",
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

/// The head of a table of answers.
pub fn head() -> String {
    format!("{:24} {:>11} {:>11} {:>11}", "", "first third", "second", "last")
}

/// Answers all questions.
pub fn judge(rows: &[Row], judges_times: bool) -> Vec<Answer> {
    let third = rows.len() / 3;
    let answer = |question: Question| {
        let value = |rows: &[Row]| question.of.of(rows.iter().map(|row| row[question.column]).collect());
        Answer {
            question,
            first: value(&rows[..third]),
            second: value(&rows[third..rows.len() - third]),
            last: value(&rows[rows.len() - third..]),
            largest: Quantile::Largest.of(rows.iter().map(|row| row[question.column]).collect()),
            is_judged: judges_times || question.unit != Unit::Nanoseconds,
        }
    };
    QUESTIONS.into_iter().map(answer).collect()
}

//! Ranks for people: a table, who is the odd one and why, how far they drift apart, and what could not be read.

use super::Ranks;
use super::digest::DeviceDigest;
use super::job::list;
use super::memory::{Measure, Outlier, RanksMemory};
use super::skew::{Skew, StepSkew};
use super::why::Difference;
use crate::analysis::layout::{Layout, SHORTEST_NAME, wrapped};
use comfy_table::{Cell, CellAlignment, ContentLineStyle, LineStyle, Table, TableStyle};
use memtrack_model::units::{capitalised, counted, human_bytes, printable, shorten_middle};
use std::fmt::{self, Write};

/// Groups that are told of a rank.
const GROUPS: usize = 5;
/// Odd ranks of which it is told why.
const EXPLAINED: usize = 3;
/// Steps that are told one by one.
const STEPS: usize = 3;
/// Ranks are parts of a whole rather than odd ones where more than one in so many is off.
const MOST_ODD: usize = 4;

/// A number that is told of a rank.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Peak,
    ToMedian,
    When,
    Phase,
    Reserved,
    Waste,
    End,
    OutOfMemory,
}

/// The columns that can be spared, the first to go first.
const FIRST_TO_GO: [Column; 5] = [Column::End, Column::When, Column::Phase, Column::Waste, Column::Reserved];

impl Column {
    const ALL: [Self; 8] = [
        Self::Peak,
        Self::ToMedian,
        Self::When,
        Self::Phase,
        Self::Reserved,
        Self::Waste,
        Self::End,
        Self::OutOfMemory,
    ];

    fn head(self) -> &'static str {
        match self {
            Self::Peak => "Peak",
            Self::ToMedian => "To median",
            Self::When => "When",
            Self::Phase => "Phase",
            Self::Reserved => "Reserved",
            Self::Waste => "Waste",
            Self::End => "End",
            Self::OutOfMemory => "Out of memory",
        }
    }

    fn of(self, device: &DeviceDigest, memory: &RanksMemory) -> String {
        let bytes = |bytes: Option<u64>| bytes.map_or("—".to_owned(), human_bytes);
        match self {
            Self::Peak => device.peak.error.as_bytes(device.peak.requested_bytes),
            Self::ToMedian => {
                let median = memory.middle(Measure::Peak).map_or(0, |middle| middle.median);
                let own = device.peak.requested_bytes;
                match (own.abs_diff(median), own > median) {
                    (0, _) => "±0 B".to_owned(),
                    (by, true) => format!("+{}", human_bytes(by)),
                    (by, false) => format!("−{}", human_bytes(by)),
                }
            }
            Self::When => device.peak.seconds.map_or("—".to_owned(), |seconds| format!("{seconds:.3} s")),
            Self::Phase => device.peak.phase.clone().unwrap_or_else(|| "—".into()),
            Self::Reserved => bytes(Measure::Reserved.of(device)),
            Self::Waste => bytes(device.waste_bytes()),
            Self::End => device.end.error.as_bytes(device.end.requested_bytes),
            Self::OutOfMemory => match device.out_of_memory.len() {
                0 => "—".to_owned(),
                times => counted(times as u64, "time"),
            },
        }
    }

    /// Whether any of the devices has something to say here.
    fn says(self, devices: &[&DeviceDigest]) -> bool {
        devices.iter().any(|device| match self {
            Self::Peak | Self::ToMedian | Self::End => true,
            Self::When => device.peak.seconds.is_some(),
            Self::Phase => device.peak.phase.is_some(),
            Self::Reserved | Self::Waste => device.reserved.is_some(),
            Self::OutOfMemory => !device.out_of_memory.is_empty(),
        })
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(None, usize::MAX))
    }
}

impl Ranks {
    /// The report as text, with at most `limit` ranks in each table: the odd ones and those with the highest peaks, in
    /// order. Where the layout has a width, columns are left out until the tables fit.
    pub fn to_text(&self, layout: impl Into<Layout>, limit: usize) -> String {
        let width = layout.into().width;
        // Writing to a string cannot fail.
        let mut text = String::new();
        let files = counted(self.ranks.len() as u64, "rank");
        let _ = writeln!(text, "{files}{}", self.job().map_or(String::new(), |job| format!(" of job {job}")));
        for doubt in &self.doubts {
            text.push_str(&wrapped(&format!("Careful: {}.\n", printable(doubt)), width));
        }
        if self.memories.is_empty() && !self.ranks.is_empty() {
            text.push_str("None of them holds any memory.\n");
        }
        for memory in &self.memories {
            let _ = writeln!(text, "\n{}, {}", capitalised(&memory.name), self.of_how_many(memory));
            text.push_str(&self.table(memory, limit, width));
            text.push('\n');
            for sentence in self.verdict(memory) {
                text.push_str(&wrapped(&(printable(&sentence) + "\n"), width));
            }
            self.explain(&mut text, memory, width);
            if let Some(skew) = &memory.skew {
                text.push_str(&wrapped(&(printable(&self.skew_line(skew)) + "\n"), width));
                for line in self.worst_steps(skew) {
                    let _ = writeln!(text, "  {}", printable(&line));
                }
            }
        }
        self.incomplete(&mut text, width);
        if !self.unread.is_empty() {
            let _ = writeln!(text, "\nNot read: {}", counted(self.unread.len() as u64, "file"));
            for (file, why) in &self.unread {
                let _ = writeln!(text, "  {}: {}", printable(file), printable(why));
            }
        }
        text
    }

    /// The answer in sentences.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let several = self.memories.len() > 1;
        for memory in &self.memories {
            let of = if several { format!("{}: ", memory.name) } else { String::new() };
            sentences.extend(self.verdict(memory).into_iter().map(|sentence| format!("{of}{sentence}")));
            sentences.extend(memory.skew.as_ref().map(|skew| format!("{of}{}", self.skew_line(skew))));
        }
        sentences
    }

    fn job(&self) -> Option<String> {
        self.ranks.iter().find_map(|rank| rank.name.job.as_deref()).map(printable)
    }

    fn of_how_many(&self, memory: &RanksMemory) -> String {
        match memory.members.len() == self.ranks.len() {
            true if self.ranks.len() > 1 => "of all of them".into(),
            true => "of the only one".into(),
            false => format!("of {} of {}", memory.members.len(), self.ranks.len()),
        }
    }

    fn device(&self, &(rank, at): &(usize, usize)) -> &DeviceDigest {
        &self.ranks[rank].devices[at]
    }

    /// Who is odd, a sentence for each measure, and for all where nobody is.
    fn verdict(&self, memory: &RanksMemory) -> Vec<String> {
        let peak = memory.middle(Measure::Peak);
        let spread = peak.map_or(String::new(), |middle| match middle.least == middle.most {
            true => format!("each peaks at {}", human_bytes(middle.most)),
            false => format!("peaks are {} to {}", human_bytes(middle.least), human_bytes(middle.most)),
        });
        if let Some(why) = &memory.cannot_tell {
            return vec![format!("Cannot tell who is the odd one: {why}; {spread}.")];
        }
        if memory.outliers.is_empty() {
            return vec![format!("No rank is odd: {spread}.")];
        }
        let mut sentences: Vec<String> = Measure::ALL
            .into_iter()
            .flat_map(|measure| {
                let odd: Vec<&Outlier> =
                    memory.outliers.iter().filter(|one| one.measure == measure).collect();
                let (more, less): (Vec<&Outlier>, Vec<&Outlier>) =
                    odd.into_iter().partition(|one| one.by() > 0);
                [more, less].map(|side| self.odd_ones(measure, &side)).into_iter().flatten()
            })
            .collect();
        let mut odd: Vec<usize> = memory.outliers.iter().map(|one| one.rank).collect();
        odd.sort_unstable();
        odd.dedup();
        if odd.len() * MOST_ODD > memory.members.len() && odd.len() > 1 {
            sentences.push(format!(
                "{} of {} ranks are off the median: more than a few, so perhaps they have different roles (stages of a \
                 pipeline).",
                odd.len(),
                memory.members.len()
            ));
        }
        sentences
    }

    /// Those that are off to the same side, in a sentence.
    fn odd_ones(&self, measure: Measure, odd: &[&Outlier]) -> Option<String> {
        let first = odd.first()?;
        let more = first.by() > 0;
        let what = match (measure, more) {
            (Measure::Peak, true) => "peaks higher than the others: ",
            (Measure::Peak, false) => "peaks lower than the others: ",
            (Measure::Reserved, true) => "reserves more than the others: ",
            (Measure::Reserved, false) => "reserves less than the others: ",
            (Measure::Waste, true) => "wastes more than the others: ",
            (Measure::Waste, false) => return None,
            (Measure::End, true) => "holds more at the end than the others: ",
            (Measure::End, false) => "holds less at the end than the others: ",
        };
        let by = human_bytes(u64::try_from(first.by().unsigned_abs()).unwrap_or(u64::MAX));
        let numbers = format!(
            "{}, {by} {} than the median of {}",
            human_bytes(first.bytes),
            if more { "more" } else { "less" },
            human_bytes(first.median)
        );
        let others = match odd.len() {
            1 => String::new(),
            _ => {
                let rest = list(odd[1..].iter().map(|one| self.label(one.rank)));
                format!("; so {} {rest}", if odd.len() == 2 { "does" } else { "do" })
            }
        };
        Some(format!("{} {what}{numbers}{others}.", capitalised(&self.label(first.rank))))
    }

    /// The groups that make ranks odd.
    fn explain(&self, text: &mut String, memory: &RanksMemory, width: Option<usize>) {
        let mut told: Vec<usize> = Vec::new();
        for outlier in &memory.outliers {
            if told.contains(&outlier.rank) || told.len() >= EXPLAINED {
                continue;
            }
            // What is live at the peak says more than what is left at the end, where both are off.
            let with_groups =
                memory.outliers.iter().filter(|one| one.rank == outlier.rank && !one.why.is_empty());
            let Some(shown) = with_groups.min_by_key(|one| match one.measure {
                Measure::Peak => 0,
                Measure::End => 1,
                _ => 2,
            }) else {
                continue;
            };
            told.push(outlier.rank);
            let when = if shown.measure == Measure::End { "at the end" } else { "at its peak" };
            let title = format!(
                "Why {}, {when}, against the median of each {}\n",
                printable(&self.label(outlier.rank)),
                self.by.name()
            );
            let _ = write!(text, "\n{}", wrapped(&title, width));
            for difference in shown.why.iter().take(GROUPS) {
                let numbers = format!("  {:>12}  ", signed_bytes(difference.by()));
                let tail = format!("  {}", about(difference));
                let room = width.map_or(usize::MAX, |width| {
                    width.saturating_sub(numbers.chars().count() + tail.chars().count())
                });
                let name = shorten_middle(&printable(&difference.name), room.max(SHORTEST_NAME));
                let _ = writeln!(text, "{numbers}{name}{tail}");
            }
            let more = shown.why.len().saturating_sub(GROUPS);
            if more > 0 {
                let _ = writeln!(text, "  … and {}", counted(more as u64, "more group"));
            }
        }
        if !told.is_empty() && memory.skew.is_some() {
            text.push('\n');
        }
    }

    fn skew_line(&self, skew: &Skew) -> String {
        let count = counted(skew.steps.len() as u64, "step");
        let name = &skew.name;
        let Some(worst) = skew.worst().filter(|worst| worst.most > worst.median) else {
            return format!("Steps ({name}): {count}; in each of them all ranks peak alike.");
        };
        let mut line = format!(
            "Steps ({name}): {count}; furthest apart in {}, where the highest peak is {}",
            worst.number,
            to_median(worst)
        );
        if let Some(&(rank, times)) = skew.highest.first() {
            let _ =
                write!(line, "; {} alone is highest in {times} of {}", self.label(rank), skew.steps.len());
        }
        line.push('.');
        line
    }

    /// The steps in which ranks are furthest apart, those of which there is something to say.
    fn worst_steps(&self, skew: &Skew) -> Vec<String> {
        let mut worst: Vec<&StepSkew> = skew.steps.iter().filter(|step| step.most > step.median).collect();
        worst.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()).then(a.number.cmp(&b.number)));
        worst.truncate(STEPS);
        let line = |step: &&StepSkew| {
            let who = step.highest.map_or_else(|| "several ranks".to_owned(), |rank| self.label(rank));
            let (most, median) = (human_bytes(step.most), human_bytes(step.median));
            format!("step {}: {who} {most}, median {median} of {} ranks", step.number, step.ranks)
        };
        worst.iter().map(line).collect()
    }

    /// Which ranks to show where not all are: odd ones, then those with the highest peaks, in order.
    fn shown(&self, memory: &RanksMemory, limit: usize) -> Vec<(usize, usize)> {
        let mut members = memory.members.clone();
        if members.len() > limit {
            let is_odd = |rank: usize| memory.outliers.iter().any(|one| one.rank == rank);
            members.sort_by_key(|member| {
                let peak = self.device(member).peak.requested_bytes;
                (!is_odd(member.0), std::cmp::Reverse(peak), member.0)
            });
            members.truncate(limit);
            members.sort_unstable();
        }
        members
    }

    fn table(&self, memory: &RanksMemory, limit: usize, width: Option<usize>) -> String {
        let shown = self.shown(memory, limit);
        let devices: Vec<&DeviceDigest> = shown.iter().map(|member| self.device(member)).collect();
        let mut columns: Vec<Column> =
            Column::ALL.into_iter().filter(|column| column.says(&devices)).collect();
        let mut spare = FIRST_TO_GO.iter();
        let mut text = loop {
            let table = self.drawn(memory, &shown, &columns, usize::MAX);
            let widest = table.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            let Some(width) = width.filter(|&width| widest > width) else { break table };
            let Some(goes) = spare.next() else {
                let names = shown.iter().map(|member| self.label(member.0).chars().count());
                let room = names.max().unwrap_or(0).saturating_sub(widest - width).max(SHORTEST_NAME);
                break self.drawn(memory, &shown, &columns, room);
            };
            columns.retain(|column| column != goes);
        };
        let more = memory.members.len() - shown.len();
        if more > 0 {
            let _ = writeln!(text, "… and {} (-n 0 shows all)", counted(more as u64, "more rank"));
        }
        text
    }

    fn drawn(
        &self,
        memory: &RanksMemory,
        members: &[(usize, usize)],
        columns: &[Column],
        name_width: usize,
    ) -> String {
        let mut table = Table::new();
        table.load_style(
            TableStyle::new()
                .header_lines(ContentLineStyle::none())
                .header_separator(LineStyle::none().fill('─'))
                .content_lines(ContentLineStyle::none()),
        );
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let heads = columns.iter().map(|column| right(column.head().into()));
        table.set_header(std::iter::once(Cell::new("Rank")).chain(heads));
        for member in members {
            let name = match self.ranks[member.0].name.rank {
                Some(rank) => rank.to_string(),
                None => shorten_middle(&printable(&self.ranks[member.0].file), name_width),
            };
            let device = self.device(member);
            let numbers = columns.iter().map(|column| right(column.of(device, memory)));
            table.add_row(std::iter::once(Cell::new(name)).chain(numbers));
        }
        table.trim_fmt() + "\n"
    }

    /// Which files say less than they should.
    fn incomplete(&self, text: &mut String, width: Option<usize>) {
        let cut = self.ranks.iter().enumerate().filter(|(_, rank)| !rank.complete);
        let cut: Vec<String> = cut.map(|(place, _)| self.label(place)).collect();
        let dropped = self.ranks.iter().enumerate();
        let dropped: Vec<String> = dropped
            .filter(|(_, rank)| rank.devices.iter().any(|device| device.dropped > 0))
            .map(|(place, _)| self.label(place))
            .collect();
        if !cut.is_empty() || !dropped.is_empty() {
            text.push('\n');
        }
        if !cut.is_empty() {
            let line = format!("Recordings without their end: {}.\n", list(cut.into_iter()));
            text.push_str(&wrapped(&printable_line(&line), width));
        }
        if !dropped.is_empty() {
            let line =
                format!("Older events did not fit the recorder's ring in {}.\n", list(dropped.into_iter()));
            text.push_str(&wrapped(&printable_line(&line), width));
        }
    }
}

/// A line with what cannot be shown replaced, and its end kept.
fn printable_line(line: &str) -> String {
    printable(line.trim_end_matches('\n')) + "\n"
}

fn signed_bytes(by: i128) -> String {
    let sign = if by < 0 { "−" } else { "+" };
    format!("{sign}{}", human_bytes(u64::try_from(by.unsigned_abs()).unwrap_or(u64::MAX)))
}

/// How a group stands to the others'.
fn about(difference: &Difference) -> String {
    match (difference.bytes, difference.others) {
        (0, others) => {
            format!("it has none, {} do", counted(others as u64, "other").replace("other", "rank"))
        }
        (_, 0) => format!("in no other rank, {}", counted(difference.blocks, "block")),
        (own, _) => format!("{}, median {}", human_bytes(own), human_bytes(difference.median)),
    }
}

/// How high the highest rank of a step is.
fn to_median(step: &StepSkew) -> String {
    match step.ratio() {
        ratio if ratio.is_finite() => format!("{ratio:.2} times the median"),
        _ => format!("{}, and most ranks have none", human_bytes(step.most)),
    }
}

//! Ranks as text: a table, the outliers and the reasons for them, how far apart the ranks are, and the files that could
//! not be read.

use super::digest::{DeviceDigest, RankDigest};
use super::job::format_names;
use super::memory::{Measure, Outlier, RanksMemory};
use super::skew::{Skew, StepSkew};
use super::why::Difference;
use super::{Ranks, Unread};
use crate::layout::{Layout, MIN_NAME_CHARS, new_table, wrap};
use comfy_table::{Cell, CellAlignment};
use memtrack_model::units::{capitalised, counted, human_bytes, printable, shorten_middle};
use std::fmt::{self, Write};

/// The maximum number of groups to list per rank.
const MAX_GROUPS: usize = 5;
/// The maximum number of outliers to explain.
const MAX_EXPLAINED: usize = 3;
/// The maximum number of steps to list.
const MAX_STEPS: usize = 3;
/// If more than one in this many ranks is an outlier, the ranks probably have different roles.
const MIN_RANKS_PER_OUTLIER: usize = 4;

/// A numeric column of the table.
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

/// The columns to drop, in this order, if the width is insufficient.
const DROP_ORDER: [Column; 5] = [Column::End, Column::When, Column::Phase, Column::Waste, Column::Reserved];

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

    fn heading(self) -> &'static str {
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

    /// Formats this column's value for a device; `complete` is true if the rank's recording is complete.
    fn format_cell(self, device: &DeviceDigest, memory: &RanksMemory, complete: bool) -> String {
        let bytes = |bytes: Option<u64>| bytes.map_or("—".to_owned(), human_bytes);
        match self {
            Self::Peak => device.peak.error.with_completeness(complete).as_bytes(device.peak.requested_bytes),
            Self::ToMedian => {
                let median = memory.distribution(Measure::Peak).map_or(0, |distribution| distribution.median);
                let own = device.peak.requested_bytes;
                device.peak.error.format_difference(own, median)
            }
            Self::When => device.peak.seconds.map_or("—".to_owned(), |seconds| format!("{seconds:.3} s")),
            Self::Phase => device.peak.phase.clone().unwrap_or_else(|| "—".into()),
            Self::Reserved => bytes(Measure::Reserved.of(device)),
            Self::Waste => bytes(device.waste_bytes),
            Self::End => device.end.error.with_completeness(complete).as_bytes(device.end.requested_bytes),
            Self::OutOfMemory => match device.out_of_memory.len() {
                0 => "—".to_owned(),
                times => counted(times as u64, "time"),
            },
        }
    }

    /// Returns whether any of the devices has a value in this column.
    fn has_values(self, devices: &[&DeviceDigest]) -> bool {
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
    /// Formats the report with at most `limit` ranks in each table: the outliers and those with the highest peaks, in
    /// order. If the layout has a width, columns are dropped until the tables fit.
    pub fn to_text(&self, layout: impl Into<Layout>, limit: usize) -> String {
        let width = layout.into().width;
        // Writing to a string cannot fail.
        let mut text = String::new();
        let _ = writeln!(text, "{}", self.title());
        for doubt in &self.doubts {
            text.push_str(&wrap(&format!("Careful: {}.\n", printable(doubt)), width));
        }
        if self.memories.is_empty() && !self.ranks.is_empty() {
            text.push_str("None of them holds any memory.\n");
        }
        for memory in &self.memories {
            let _ = writeln!(text, "\n{}", self.heading(memory));
            text.push_str(&self.format_table(memory, limit, width));
            text.push('\n');
            for sentence in self.verdict(memory) {
                text.push_str(&wrap(&(printable(&sentence) + "\n"), width));
            }
            self.push_explanations(&mut text, memory, width);
            if let Some(skew) = &memory.skew {
                text.push_str(&wrap(&(printable(&self.steps_sentence(skew)) + "\n"), width));
                for line in self.describe_worst_steps(skew) {
                    let _ = writeln!(text, "  {}", printable(&line));
                }
            }
        }
        self.push_incomplete(&mut text, width);
        if !self.unread.is_empty() {
            let _ = writeln!(text, "\nNot read: {}", counted(self.unread.len() as u64, "file"));
            for Unread { path, why } in &self.unread {
                let _ = writeln!(text, "  {}: {}", printable(path), printable(why));
            }
        }
        text
    }

    /// Returns the summary as sentences.
    pub(super) fn summary_sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let several = self.memories.len() > 1;
        for memory in &self.memories {
            let of = if several { format!("{}: ", memory.device.name) } else { String::new() };
            sentences.extend(self.verdict(memory).into_iter().map(|sentence| format!("{of}{sentence}")));
            sentences.extend(memory.skew.as_ref().map(|skew| format!("{of}{}", self.steps_sentence(skew))));
        }
        sentences
    }

    /// Formats the title of the report, as in `8 ranks of job 17`.
    pub fn title(&self) -> String {
        let files = counted(self.ranks.len() as u64, "rank");
        format!("{files}{}", self.format_job().map_or(String::new(), |job| format!(" of job {job}")))
    }

    /// Formats the heading for one kind of memory, as in `Device 0, all ranks`.
    pub fn heading(&self, memory: &RanksMemory) -> String {
        format!("{}, {}", capitalised(&memory.device.name), self.format_rank_count(memory))
    }

    fn format_job(&self) -> Option<String> {
        self.ranks.iter().find_map(|rank| rank.job.as_deref()).map(printable)
    }

    fn format_rank_count(&self, memory: &RanksMemory) -> String {
        match memory.members.len() == self.ranks.len() {
            true if self.ranks.len() > 1 => "all ranks".into(),
            true => "the only rank".into(),
            false => format!("{} of {} ranks", memory.members.len(), self.ranks.len()),
        }
    }

    fn device(&self, &(rank, at): &(usize, usize)) -> &DeviceDigest {
        &self.ranks[rank].devices[at]
    }

    /// Describes the outliers in a sentence for each measure, or in a single sentence if there are none.
    pub fn verdict(&self, memory: &RanksMemory) -> Vec<String> {
        let peak = memory.distribution(Measure::Peak);
        let spread =
            peak.map_or(String::new(), |distribution| match distribution.least == distribution.most {
                true => format!("each peaks at {}", human_bytes(distribution.most)),
                false => format!(
                    "peaks are {} to {}",
                    human_bytes(distribution.least),
                    human_bytes(distribution.most)
                ),
            });
        if let Some(why) = &memory.cannot_tell {
            return vec![format!("Cannot determine the odd rank: {why}; {spread}.")];
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
                    odd.into_iter().partition(|one| one.by > 0);
                [more, less].map(|side| self.format_outliers(measure, &side)).into_iter().flatten()
            })
            .collect();
        let mut odd: Vec<usize> = memory.outliers.iter().map(|one| one.place).collect();
        odd.sort_unstable();
        odd.dedup();
        if odd.len() * MIN_RANKS_PER_OUTLIER > memory.members.len() && odd.len() > 1 {
            sentences.push(format!(
                "{} of {} ranks are off the median: more than a few, so perhaps they have different roles (stages of a \
                 pipeline).",
                odd.len(),
                memory.members.len()
            ));
        }
        sentences
    }

    /// Describes the ranks that are outliers in the same direction, in one sentence.
    fn format_outliers(&self, measure: Measure, odd: &[&Outlier]) -> Option<String> {
        let first = odd.first()?;
        let more = first.by > 0;
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
        let by = human_bytes(u64::try_from(first.by.unsigned_abs()).unwrap_or(u64::MAX));
        let numbers = format!(
            "{}, {by} {} than the median of {}",
            human_bytes(first.bytes),
            if more { "more" } else { "less" },
            human_bytes(first.median)
        );
        let others = match odd.len() {
            1 => String::new(),
            _ => {
                let rest = format_names(odd[1..].iter().map(|one| self.label(one.place)));
                format!("; so {} {rest}", if odd.len() == 2 { "does" } else { "do" })
            }
        };
        Some(format!("{} {what}{numbers}{others}.", capitalised(&self.label(first.place))))
    }

    /// Returns the most informative measure of each outlier that has groups to explain it, starting with the rank
    /// furthest from the median.
    pub fn explained<'a>(&self, memory: &'a RanksMemory) -> Vec<&'a Outlier> {
        let mut explained: Vec<&Outlier> = Vec::new();
        for outlier in &memory.outliers {
            if explained.iter().any(|one| one.place == outlier.place) {
                continue;
            }
            // If a rank is an outlier both at the peak and at the end, the groups at the peak are more informative.
            let with_groups =
                memory.outliers.iter().filter(|one| one.place == outlier.place && !one.why.is_empty());
            explained.extend(with_groups.min_by_key(|one| match one.measure {
                Measure::Peak => 0,
                Measure::End => 1,
                _ => 2,
            }));
        }
        explained
    }

    /// Formats the heading above the groups that explain an outlier.
    pub fn why_title(&self, outlier: &Outlier) -> String {
        let when = if outlier.measure == Measure::End { "at the end" } else { "at its peak" };
        format!("Why {}, {when}, against the median of each {}", self.label(outlier.place), self.by.name())
    }

    /// Writes the groups that explain the outliers.
    fn push_explanations(&self, text: &mut String, memory: &RanksMemory, width: Option<usize>) {
        let explained = self.explained(memory);
        for outlier in explained.iter().take(MAX_EXPLAINED) {
            let title = printable(&self.why_title(outlier)) + "\n";
            let _ = write!(text, "\n{}", wrap(&title, width));
            for difference in outlier.why.iter().take(MAX_GROUPS) {
                let numbers = format!("  {:>12}  ", signed_bytes(difference.by));
                let tail = format!("  {}", difference.about());
                let room = width.map_or(usize::MAX, |width| {
                    width.saturating_sub(numbers.chars().count() + tail.chars().count())
                });
                let name = shorten_middle(&printable(&difference.name), room.max(MIN_NAME_CHARS));
                let _ = writeln!(text, "{numbers}{name}{tail}");
            }
            let more = outlier.why.len().saturating_sub(MAX_GROUPS);
            if more > 0 {
                let _ = writeln!(text, "  … and {}", counted(more as u64, "more group"));
            }
        }
        if !explained.is_empty() && memory.skew.is_some() {
            text.push('\n');
        }
    }

    /// Describes how far apart the ranks are from step to step, in one sentence.
    pub fn steps_sentence(&self, skew: &Skew) -> String {
        let count = counted(skew.steps.len() as u64, "step");
        let name = &skew.name;
        let Some(worst) = skew.worst().filter(|worst| worst.most > worst.median) else {
            return format!("Steps ({name}): {count}; in each of them all ranks peak alike.");
        };
        let mut line = format!(
            "Steps ({name}): {count}; furthest apart in {}, where the highest peak is {}",
            worst.number,
            format_relative_to_median(worst)
        );
        if let Some(rank) = skew.highest.first() {
            let name = self.label(rank.place);
            let _ = write!(line, "; {name} alone is highest in {} of {}", rank.steps, skew.steps.len());
        }
        line.push('.');
        line
    }

    /// Describes the steps in which ranks are furthest apart, if they differ at all.
    fn describe_worst_steps(&self, skew: &Skew) -> Vec<String> {
        let mut worst: Vec<&StepSkew> = skew.steps.iter().filter(|step| step.most > step.median).collect();
        worst.sort_by(|a, b| b.ratio.total_cmp(&a.ratio).then(a.number.cmp(&b.number)));
        worst.truncate(MAX_STEPS);
        let line = |step: &&StepSkew| {
            let who = step.highest.map_or_else(|| "several ranks".to_owned(), |rank| self.label(rank));
            let (most, median) = (human_bytes(step.most), human_bytes(step.median));
            format!("step {}: {who} {most}, median {median} of {} ranks", step.number, step.ranks)
        };
        worst.iter().map(line).collect()
    }

    /// Returns at most `limit` ranks to show, in order: the outliers and those with the highest peaks.
    fn shown_ranks(&self, memory: &RanksMemory, limit: usize) -> Vec<(usize, usize)> {
        let mut members = memory.members.clone();
        if members.len() > limit {
            let is_odd = |rank: usize| memory.outliers.iter().any(|one| one.place == rank);
            members.sort_by_key(|member| {
                let peak = self.device(member).peak.requested_bytes;
                (!is_odd(member.0), std::cmp::Reverse(peak), member.0)
            });
            members.truncate(limit);
            members.sort_unstable();
        }
        members
    }

    fn format_table(&self, memory: &RanksMemory, limit: usize, width: Option<usize>) -> String {
        let shown = self.shown_ranks(memory, limit);
        let devices: Vec<&DeviceDigest> = shown.iter().map(|member| self.device(member)).collect();
        let mut columns: Vec<Column> =
            Column::ALL.into_iter().filter(|column| column.has_values(&devices)).collect();
        let mut droppable = DROP_ORDER.iter();
        let mut text = loop {
            let table = self.format_table_of(memory, &shown, &columns, usize::MAX);
            let widest = table.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            let Some(width) = width.filter(|&width| widest > width) else { break table };
            let Some(dropped) = droppable.next() else {
                let names = shown.iter().map(|member| self.label(member.0).chars().count());
                let room = names.max().unwrap_or(0).saturating_sub(widest - width).max(MIN_NAME_CHARS);
                break self.format_table_of(memory, &shown, &columns, room);
            };
            columns.retain(|column| column != dropped);
        };
        let more = memory.members.len() - shown.len();
        if more > 0 {
            let _ = writeln!(text, "… and {} (-n 0 shows all)", counted(more as u64, "more rank"));
        }
        text
    }

    fn format_table_of(
        &self,
        memory: &RanksMemory,
        members: &[(usize, usize)],
        columns: &[Column],
        name_width: usize,
    ) -> String {
        let mut table = new_table();
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let heads = columns.iter().map(|column| right(column.heading().into()));
        table.set_header(std::iter::once(Cell::new("Rank")).chain(heads));
        for member in members {
            let name = match self.ranks[member.0].rank {
                Some(rank) => rank.to_string(),
                None => shorten_middle(&printable(&self.ranks[member.0].file), name_width),
            };
            let (device, complete) = (self.device(member), self.ranks[member.0].complete);
            let numbers = columns.iter().map(|column| right(column.format_cell(device, memory, complete)));
            table.add_row(std::iter::once(Cell::new(name)).chain(numbers));
        }
        table.trim_fmt() + "\n"
    }

    /// Returns sentences about files that are incomplete.
    pub fn gaps(&self) -> Vec<String> {
        let named = |matches: &dyn Fn(&RankDigest) -> bool| -> Vec<String> {
            let places = self.ranks.iter().enumerate().filter(|(_, rank)| matches(rank));
            places.map(|(place, _)| self.label(place)).collect()
        };
        let cut = named(&|rank| !rank.complete);
        let dropped = named(&|rank| rank.devices.iter().any(|device| device.dropped > 0));
        let mut gaps = Vec::new();
        if !cut.is_empty() {
            gaps.push(format!("Recordings that were not ended: {}.", format_names(cut.into_iter())));
        }
        if !dropped.is_empty() {
            let ranks = format_names(dropped.into_iter());
            gaps.push(format!("Older events did not fit the recorder's ring in {ranks}."));
        }
        gaps
    }

    fn push_incomplete(&self, text: &mut String, width: Option<usize>) {
        let gaps = self.gaps();
        if !gaps.is_empty() {
            text.push('\n');
        }
        for gap in gaps {
            text.push_str(&wrap(&(printable(&gap) + "\n"), width));
        }
    }

    /// Returns the table for one kind of memory with at most `limit` ranks: the outliers and those with the highest
    /// peaks, in order.
    pub fn numbers(&self, memory: &RanksMemory, limit: usize) -> RankNumbers {
        let shown = self.shown_ranks(memory, limit);
        let devices: Vec<&DeviceDigest> = shown.iter().map(|member| self.device(member)).collect();
        let columns: Vec<Column> =
            Column::ALL.into_iter().filter(|column| column.has_values(&devices)).collect();
        let row = |member: &(usize, usize)| {
            let (device, complete) = (self.device(member), self.ranks[member.0].complete);
            (member.0, columns.iter().map(|column| column.format_cell(device, memory, complete)).collect())
        };
        RankNumbers {
            heads: columns.iter().map(|column| column.heading()).collect(),
            rows: shown.iter().map(row).collect(),
            left_out: memory.members.len() - shown.len(),
        }
    }
}

/// A table of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankNumbers {
    /// The headings of the columns that have values.
    pub heads: Vec<&'static str>,
    /// Each rank's index in [`Ranks::ranks`] and the values of its columns, with `—` for unknown values.
    pub rows: Vec<(usize, Vec<String>)>,
    /// The number of ranks that are left out.
    pub left_out: usize,
}

/// Formats a difference with its sign, as in `+48.0 MiB` or `−1.5 KiB`.
pub fn signed_bytes(by: i128) -> String {
    let sign = if by < 0 { "−" } else { "+" };
    format!("{sign}{}", human_bytes(u64::try_from(by.unsigned_abs()).unwrap_or(u64::MAX)))
}

impl Difference {
    /// Compares the rank's group with the same group in the other ranks, in a few words.
    pub fn about(&self) -> String {
        match (self.bytes, self.others) {
            (0, others) => {
                format!("it has none, {} do", counted(others as u64, "other").replace("other", "rank"))
            }
            (_, 0) => format!("in no other rank, {}", counted(self.blocks, "block")),
            (own, _) => format!("{}, median {}", human_bytes(own), human_bytes(self.median)),
        }
    }
}

/// Describes the highest peak in a step relative to the median.
fn format_relative_to_median(step: &StepSkew) -> String {
    match step.ratio {
        ratio if ratio.is_finite() => format!("{ratio:.2} times the median"),
        _ => format!("{}, and most ranks have none", human_bytes(step.most)),
    }
}

//! A ranking as a text table, with a footer that states the totals and the memory that the numbers may lack.

use super::folded::folded_notes;
use super::frames::format_frames;
use super::{Age, By, TopReport, TopRow};
use crate::layout::{Layout, MIN_LEGIBLE_NAME_CHARS, MIN_NAME_CHARS, new_table, shorten_function, wrap};
use comfy_table::{Cell, CellAlignment};
use memtrack_blocks::estimate::Estimate;
use memtrack_blocks::moment::Moment;
use memtrack_model::units::{counted, human_bytes, human_count, printable, shorten_middle};
use std::fmt::{self, Write};

/// The note to print if the end of a recording is missing.
pub(crate) const NOT_ENDED_NOTE: &str = "The recording was not ended: later events are missing, so \
                                                 sums, peaks and the memory live at the end may be \
                                                 higher.";

/// A numeric column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Bytes,
    Share,
    LiveAtPeak,
    Growth,
    Oldest,
    MedianAge,
    Count,
    Largest,
}

/// The columns to drop, in this order, if the width is insufficient: first for rankings of all allocations, then for
/// rankings at a given moment.
const DROP_ORDER: [&[Column]; 2] = [
    &[Column::Largest, Column::LiveAtPeak, Column::Count],
    &[Column::LiveAtPeak, Column::Largest, Column::MedianAge, Column::Oldest, Column::Growth, Column::Count],
];

impl Column {
    fn heading(self, at_a_moment: bool) -> &'static str {
        match self {
            Self::Bytes if at_a_moment => "Live",
            Self::Bytes => "Requested",
            Self::Share => "Share",
            Self::LiveAtPeak => "Live at peak",
            Self::Growth => "Growth",
            Self::Oldest => "Oldest",
            Self::MedianAge => "Median age",
            Self::Count => "Blocks",
            Self::Largest => "Largest",
        }
    }

    fn format_cell(self, row: &TopRow) -> String {
        let age = |age: Option<Age>| age.map_or("—".to_owned(), Age::text);
        match self {
            Self::Bytes => row.allocated_error.as_bytes(row.allocated_bytes),
            Self::Share => row.allocated_error.as_share(row.share),
            Self::LiveAtPeak => row.live_at_peak_error.as_bytes(row.live_at_peak_bytes),
            Self::Growth => row.trend.growth.map_or("—".to_owned(), |growth| growth.text()),
            Self::Oldest => age(row.trend.age.map(|age| age.oldest)),
            Self::MedianAge => age(row.trend.age.and_then(|age| age.median)),
            Self::Count => row.count_error.as_count(row.count),
            Self::Largest => human_bytes(row.largest_bytes),
        }
    }
}

impl fmt::Display for TopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(None))
    }
}

impl TopReport {
    /// Formats the report. If the layout has a width, names are shortened until the table fits.
    pub fn to_text(&self, layout: impl Into<Layout>) -> String {
        let Layout { width, frames } = layout.into();
        let mut text = wrap(&self.format_title(), width);
        if self.rows.is_empty() {
            match self.at {
                Some(_) => text.push_str("No block was live at that moment.\n"),
                None => text.push_str(&self.format_empty()),
            }
        } else {
            let longest =
                self.rows.iter().flat_map(|row| format_name_lines(row, self.by, frames, usize::MAX));
            let longest = longest.map(|line| line.chars().count()).max().unwrap_or(0);
            let mut columns = self.columns();
            let mut droppable = DROP_ORDER[usize::from(self.at.is_some())].iter();
            loop {
                let full = self.format_table(&columns, frames, usize::MAX);
                let widest = full.lines().map(|line| line.chars().count()).max().unwrap_or(0);
                let Some(width) = width.filter(|&width| widest > width) else {
                    text.push_str(&full);
                    break;
                };
                let room = longest.saturating_sub(widest - width);
                let dropped =
                    if room < MIN_LEGIBLE_NAME_CHARS.min(longest) { droppable.next() } else { None };
                let Some(dropped) = dropped else {
                    text.push_str(&self.format_table(&columns, frames, room.max(MIN_NAME_CHARS)));
                    break;
                };
                columns.retain(|column| column != dropped);
            }
        }
        text.push('\n');
        let mut footer = String::new();
        self.push_footer(&mut footer);
        text + &wrap(&footer, width)
    }

    /// Returns the text to show instead of an empty table.
    fn format_empty(&self) -> String {
        let (bytes, count) = (self.statistics.allocated_bytes, self.statistics.allocations);
        match (self.rows_in_all, count) {
            (0, 0) => "Nothing was allocated during the recording.\n".to_owned(),
            (0, _) => format!(
                "{} in {} were allocated, too small for any to be sampled; record with Options::exact() to \
                 see them.\n",
                human_bytes(bytes),
                counted(count, "block")
            ),
            _ => String::new(),
        }
    }

    fn format_title(&self) -> String {
        let [_, _, plural, _] = self.by.words();
        let when = self.at.map_or(String::new(), |moment| format!(", {}", moment.name()));
        format!(
            "Top {plural} of {}{when}: {} of {}\n\n",
            self.device.name,
            self.rows.len(),
            human_count(self.rows_in_all as u64)
        )
    }

    /// Returns whether the rows depend on stacks.
    fn depends_on_stacks(&self) -> bool {
        !matches!(self.by, By::Category | By::Stream | By::Task | By::Pool | By::Metadata | By::Size)
    }

    /// Returns the columns that a row has in addition to its name.
    fn columns(&self) -> Vec<Column> {
        let mut columns = vec![Column::Bytes, Column::Share];
        // In a ranking at the peak, both columns of live bytes would be the same.
        if self.at != Some(Moment::Peak) {
            columns.push(Column::LiveAtPeak);
        }
        if self.growth_since_seconds.is_some() {
            columns.push(Column::Growth);
        }
        if self.has_ages() {
            columns.extend([Column::Oldest, Column::MedianAge]);
        }
        columns.extend([Column::Count, Column::Largest]);
        columns
    }

    fn has_ages(&self) -> bool {
        self.rows.iter().any(|row| row.trend.age.is_some())
    }

    fn format_table(&self, columns: &[Column], frames: usize, name_width: usize) -> String {
        let mut table = new_table();
        let [_, title, ..] = self.by.words();
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let heads = columns.iter().map(|column| right(column.heading(self.at.is_some()).into()));
        table.set_header(std::iter::once(Cell::new(title)).chain(heads));
        for row in &self.rows {
            let name: Vec<String> = format_name_lines(row, self.by, frames, name_width)
                .map(|line| shorten_middle(&line, name_width))
                .collect();
            let numbers = columns.iter().map(|column| right(column.format_cell(row)));
            table.add_row(std::iter::once(Cell::new(name.join("\n"))).chain(numbers));
        }
        table.trim_fmt() + "\n"
    }

    fn push_footer(&self, text: &mut String) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", self.peak.format_line());
        let total = self.totals.allocated_bytes;
        let part = |bytes: u64, error: &Estimate| {
            let share = if total == 0 { 0.0 } else { bytes as f64 / total as f64 };
            if bytes == 0 && !error.is_exact() {
                // No block with this source of names was recorded, so their share is unknown too.
                return error.as_bytes(bytes);
            }
            format!("{} ({})", error.as_bytes(bytes), error.as_share(share))
        };
        let what = if self.at.is_some() { "Live at that moment" } else { "Requested" };
        if self.at.is_none() && self.statistics.dropped == 0 && self.statistics.counted {
            // The recorder counts every block, even if it records only a sample of them.
            let (bytes, count) = (self.statistics.allocated_bytes, self.statistics.allocations);
            let error = |number: u64| Estimate::exact(number as f64).with_completeness(self.complete);
            let (of_bytes, of_blocks) = (error(bytes), error(count));
            let _ = writeln!(
                text,
                "{what}: {} in {}",
                of_bytes.as_bytes(bytes),
                of_blocks.as_counted(count, "block")
            );
        } else {
            let count = self.totals.count_error.as_counted(self.totals.count, "block");
            let _ = writeln!(text, "{what}: {} in {count}", self.totals.bytes_error.as_bytes(total));
        }
        if self.has_ages() {
            let growth = self.growth_since_seconds.map(|seconds| self.peak.since.moment(seconds));
            let growth =
                growth.map(|moment| format!("Growth: since halfway, {moment}. ")).unwrap_or_default();
            let _ = writeln!(
                text,
                "{growth}Oldest: its oldest block. Median age: half of its bytes are at least that old."
            );
        }
        if self.lacks_times && self.at.is_some() {
            let _ = writeln!(text, "Ages are unknown: the file does not contain the times of all events.");
        }
        if let Some(why) = self.missing_stacks.as_deref().filter(|_| self.depends_on_stacks()) {
            let _ = writeln!(text, "No stack: {why}.");
        }
        if self.at.is_none() && total == 0 && !self.rows.is_empty() {
            let _ = writeln!(
                text,
                "Nothing was allocated within the trace; --at peak or --at end rank what was live."
            );
        }
        // Memory is attributed to operators. If no operator is known, only a ranking by operator states so.
        let named = self.attribution.annotated.saturating_add(self.attribution.named_from_stacks);
        let attributed = self.by == By::Operator || named > 0;
        if attributed
            && matches!(self.by, By::Operator | By::Module | By::Stack | By::Phase | By::Line | By::Python)
        {
            let _ = writeln!(
                text,
                "Attributed: annotated {}, named from stacks {}, unattributed {}",
                part(self.attribution.annotated, &self.attribution.annotated_error),
                part(self.attribution.named_from_stacks, &self.attribution.named_from_stacks_error),
                part(self.attribution.unattributed, &self.attribution.unattributed_error),
            );
        }
        if self.statistics.dropped > 0 {
            let _ = write!(
                text,
                "Dropped: {} did not fit the ring",
                counted(self.statistics.dropped, "older event")
            );
            let _ = match self.statistics.counted {
                true => writeln!(
                    text,
                    "; {} were requested in all, in {}",
                    human_bytes(self.statistics.allocated_bytes),
                    counted(self.statistics.allocations, "block"),
                ),
                false => writeln!(text),
            };
        }
        for folded in folded_notes(self.folded_scopes, &self.folded) {
            let _ = writeln!(text, "Folded: {folded}");
        }
        if let Some(seconds) = self.sums_at_seconds {
            let _ = writeln!(
                text,
                "The exact sums of scopes are those of {}; the recording was not ended.",
                self.peak.since.moment(seconds)
            );
        }
        self.write_sampling_note(text);
        if !self.complete {
            let _ = writeln!(text, "{NOT_ENDED_NOTE}");
        }
    }

    /// Explains the signs `±` and `<`, and states how many bytes a row may lack even if it has neither sign. Writes
    /// nothing if every block was recorded.
    fn write_sampling_note(&self, text: &mut String) {
        if !self.estimated {
            return;
        }
        let these = match self.sampled {
            Some((bytes, blocks)) => format!(", {} in {},", human_bytes(bytes), counted(blocks, "block")),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "± and < hold with 95 % confidence: blocks below {}{these} are sampled, {}",
            human_bytes(self.sample_threshold_bytes),
            self.format_sampling_interval(),
        );
        if self.detection_limit_bytes > 0 {
            let limit = human_bytes(self.detection_limit_bytes);
            let _ = writeln!(
                text,
                "Rows with less than {limit} in such blocks may be missing, and any row may be low by as \
                 much; larger blocks are all recorded: a number of them alone is otherwise exact"
            );
        }
    }

    /// Describes the mean number of bytes between samples, and the reason for sampling.
    fn format_sampling_interval(&self) -> String {
        let widest = self.sampling.map_or(0, |sampling| sampling.widest_interval_bytes);
        let budget = format!("more than {} %", (self.budget * 1e4).round() / 1e2);
        match (self.sample_mean_bytes, widest) {
            (0, 0) => format!("where recording each would take {budget} of the time"),
            (0, widest) => {
                let widest = human_bytes(widest);
                let more = match self.sample_block_bytes {
                    0 => String::new(),
                    bytes => format!(
                        " (for this a block counts as {} larger than it is, so that tiny ones are sampled \
                         too)",
                        human_bytes(bytes)
                    ),
                };
                format!(
                    "at worst one per {widest} on average{more}, where recording each would take {budget} \
                     of the time"
                )
            }
            (mean, _) => format!("one per {} on average", human_bytes(mean)),
        }
    }
}

/// Formats a row's name in about `room` characters per line, followed by the frames below it if the row is a stack.
fn format_name_lines(row: &TopRow, by: By, frames: usize, room: usize) -> impl Iterator<Item = String> + '_ {
    let lines = match by {
        _ if row.freed_at.is_some() => {
            // The name states that the blocks were allocated before the first event, and where they were freed. Show
            // the two on separate lines.
            let name = row.name.trim_end_matches(')');
            let (older, freed) = name.split_once(", ").unwrap_or((name, ""));
            let freed = shorten_middle(&printable(freed), room.saturating_sub(2).max(MIN_NAME_CHARS));
            vec![format!("{})", printable(older)), freed]
        }
        By::Line => vec![printable(&format_line_name(row, room))],
        By::Stack | By::Python if !row.stack.is_empty() => {
            format_frames(&row.stack, frames, room.saturating_sub(2))
        }
        By::Operator | By::Frame => vec![printable(&shorten_function(&row.name, room))],
        _ => vec![printable(&row.name)],
    };
    let indented = |(place, line)| if place == 0 { line } else { format!("  {line}") };
    lines.into_iter().enumerate().map(indented)
}

/// Formats a line with the functions that it called, as in `train.py:53 step → adamw.py:176 step, 2 more`, in about
/// `room` characters. If they do not fit, the called function is shortened.
fn format_line_name(row: &TopRow, room: usize) -> String {
    const MIN_CALL_CHARS: usize = 8;
    let more = match row.called_in_all.unwrap_or_default() {
        0 | 1 => String::new(),
        number => format!(", {} more", number - 1),
    };
    // This is empty if the line itself allocates more bytes than any function that it calls.
    let called = row
        .owned
        .called
        .as_ref()
        .and(row.called.iter().flatten().next())
        .map_or("", |called| &called.name[..]);
    let left = room.saturating_sub(row.name.chars().count() + " → ".chars().count());
    match (called, left.checked_sub(more.len())) {
        ("", _) => shorten_function(&row.name, room),
        (called, Some(left)) if left >= MIN_CALL_CHARS.min(called.chars().count()) => {
            format!("{} → {}{more}", row.name, shorten_function(called, left))
        }
        (called, _) if left >= MIN_CALL_CHARS => format!("{} → {}", row.name, shorten_function(called, left)),
        _ => shorten_function(&row.name, room),
    }
}

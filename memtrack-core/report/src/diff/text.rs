//! A diff as text: the summary first, then the groups that differ.

use super::{DeviceDiff, Diff, DiffBy, DiffRow, UnmatchedDevice};
use crate::layout::{Layout, MIN_LEGIBLE_NAME_CHARS, MIN_NAME_CHARS, new_table, shorten_function, wrap};
use crate::top::frames::{format_frames, shown_frames};
use comfy_table::{Cell, CellAlignment};
use memtrack_blocks::change::Kind;
use memtrack_blocks::change::{Amount, Change};
use memtrack_frames::ownership::short;
use memtrack_model::units::{counted, human_count, printable, shorten_middle};
use std::fmt::{self, Write};

/// The maximum number of groups that the summary names per device.
pub(super) const MAX_NAMED: usize = 3;
/// The maximum number of characters of each name in the summary.
const MAX_NAME_CHARS: usize = 60;

/// A number that is shown for a group in addition to its change.
#[derive(Clone, Copy)]
enum Column {
    Before,
    After,
    Blocks,
}

/// The columns to show, for successively narrower tables.
const COLUMNS: [&[Column]; 4] = [
    &[Column::Before, Column::After, Column::Blocks],
    &[Column::Before, Column::After],
    &[Column::After],
    &[],
];

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Self::Before => "Before",
            Self::After => "After",
            Self::Blocks => "Blocks",
        }
    }

    fn format_cell(self, row: &DiffRow) -> String {
        let shown = |amount: &Amount| amount.error.as_bytes(amount.value);
        match self {
            Self::Before => shown(&row.bytes.before),
            Self::After => shown(&row.bytes.after),
            Self::Blocks => format_blocks(&row.blocks),
        }
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(None))
    }
}

impl Diff {
    /// Returns the summary: a line per device with its growth or shrinkage and at most `named` groups that caused it. The
    /// device that changed most comes first.
    pub(super) fn summary_sentences(&self, named: usize) -> Vec<String> {
        let mut devices: Vec<&DeviceDiff> = self.devices.iter().collect();
        devices.sort_by_key(|device| std::cmp::Reverse(device.bytes.by().unsigned_abs()));
        let several = self.devices.len() + self.only_before.len() + self.only_after.len() > 1;
        let mut lines: Vec<String> = devices
            .into_iter()
            .map(|device| {
                let of = if several { format!("{}: ", device.device.name) } else { String::new() };
                of + &device.format_sentence(self.at.noun(), named)
            })
            .collect();
        for (devices, which) in [(&self.only_before, "earlier"), (&self.only_after, "later")] {
            let line = |UnmatchedDevice { device, bytes, error }: &UnmatchedDevice| {
                let bytes = error.as_bytes(*bytes);
                format!("{}: only in the {which} file, {} {bytes}", device.name, self.at.noun())
            };
            lines.extend(devices.iter().map(line));
        }
        lines
    }

    /// Returns the first line of the summary in at most `room` characters, naming as many groups as fit.
    #[cfg(feature = "plot")]
    pub(super) fn format_title(&self, room: usize) -> String {
        let fits = |line: &String| line.chars().count() <= room;
        let lines =
            (0..=MAX_NAMED).rev().filter_map(|named| self.summary_sentences(named).into_iter().next());
        let mut lines: Vec<String> = lines.collect();
        match lines.iter().position(fits) {
            Some(first) => lines.swap_remove(first),
            None => lines.pop().map_or_else(String::new, |shortest| shorten_middle(&shortest, room)),
        }
    }

    /// Formats the report. If the layout has a width, names are shortened until the tables fit.
    pub fn to_text(&self, layout: impl Into<Layout>) -> String {
        let layout = layout.into();
        let mut text = wrap(&(self.answer.join("\n") + "\n"), layout.width);
        for device in self.devices.iter().filter(|device| !device.rows.is_empty()) {
            let title = format!(
                "\n{}, {} by {}: {} of {} that differ\n\n",
                self.at.about(),
                device.device.name,
                self.by.name(),
                human_count(device.rows.len() as u64),
                human_count(device.rows_in_all as u64),
            );
            text.push_str(&wrap(&title, layout.width));
            text.push_str(&device.format_table(self.by, layout));
        }
        if !self.devices.is_empty() {
            text.push('\n');
        }
        let mut footer = String::new();
        for device in &self.devices {
            device.push_footer(self.devices.len() > 1, &mut footer);
        }
        for note in &self.notes {
            // Writing to a string cannot fail.
            let _ = writeln!(footer, "Note: {}", printable(note));
        }
        text + &wrap(&footer, layout.width)
    }
}

impl DeviceDiff {
    /// Formats a sentence such as `peak +3.00 GiB (12.0 GiB → 15.0 GiB): transformer.py:138 softmax +3.00 GiB, …`.
    fn format_sentence(&self, what: &str, named: usize) -> String {
        let bytes = &self.bytes;
        let shown = |amount: &Amount| amount.error.as_bytes(amount.value);
        let mut text = match (bytes.kind(), bytes.is_exact()) {
            (Kind::Same, true) => format!("{what} unchanged ({})", shown(&bytes.after)),
            (Kind::Same, false) => format!(
                "{what} unchanged within the error ({} → {})",
                shown(&bytes.before),
                shown(&bytes.after)
            ),
            _ => format!(
                "{what} {} ({} → {})",
                bytes.format_bytes(),
                shown(&bytes.before),
                shown(&bytes.after)
            ),
        };
        let reasons = self.format_reasons_naming(named);
        if !reasons.is_empty() {
            let _ = write!(text, ": {reasons}");
        } else if bytes.kind() == Kind::Same && self.rows_in_all == 0 {
            text.push_str(", and nothing else differs");
        }
        text
    }

    /// Formats the groups that changed most.
    pub(super) fn format_reasons(&self) -> String {
        self.format_reasons_naming(MAX_NAMED)
    }

    fn format_reasons_naming(&self, number: usize) -> String {
        let of_bytes = self.rows.iter().filter(|row| row.bytes.kind() != Kind::Same);
        let named = of_bytes
            .clone()
            .take(number)
            .map(|row| format!("{} {}", row.describe_place(MAX_NAME_CHARS), row.bytes.format_bytes()));
        let mut named: Vec<String> = named.collect();
        if number == 0 {
            return String::new();
        }
        if of_bytes.count() > number || self.rows_in_all > self.rows.len() {
            named.push("…".into());
        }
        named.join(", ")
    }

    fn format_table(&self, by: DiffBy, layout: Layout) -> String {
        let longest = self.rows.iter().flat_map(|row| row.format_name_lines(by, layout.frames, usize::MAX));
        let longest = longest.map(|line| line.chars().count()).max().unwrap_or(0);
        let mut columns = COLUMNS.iter().peekable();
        loop {
            let shown = columns.next().copied().unwrap_or_default();
            let full = self.format_table_of(by, shown, layout.frames, usize::MAX);
            let widest = full.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            let Some(width) = layout.width.filter(|&width| widest > width) else { return full };
            let room = longest.saturating_sub(widest - width);
            if room >= MIN_LEGIBLE_NAME_CHARS.min(longest) || columns.peek().is_none() {
                return self.format_table_of(by, shown, layout.frames, room.max(MIN_NAME_CHARS));
            }
        }
    }

    fn format_table_of(&self, by: DiffBy, columns: &[Column], frames: usize, room: usize) -> String {
        let mut table = new_table();
        let title = match by {
            DiffBy::Line => "Line",
            DiffBy::Operator => "Operator",
            DiffBy::Module => "Module",
            DiffBy::Phase => "Phase",
            DiffBy::Stack => "Stack",
            DiffBy::Category => "Category",
        };
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let heads = columns.iter().map(|column| right(column.heading().into()));
        let change = [Cell::new(title), Cell::new(""), right("Change".into())];
        table.set_header(change.into_iter().chain(heads));
        for row in &self.rows {
            let name: Vec<String> = row
                .format_name_lines(by, frames, room)
                .iter()
                .map(|line| shorten_middle(line, room))
                .collect();
            let numbers = columns.iter().map(|column| right(column.format_cell(row)));
            let change =
                [Cell::new(name.join("\n")), Cell::new(row.change.name()), right(row.bytes.format_bytes())];
            table.add_row(change.into_iter().chain(numbers));
        }
        table.trim_fmt() + "\n"
    }

    fn push_footer(&self, several: bool, text: &mut String) {
        let of = if several { format!("{}: ", self.device.name) } else { String::new() };
        let more = self.rows_in_all - self.rows.len();
        if more > 0 {
            let bytes = Change {
                before: Amount::exact(u64::try_from(-self.left_out_bytes).unwrap_or(0)),
                after: Amount::exact(u64::try_from(self.left_out_bytes).unwrap_or(0)),
            };
            let _ = writeln!(
                text,
                "{of}… and {}, {} together",
                counted(more as u64, "more group"),
                bytes.format_bytes()
            );
        }
        let within = match self.within_error {
            0 => String::new(),
            groups => format!("; {} within the error", counted(groups as u64, "group")),
        };
        let unchanged = counted(self.unchanged as u64, "group");
        let total = format_blocks(&self.blocks);
        let _ = writeln!(text, "{of}Unchanged: {unchanged}{within}. Blocks in all: {total}.");
    }
}

impl DiffRow {
    /// Describes the group in a few words: by the innermost function that the table shows, as in
    /// `transformer.py:138 softmax`, or by its name if it has no stack.
    pub(super) fn describe_place(&self, room: usize) -> String {
        // For a stack, this is the first function in the table.
        match shown_frames(&self.stack).first() {
            Some(line) => printable(&shorten_function(&short(&line.frame), room)),
            None => self.format_name(room),
        }
    }

    /// Formats the name, followed by the number of merged groups.
    fn format_name(&self, room: usize) -> String {
        let many = match [self.before_members, self.after_members] {
            [0 | 1, 0 | 1] => String::new(),
            [before, after] if before == after => format!(" ({after} of them)"),
            [before, after] => format!(" ({before} → {after} of them)"),
        };
        let left = room.saturating_sub(many.chars().count()).max(MIN_NAME_CHARS);
        printable(&shorten_function(&self.name, left)) + &many
    }

    /// Formats the group as lines for the table: its name or, for a stack, its functions. All lines but the first are
    /// indented.
    fn format_name_lines(&self, by: DiffBy, frames: usize, room: usize) -> Vec<String> {
        let lines = match (by, self.stack.is_empty()) {
            (DiffBy::Stack, false) => format_frames(&self.stack, frames, room.saturating_sub(2)),
            _ => vec![self.describe_place(room)],
        };
        let moved = self.line_before.map(|line| format!("was line {line}"));
        let indented = |(place, line)| if place == 0 { line } else { format!("  {line}") };
        lines.into_iter().chain(moved).enumerate().map(indented).collect()
    }
}

/// Formats the number of blocks before and after, or a single number if they are the same.
fn format_blocks(change: &Change) -> String {
    let shown = |amount: &Amount| amount.error.as_count(amount.value);
    match change.kind() {
        Kind::Same => shown(&change.after),
        _ => format!("{} → {}", shown(&change.before), shown(&change.after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::StackLine;
    use memtrack_model::Frame;

    #[test]
    fn stack_is_named_by_first_line_of_its_table() {
        let line = |function: &str, file: &str, line| StackLine {
            address: 0,
            frame: Frame {
                function: function.into(),
                file: Some(file.into()),
                line: Some(line),
                binary: None,
            },
        };
        let row = DiffRow {
            name: "at::TensorIteratorBase::fast_set_up".into(),
            stack: vec![
                line("at::TensorIteratorBase::fast_set_up", "??", 0),
                line("forward", "/app/softmax.py", 14),
            ],
            line_before: None,
            bytes: Change { before: Amount::exact(0), after: Amount::exact(1 << 20) },
            blocks: Change { before: Amount::exact(0), after: Amount::exact(1) },
            before_members: 0,
            after_members: 1,
            change: Kind::New,
        };
        assert_eq!(row.describe_place(MAX_NAME_CHARS), "softmax.py:14 forward");
        assert_eq!(row.format_name_lines(DiffBy::Stack, 7, MAX_NAME_CHARS)[0], "forward softmax.py:14");
    }
}

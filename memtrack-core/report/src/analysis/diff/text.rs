//! A diff as text for people: the answer in words first, then the groups that differ.

use super::change::{Amount, Change, Kind};
use super::{DeviceDiff, Diff, DiffBy, DiffRow};
use crate::analysis::layout::{Layout, SHORTEST_NAME, fit};
use crate::analysis::ownership::short;
use crate::analysis::top::frames::frame_lines;
use comfy_table::{Cell, CellAlignment, ContentLineStyle, LineStyle, Table, TableStyle};
use memtrack_model::units::{counted, human_count, printable, shorten_middle};
use std::fmt::{self, Write};

/// Groups that the answer names.
const NAMED: usize = 3;
/// Characters of each of their names.
const NAME: usize = 60;

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(None))
    }
}

impl Diff {
    /// The answer in words, a line for each device, the one that changed most first: by how much it grew or shrank, and
    /// the groups that made it. One line where nothing differs.
    pub fn answer(&self) -> Vec<String> {
        let mut devices: Vec<&DeviceDiff> = self.devices.iter().collect();
        devices.sort_by_key(|device| std::cmp::Reverse(device.bytes.by().unsigned_abs()));
        let several = self.devices.len() + self.alone.iter().map(Vec::len).sum::<usize>() > 1;
        let mut lines: Vec<String> = devices
            .into_iter()
            .map(|device| {
                let of = if several { format!("{}: ", device.device_name) } else { String::new() };
                of + &device.sentence(self.at.what())
            })
            .collect();
        for (devices, which) in self.alone.iter().zip(["earlier", "later"]) {
            let line = |(name, amount): &(String, Amount)| {
                let bytes = amount.error.as_bytes(amount.value);
                format!("{name}: only in the {which} file, {} {bytes}", self.at.what())
            };
            lines.extend(devices.iter().map(line));
        }
        lines
    }

    /// The report as text. Where the layout has a width, names are shortened until the tables fit.
    pub fn to_text(&self, layout: impl Into<Layout>) -> String {
        let layout = layout.into();
        let mut text = self.answer().join("\n") + "\n";
        for device in self.devices.iter().filter(|device| !device.rows.is_empty()) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "\n{}, {} by {}: {} of {} that differ\n",
                self.at.about(),
                device.device_name,
                self.by.name(),
                human_count(device.rows.len() as u64),
                human_count(device.rows_in_all as u64),
            );
            text.push_str(&device.table(self.by, layout));
        }
        if !self.devices.is_empty() {
            text.push('\n');
        }
        for device in &self.devices {
            device.footer(self.devices.len() > 1, &mut text);
        }
        for note in &self.notes {
            let _ = writeln!(text, "Note: {}", printable(note));
        }
        text
    }
}

impl DeviceDiff {
    /// `peak +3.00 GiB (12.0 GiB → 15.0 GiB): transformer.py:138 softmax +3.00 GiB, …`.
    pub(super) fn sentence(&self, what: &str) -> String {
        let bytes = &self.bytes;
        let shown = |amount: &Amount| amount.error.as_bytes(amount.value);
        let mut text = match (bytes.kind(), bytes.is_exact()) {
            (Kind::Same, true) => format!("{what} unchanged ({})", shown(&bytes.after)),
            (Kind::Same, false) => format!(
                "{what} unchanged within the error ({} → {})",
                shown(&bytes.before),
                shown(&bytes.after)
            ),
            _ => format!("{what} {} ({} → {})", bytes.as_bytes(), shown(&bytes.before), shown(&bytes.after)),
        };
        let reasons = self.reasons();
        if !reasons.is_empty() {
            let _ = write!(text, ": {reasons}");
        } else if bytes.kind() == Kind::Same && self.rows_in_all == 0 {
            text.push_str(", and nothing else differs");
        }
        text
    }

    /// The groups that changed most, in words.
    pub(super) fn reasons(&self) -> String {
        let of_bytes = self.rows.iter().filter(|row| row.bytes.kind() != Kind::Same);
        let named =
            of_bytes.clone().take(NAMED).map(|row| format!("{} {}", row.place(NAME), row.bytes.as_bytes()));
        let mut named: Vec<String> = named.collect();
        if of_bytes.count() > NAMED || self.rows_in_all > self.rows.len() {
            named.push("…".into());
        }
        named.join(", ")
    }

    fn table(&self, by: DiffBy, layout: Layout) -> String {
        let full = self.table_of(by, layout.frames, usize::MAX);
        let widest = full.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        match layout.width {
            Some(width) if widest > width => {
                let longest = self.rows.iter().flat_map(|row| row.lines(by, layout.frames, usize::MAX));
                let longest = longest.map(|line| line.chars().count()).max().unwrap_or(0);
                let room = longest.saturating_sub(widest - width).max(SHORTEST_NAME);
                self.table_of(by, layout.frames, room)
            }
            _ => full,
        }
    }

    fn table_of(&self, by: DiffBy, frames: usize, room: usize) -> String {
        let mut table = Table::new();
        table.load_style(
            TableStyle::new()
                .header_lines(ContentLineStyle::none())
                .header_separator(LineStyle::none().fill('─'))
                .content_lines(ContentLineStyle::none()),
        );
        let title = match by {
            DiffBy::Line => "Line",
            DiffBy::Operator => "Operator",
            DiffBy::Module => "Module",
            DiffBy::Phase => "Phase",
            DiffBy::Stack => "Stack",
            DiffBy::Category => "Category",
        };
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let heads = ["Change", "Before", "After", "Blocks"].map(|head| right(head.into()));
        table.set_header([Cell::new(title), Cell::new("")].into_iter().chain(heads));
        for row in &self.rows {
            let name: Vec<String> =
                row.lines(by, frames, room).iter().map(|line| shorten_middle(line, room)).collect();
            let shown = |amount: &Amount| amount.error.as_bytes(amount.value);
            let bytes = [row.bytes.as_bytes(), shown(&row.bytes.before), shown(&row.bytes.after)];
            let numbers = bytes.into_iter().chain([blocks(&row.blocks)]).map(right);
            let names = [Cell::new(name.join("\n")), Cell::new(row.kind().name())];
            table.add_row(names.into_iter().chain(numbers));
        }
        table.trim_fmt() + "\n"
    }

    fn footer(&self, several: bool, text: &mut String) {
        let of = if several { format!("{}: ", self.device_name) } else { String::new() };
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
                bytes.as_bytes()
            );
        }
        let within = match self.within_error {
            0 => String::new(),
            groups => format!("; {} within the error", counted(groups as u64, "group")),
        };
        let unchanged = counted(self.unchanged as u64, "group");
        let total = blocks(&self.blocks);
        let _ = writeln!(text, "{of}Unchanged: {unchanged}{within}. Blocks in all: {total}.");
    }
}

impl DiffRow {
    /// The group in a few words: `transformer.py:138 softmax`, or its name.
    pub(super) fn place(&self, room: usize) -> String {
        match self.stack.first() {
            Some(line) => printable(&fit(&short(&line.frame), room)),
            None => self.named(room),
        }
    }

    /// The name, with how many groups it stands for.
    fn named(&self, room: usize) -> String {
        let many = match self.members {
            [0 | 1, 0 | 1] => String::new(),
            [before, after] if before == after => format!(" ({after} of them)"),
            [before, after] => format!(" ({before} → {after} of them)"),
        };
        let left = room.saturating_sub(many.chars().count()).max(SHORTEST_NAME);
        printable(&fit(&self.name, left)) + &many
    }

    /// The group in the table: its name, and of a stack the functions below it, indented.
    fn lines(&self, by: DiffBy, frames: usize, room: usize) -> Vec<String> {
        let lines = match (by, self.stack.is_empty()) {
            (DiffBy::Stack, false) => frame_lines(&self.stack, frames, room.saturating_sub(2)),
            _ => vec![self.place(room)],
        };
        let moved = self.line_before.map(|line| format!("was line {line}"));
        let indented = |(place, line)| if place == 0 { line } else { format!("  {line}") };
        lines.into_iter().chain(moved).enumerate().map(indented).collect()
    }
}

/// Blocks before and after; one number where they are equal.
fn blocks(change: &Change) -> String {
    let shown = |amount: &Amount| amount.error.as_count(amount.value);
    match change.kind() {
        Kind::Same => shown(&change.after),
        _ => format!("{} → {}", shown(&change.before), shown(&change.after)),
    }
}

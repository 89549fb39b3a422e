//! Formats the inferred categories as text.

use super::totals::{CategoryReading, MomentReading, RuleRow, UnclassifiedRow};
use crate::Category;
use comfy_table::{Cell, CellAlignment, Table};
use memtrack_model::units::{capitalised, human_share, printable};
use memtrack_report::layout::new_table;
use std::collections::BTreeSet;
use std::fmt;

impl fmt::Display for CategoryReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", capitalised(&self.device.name), self.format_source())?;
        if !self.has_evidence() {
            return self.hints.iter().try_for_each(|hint| writeln!(f, "{hint}"));
        }
        for moment in &self.moments {
            writeln!(f, "\n{}\n{}", self.format_title(moment), self.format_table(moment))?;
            writeln!(
                f,
                "Unknown: {}. Only guessed: {}.",
                human_share(moment.live.unclassified_share),
                human_share(moment.live.guessed_share)
            )?;
            let is_named = moment.unclassified_by.iter().any(|row| row.name != "(unattributed)");
            if is_named && moment.live.unclassified_share >= 0.01 {
                let part = |row: &UnclassifiedRow| {
                    format!("{} {}", printable(&row.name), row.error.as_bytes(row.bytes))
                };
                let parts: Vec<String> = moment.unclassified_by.iter().map(part).collect();
                writeln!(f, "Largest unknown parts, by operator: {}.", parts.join(", "))?;
            }
        }
        if !self.hints.is_empty() {
            writeln!(f)?;
        }
        self.hints.iter().try_for_each(|hint| writeln!(f, "{hint}"))?;
        if self.rules.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nBy these rules:\n{}\n", self.format_rule_table())?;
        let mut explained = BTreeSet::new();
        for row in self.shown_rules().filter(|row| explained.insert(row.rule)) {
            writeln!(f, "{}: {}", row.rule, row.when)?;
        }
        writeln!(
            f,
            "\nnamed: a frame or scope names the purpose; likely: frames or scopes and the order of events allow hardly \
             anything else; guess: only the order of events or a size speaks for it."
        )
    }
}

impl CategoryReading {
    /// Describes where the categories come from.
    fn format_source(&self) -> String {
        if !self.has_evidence() {
            return "no category is known".to_owned();
        }
        let from = match (self.has_stacks, self.has_scopes) {
            (_, false) => "stacks",
            (true, true) => "scopes, stacks",
            (false, true) => "scopes",
        };
        match self.all.given_share {
            0.0 => format!("categories read from {from} and the order of events; not exact"),
            1.0 => "categories given by the file".to_owned(),
            share if !self.has_stacks && !self.has_scopes => format!(
                "categories of {} of all bytes are given by the file; the others are unknown without stacks",
                human_share(share)
            ),
            share => format!(
                "categories of {} of all bytes are given by the file, the others read from {from} and the order of events; \
                 not exact",
                human_share(share)
            ),
        }
    }

    fn format_title(&self, moment: &MomentReading) -> String {
        let bytes = moment.live.error.as_bytes(moment.live.bytes);
        let when = match (moment.seconds, moment.event) {
            (Some(at), _) => self.since.moment(at),
            (None, Some(event)) => format!("after event {event}"),
            (None, None) => "before the first event".to_owned(),
        };
        match moment.moment {
            "time" => format!("{}: {bytes} live", capitalised(&when)),
            name => format!("At the {name}, {when}: {bytes} live"),
        }
    }

    fn format_table(&self, moment: &MomentReading) -> String {
        let mut table = table(&["Category"], &["Live", "Share", "Blocks"]);
        for row in moment.live.categories.iter().filter(|row| row.blocks > 0 || row.category.is_none()) {
            let numbers = [
                row.error.as_bytes(row.bytes),
                row.error.as_share(row.share),
                row.count_error.as_count(row.blocks),
            ];
            let name = Cell::new(row.category.map_or("(unknown)", Category::name));
            table.add_row(std::iter::once(name).chain(numbers.map(right_aligned)));
        }
        table.trim_fmt()
    }

    /// Returns the rules that have live blocks at any of the moments, or all rules if there are no moments.
    fn shown_rules(&self) -> impl Iterator<Item = &RuleRow> {
        let is_shown =
            |row: &&RuleRow| row.live_blocks.is_empty() || row.live_blocks.iter().any(|&blocks| blocks > 0);
        self.rules.iter().filter(is_shown)
    }

    fn format_rule_table(&self) -> String {
        let name = |moment: &MomentReading| match moment.moment {
            "time" => "Then".to_owned(),
            name => format!("At the {name}"),
        };
        let names: Vec<String> = self.moments.iter().map(name).collect();
        let heads: Vec<&str> = names.iter().map(String::as_str).chain(["In the file"]).collect();
        let mut table = table(&["Rule", "Category", "Confidence"], &heads);
        for row in self.shown_rules() {
            let words = [row.rule, row.category.name(), row.confidence.name()].map(Cell::new);
            let live = row.live_errors.iter().zip(&row.live_bytes);
            let numbers = live.chain([(&row.all_error, &row.all_bytes)]);
            let numbers = numbers.map(|(error, &bytes)| right_aligned(error.as_bytes(bytes)));
            table.add_row(words.into_iter().chain(numbers));
        }
        table.trim_fmt()
    }
}

fn right_aligned(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn table(words: &[&str], numbers: &[&str]) -> Table {
    let mut table = new_table();
    let words = words.iter().map(|word| Cell::new(*word));
    table.set_header(words.chain(numbers.iter().map(|number| right_aligned((*number).to_owned()))));
    table
}

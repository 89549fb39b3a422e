//! The report in words.

use super::{CategoryReport, Held, PhaseRow, Row};
use crate::category::Category;
use crate::series::Bytes;
use memtrack_model::units::{counted, human_bytes, human_count, human_share, printable, shorten_middle};
use std::fmt::{self, Write};

/// Characters of a line where nobody says how many there are.
const WIDTH: usize = 120;
/// Characters of a row beside its name.
const NUMBERS: usize = 54;

impl CategoryReport {
    /// The report as text, at most `rows` modules and operators for each moment, in lines of at most `width` characters
    /// (none: as long as they need).
    pub fn to_text(&self, rows: usize, width: Option<usize>) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(
            &mut text,
            rows,
            width.map_or(usize::MAX, |width| width.saturating_sub(NUMBERS).max(24)),
        );
        text
    }

    fn write(&self, out: &mut String, rows: usize, room: usize) -> fmt::Result {
        writeln!(
            out,
            "{}: {} over {}",
            printable(&self.device),
            counted(self.changes, "change"),
            human_time(self.lasts_ns)
        )?;
        for held in &self.held {
            out.push('\n');
            write_held(out, held, rows, room)?;
        }
        if !self.phases.is_empty() {
            out.push('\n');
            writeln!(
                out,
                "{:<12} {:>12} {:>12} {:>14} {:>16}  left, by category",
                "phase", "obtained", "freed", "left at end", "highest then"
            )?;
            for row in &self.phases {
                write_phase(out, row)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for CategoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(20, Some(WIDTH)))
    }
}

fn write_held(out: &mut String, held: &Held, rows: usize, room: usize) -> fmt::Result {
    let when = match held.moment {
        "peak" => format!("At the peak, {} after the start", human_time(held.after_ns)),
        "end" => "At the end".to_owned(),
        _ => format!("{} after the start", human_time(held.after_ns)),
    };
    writeln!(out, "{when}: {} requested ({} bytes)", human_bytes(held.bytes), grouped(held.bytes))?;
    if held.categories.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {:<20} {:>11} {:>6} {:>9}", "category", "bytes", "share", "pieces")?;
    for row in &held.categories {
        write_row(out, row, held.bytes, 20, false)?;
    }
    for (title, all) in [("module", &held.modules), ("operator", &held.operators)] {
        let (shown, rest) = all.split_at(rows.min(all.len()));
        let name = |row: &Row| row.name.chars().count().min(room);
        let wide = shown.iter().map(name).max().unwrap_or(0).max(20);
        writeln!(out, "  {title:<wide$} {:>11} {:>6} {:>9}  mostly", "bytes", "share", "pieces")?;
        for row in shown {
            write_row(out, row, held.bytes, wide, true)?;
        }
        if !rest.is_empty() {
            let others = Row {
                name: format!("({} more)", human_count(rest.len() as u64)),
                bytes: rest.iter().map(|row| row.bytes).sum(),
                pieces: rest.iter().map(|row| row.pieces).sum(),
                ..Row::default()
            };
            write_row(out, &others, held.bytes, wide, false)?;
        }
    }
    Ok(())
}

fn write_row(out: &mut String, row: &Row, of: u64, wide: usize, mostly: bool) -> fmt::Result {
    let name = shorten_middle(&printable(&row.name), wide);
    let share = row.bytes as f64 / of.max(1) as f64;
    write!(
        out,
        "  {name:<wide$} {:>11} {:>6} {:>9}",
        human_bytes(row.bytes),
        human_share(share),
        human_count(row.pieces)
    )?;
    if mostly && let Some(category) = largest(&row.by_category) {
        write!(out, "  {category}")?;
    }
    out.push('\n');
    Ok(())
}

fn largest(bytes: &Bytes) -> Option<Category> {
    let categories = Category::ALL.into_iter().zip(bytes);
    // Of equals the first one.
    categories
        .filter(|(_, bytes)| **bytes > 0)
        .rev()
        .max_by_key(|(_, bytes)| **bytes)
        .map(|(category, _)| category)
}

fn write_phase(out: &mut String, row: &PhaseRow) -> fmt::Result {
    let left: Vec<String> = Category::ALL
        .iter()
        .zip(row.left)
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(category, bytes)| format!("{category} {}", human_bytes(bytes as u64)))
        .collect();
    writeln!(
        out,
        "{:<12} {:>12} {:>12} {:>14} {:>16}  {}",
        row.when,
        human_bytes(row.obtained_bytes),
        human_bytes(row.freed_bytes),
        human_bytes(row.left_bytes()),
        row.highest_bytes.map_or_else(|| "-".to_owned(), human_bytes),
        if left.is_empty() { "nothing".to_owned() } else { left.join(", ") },
    )
}

/// A time with a unit that fits it.
pub(crate) fn human_time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

/// All digits, in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

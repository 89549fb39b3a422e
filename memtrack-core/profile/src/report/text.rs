//! Formats the category report as text.

use super::{CategoryReport, MomentMemory, PhaseRow, PieceGroup};
use crate::category::Category;
use crate::series::Bytes;
use memtrack_model::units::{counted, human_bytes, printable, shorten_middle};
use std::fmt::{self, Write};

/// The default line width, in characters.
const DEFAULT_WIDTH: usize = 120;
/// The width of a row in characters, not counting the name.
const NUMBERS_WIDTH: usize = 54;
/// The extra width of a row whose numbers have errors.
const ERRORS_WIDTH: usize = 13;

impl CategoryReport {
    /// Formats the report as text with at most `rows` modules and operators for each moment. Lines have at
    /// most `width` characters; if `width` is `None`, they are as long as needed.
    pub fn to_text(&self, rows: usize, width: Option<usize>) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(
            &mut text,
            rows,
            width.map_or(usize::MAX, |width| width.saturating_sub(NUMBERS_WIDTH).max(24)),
        );
        text
    }

    fn write(&self, out: &mut String, rows: usize, room: usize) -> fmt::Result {
        writeln!(
            out,
            "{}: {} over {}",
            printable(&self.device),
            counted(self.changes, "change"),
            format_time(self.duration_ns)
        )?;
        for moment in &self.moments {
            out.push('\n');
            write_moment(out, moment, rows, room)?;
        }
        if !self.phases.is_empty() {
            out.push('\n');
            let are_estimates = self.phases.iter().any(|row| !row.errors.are_exact());
            let wide = if are_estimates { 20 } else { 0 };
            let [first, left, highest] = [12, 14, 16].map(|width| wide.max(width));
            writeln!(
                out,
                "{:<12} {:>first$} {:>first$} {:>left$} {:>highest$}  left, by category",
                "phase", "obtained", "freed", "left at end", "highest then"
            )?;
            for row in &self.phases {
                write_phase(out, row, [first, left, highest])?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for CategoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(20, Some(DEFAULT_WIDTH)))
    }
}

fn write_moment(out: &mut String, moment: &MomentMemory, max_rows: usize, room: usize) -> fmt::Result {
    let when = match moment.moment {
        "peak" => format!("At the peak, {} after the start", format_time(moment.after_ns)),
        "end" => "At the end".to_owned(),
        _ => format!("{} after the start", format_time(moment.after_ns)),
    };
    if moment.error.is_exact() {
        writeln!(
            out,
            "{when}: {} requested ({} bytes)",
            human_bytes(moment.bytes),
            group_digits(moment.bytes)
        )?;
    } else {
        writeln!(
            out,
            "{when}: {} requested (small blocks were sampled)",
            moment.error.as_bytes(moment.bytes)
        )?;
    }
    if moment.categories.is_empty() {
        return Ok(());
    }
    let mut rows = moment.categories.iter().chain(&moment.modules).chain(&moment.operators);
    let are_estimates = rows.any(|row| !row.error.is_exact() || !row.count_error.is_exact());
    let room = if are_estimates { room.saturating_sub(ERRORS_WIDTH).max(24) } else { room };
    write_head(out, "category", 20, are_estimates)?;
    out.push('\n');
    for row in &moment.categories {
        write_row(out, row, moment.bytes, Widths { name: 20, are_estimates }, false)?;
    }
    for (title, all) in [("module", &moment.modules), ("operator", &moment.operators)] {
        let (shown, rest) = all.split_at(max_rows.min(all.len()));
        let name = |row: &PieceGroup| row.name.chars().count().min(room);
        let wide = shown.iter().map(name).max().unwrap_or(0).max(20);
        let widths = Widths { name: wide, are_estimates };
        write_head(out, title, wide, are_estimates)?;
        out.push_str("  mostly\n");
        for row in shown {
            write_row(out, row, moment.bytes, widths, true)?;
        }
        if !rest.is_empty() {
            write_row(out, &PieceGroup::sum_of(rest), moment.bytes, widths, false)?;
        }
    }
    Ok(())
}

/// The column widths of a table.
#[derive(Clone, Copy)]
struct Widths {
    name: usize,
    /// Whether the numbers have errors.
    are_estimates: bool,
}

fn write_head(out: &mut String, title: &str, wide: usize, are_estimates: bool) -> fmt::Result {
    if are_estimates {
        write!(out, "  {title:<wide$} {:>17} {:>8} {:>14}", "bytes", "share", "pieces")
    } else {
        write!(out, "  {title:<wide$} {:>11} {:>6} {:>9}", "bytes", "share", "pieces")
    }
}

fn write_row(
    out: &mut String,
    row: &PieceGroup,
    of: u64,
    widths: Widths,
    with_main_category: bool,
) -> fmt::Result {
    let wide = widths.name;
    let name = shorten_middle(&printable(&row.name), wide);
    let share = row.bytes as f64 / of.max(1) as f64;
    let (bytes, count) = (row.error.as_bytes(row.bytes), row.count_error.as_count(row.pieces));
    let share = row.error.as_share(share.min(1.0));
    if widths.are_estimates {
        write!(out, "  {name:<wide$} {bytes:>17} {share:>8} {count:>14}")?;
    } else {
        write!(out, "  {name:<wide$} {bytes:>11} {share:>6} {count:>9}")?;
    }
    if with_main_category && let Some(category) = largest_category(&row.by_category) {
        write!(out, "  {category}")?;
    }
    out.push('\n');
    Ok(())
}

fn largest_category(bytes: &Bytes) -> Option<Category> {
    let categories = Category::ALL.into_iter().zip(bytes);
    // The order is reversed so that the first of several equal categories wins.
    categories
        .filter(|(_, bytes)| **bytes > 0)
        .rev()
        .max_by_key(|(_, bytes)| **bytes)
        .map(|(category, _)| category)
}

fn write_phase(out: &mut String, row: &PhaseRow, [first, left_wide, highest]: [usize; 3]) -> fmt::Result {
    let left: Vec<String> = Category::ALL
        .iter()
        .zip(row.left)
        .filter(|(_, bytes)| *bytes > 0)
        // For estimates, only the error of the total is known, so no numbers are shown for categories.
        .map(|(category, bytes)| match row.errors.left_bytes.is_exact() {
            true => format!("{category} {}", human_bytes(bytes as u64)),
            false => category.to_string(),
        })
        .collect();
    let errors = &row.errors;
    writeln!(
        out,
        "{:<12} {:>first$} {:>first$} {:>left_wide$} {:>highest$}  {}",
        row.part,
        errors.obtained_bytes.as_bytes(row.obtained_bytes),
        errors.freed_bytes.as_bytes(row.freed_bytes),
        errors.left_bytes.as_bytes(row.left_bytes()),
        row.highest_bytes.map_or_else(|| "-".to_owned(), |bytes| errors.highest_bytes.as_bytes(bytes)),
        if left.is_empty() { "nothing".to_owned() } else { left.join(", ") },
    )
}

/// Formats a duration using a suitable unit.
pub(crate) fn format_time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

/// Formats a number with commas between groups of three digits.
pub(crate) fn group_digits(number: u64) -> String {
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

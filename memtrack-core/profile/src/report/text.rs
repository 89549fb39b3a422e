//! Formats the category report as text.

use super::{CategoryReport, MomentMemory, PhaseRow, PieceGroup, PieceSums};
use crate::category::Category;
use crate::series::Bytes;
use memtrack_model::units::{counted, human_bytes, human_count, printable, shorten_middle};
use memtrack_report::analysis::estimate::Estimate;
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
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(NUMBERS_WIDTH).max(24));
        let _ = self.listed(rows).write(&mut text, room);
        text
    }

    fn write(&self, out: &mut String, room: usize) -> fmt::Result {
        writeln!(
            out,
            "{}: {} over {}",
            printable(&self.device.name),
            counted(self.changes, "change"),
            format_time(self.lasts_ns)
        )?;
        for moment in &self.moments {
            out.push('\n');
            write_moment(out, moment, room)?;
        }
        if !self.phases.is_empty() {
            out.push('\n');
            let are_estimates = !self.phases.iter().all(PhaseRow::is_exact);
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

fn write_moment(out: &mut String, moment: &MomentMemory, room: usize) -> fmt::Result {
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
            human_count(moment.bytes)
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
    let groups = [("module", &moment.modules), ("operator", &moment.operators)];
    let of_groups =
        groups.iter().flat_map(|(_, of)| of.rows.iter().map(|row| &row.sums).chain([&of.others.sums]));
    let mut sums = moment.categories.iter().map(|row| &row.sums).chain(of_groups);
    let are_estimates = sums.any(|sums| !sums.error.is_exact() || !sums.count_error.is_exact());
    let room = if are_estimates { room.saturating_sub(ERRORS_WIDTH).max(24) } else { room };
    write_head(out, "category", 20, are_estimates)?;
    out.push('\n');
    let widths = Widths { name: 20, are_estimates };
    for row in &moment.categories {
        write_row(out, (row.category.name(), &row.sums), moment.bytes, widths, None)?;
    }
    for (title, groups) in groups {
        let name = |row: &PieceGroup| row.name.chars().count().min(room);
        let wide = groups.rows.iter().map(name).max().unwrap_or(0).max(20);
        let widths = Widths { name: wide, are_estimates };
        write_head(out, title, wide, are_estimates)?;
        out.push_str("  mostly\n");
        for row in &groups.rows {
            let mostly = largest_category(&row.by_category);
            write_row(out, (&row.name, &row.sums), moment.bytes, widths, mostly)?;
        }
        if groups.others.rows > 0 {
            let name = format!("({} more)", human_count(groups.others.rows as u64));
            write_row(out, (&name, &groups.others.sums), moment.bytes, widths, None)?;
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
    (name, sums): (&str, &PieceSums),
    of: u64,
    widths: Widths,
    mostly: Option<Category>,
) -> fmt::Result {
    let wide = widths.name;
    let name = shorten_middle(&printable(name), wide);
    let share = sums.bytes as f64 / of.max(1) as f64;
    let (bytes, count) = (sums.error.as_bytes(sums.bytes), sums.count_error.as_count(sums.pieces));
    let share = sums.error.as_share(share.min(1.0));
    if widths.are_estimates {
        write!(out, "  {name:<wide$} {bytes:>17} {share:>8} {count:>14}")?;
    } else {
        write!(out, "  {name:<wide$} {bytes:>11} {share:>6} {count:>9}")?;
    }
    if let Some(category) = mostly {
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

impl PhaseRow {
    /// Returns whether all numbers are exact.
    fn is_exact(&self) -> bool {
        [self.obtained_bytes_error, self.freed_bytes_error, self.left_bytes_error, self.highest_bytes_error]
            .iter()
            .all(Estimate::is_exact)
    }
}

fn write_phase(out: &mut String, row: &PhaseRow, [first, left_wide, highest]: [usize; 3]) -> fmt::Result {
    let left: Vec<String> = Category::ALL
        .iter()
        .zip(row.left)
        .filter(|(_, bytes)| *bytes > 0)
        // For estimates, only the error of the total is known, so no numbers are shown for categories.
        .map(|(category, bytes)| match row.left_bytes_error.is_exact() {
            true => format!("{category} {}", human_bytes(bytes as u64)),
            false => category.to_string(),
        })
        .collect();
    writeln!(
        out,
        "{:<12} {:>first$} {:>first$} {:>left_wide$} {:>highest$}  {}",
        row.part,
        row.obtained_bytes_error.as_bytes(row.obtained_bytes),
        row.freed_bytes_error.as_bytes(row.freed_bytes),
        row.left_bytes_error.as_bytes(row.left_bytes),
        row.highest_bytes.map_or_else(|| "-".to_owned(), |bytes| row.highest_bytes_error.as_bytes(bytes)),
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

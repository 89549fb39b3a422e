//! Formats the category report as text.

use super::{CategoryReport, MomentMemory, PhaseRow, PieceGroup, PieceSums};
use crate::category::Category;
use crate::series::Bytes;
use memtrack_model::times::human_moment;
use memtrack_model::units::{counted, human_bytes, human_count, printable, shorten_middle};
use std::fmt;

/// The default line width, in characters.
const DEFAULT_WIDTH: usize = 120;
/// The width of a row in characters, not counting the name.
const NUMBERS_WIDTH: usize = 54;
/// The extra width of a row whose numbers have errors.
const ERRORS_WIDTH: usize = 13;
/// The smallest width of a name when lines are too long.
const MIN_NAME_WIDTH: usize = 24;

impl CategoryReport {
    /// Formats the report as text with at most `rows` modules and operators for each moment. Lines have at
    /// most `width` characters; if `width` is `None`, they are as long as needed.
    pub fn to_text(&self, rows: usize, width: Option<usize>) -> String {
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(NUMBERS_WIDTH).max(MIN_NAME_WIDTH));
        let mut parts = vec![format!(
            "{}: {} over {}\n",
            printable(&self.device.name),
            counted(self.changes, "change"),
            human_moment(self.lasts_ns)
        )];
        parts.extend(self.listed(rows).moments.iter().map(|moment| format_moment(moment, room)));
        if !self.phases.is_empty() {
            parts.push(format_phases(&self.phases));
        }
        parts.join("\n")
    }
}

impl fmt::Display for CategoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(20, Some(DEFAULT_WIDTH)))
    }
}

fn format_moment(moment: &MomentMemory, room: usize) -> String {
    let when = match moment.moment {
        "peak" => format!("At the peak, {} after the start", human_moment(moment.after_ns)),
        "end" => "At the end".to_owned(),
        _ => format!("{} after the start", human_moment(moment.after_ns)),
    };
    let note = match moment.error.is_exact() {
        true => format!("{} bytes", human_count(moment.bytes)),
        false => "small blocks were sampled".to_owned(),
    };
    let mut text = format!("{when}: {} requested ({note})\n", moment.error.as_bytes(moment.bytes));
    if moment.categories.is_empty() {
        return text;
    }
    let groups = [("module", &moment.modules), ("operator", &moment.operators)];
    let of_groups =
        groups.iter().flat_map(|(_, of)| of.rows.iter().map(|row| &row.sums).chain([&of.others.sums]));
    let mut sums = moment.categories.iter().map(|row| &row.sums).chain(of_groups);
    let have_errors = sums.any(|sums| !sums.error.is_exact() || !sums.count_error.is_exact());
    let room = if have_errors { room.saturating_sub(ERRORS_WIDTH).max(MIN_NAME_WIDTH) } else { room };
    let mut table = Table { total: moment.bytes, name_width: 20, have_errors };
    text.push_str(&table.format_head("category", ""));
    for row in &moment.categories {
        text.push_str(&table.format_row(row.category.name(), &row.sums, None));
    }
    for (title, groups) in groups {
        let name = |row: &PieceGroup| row.name.chars().count().min(room);
        table.name_width = groups.rows.iter().map(name).max().unwrap_or(0).max(20);
        text.push_str(&table.format_head(title, "  mostly"));
        for row in &groups.rows {
            text.push_str(&table.format_row(&row.name, &row.sums, largest_category(&row.by_category)));
        }
        if groups.others.rows > 0 {
            let name = format!("({} more)", human_count(groups.others.rows as u64));
            text.push_str(&table.format_row(&name, &groups.others.sums, None));
        }
    }
    text
}

/// The form of a table of sums.
struct Table {
    /// The bytes that shares refer to.
    total: u64,
    name_width: usize,
    /// Whether the numbers have errors.
    have_errors: bool,
}

impl Table {
    fn format_head(&self, title: &str, last: &str) -> String {
        self.format_columns(title, ["bytes", "share", "pieces"], last)
    }

    fn format_row(&self, name: &str, sums: &PieceSums, mostly: Option<Category>) -> String {
        let share = sums.bytes as f64 / self.total.max(1) as f64;
        let bytes = sums.error.as_bytes(sums.bytes);
        let share = sums.error.as_share(share.min(1.0));
        let count = sums.count_error.as_count(sums.pieces);
        let mostly = mostly.map_or_else(String::new, |category| format!("  {category}"));
        let name = shorten_middle(&printable(name), self.name_width);
        self.format_columns(&name, [&bytes, &share, &count], &mostly)
    }

    fn format_columns(&self, name: &str, [bytes, share, count]: [&str; 3], last: &str) -> String {
        let wide = self.name_width;
        let [first, second, third] = if self.have_errors { [17, 8, 14] } else { [11, 6, 9] };
        format!("  {name:<wide$} {bytes:>first$} {share:>second$} {count:>third$}{last}\n")
    }
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

fn format_phases(phases: &[PhaseRow]) -> String {
    let errors = |row: &PhaseRow| {
        [row.obtained_bytes_error, row.freed_bytes_error, row.left_bytes_error, row.highest_bytes_error]
    };
    let are_exact = phases.iter().flat_map(errors).all(|error| error.is_exact());
    let [first, third, fourth] = if are_exact { [12, 14, 16] } else { [20; 3] };
    let columns = |name: &str, [obtained, freed, left, highest]: [&str; 4], categories: &str| {
        format!(
            "{name:<12} {obtained:>first$} {freed:>first$} {left:>third$} {highest:>fourth$}  {categories}\n"
        )
    };
    let row = |row: &PhaseRow| {
        let left = Category::ALL.iter().zip(row.left).filter(|(_, bytes)| *bytes > 0);
        // For estimates, only the error of the total is known, so no numbers are shown for categories.
        let left = left.map(|(category, bytes)| match row.left_bytes_error.is_exact() {
            true => format!("{category} {}", human_bytes(bytes as u64)),
            false => category.to_string(),
        });
        let left: Vec<String> = left.collect();
        let numbers = [
            &*row.obtained_bytes_error.as_bytes(row.obtained_bytes),
            &*row.freed_bytes_error.as_bytes(row.freed_bytes),
            &*row.left_bytes_error.as_bytes(row.left_bytes),
            &*row
                .highest_bytes
                .map_or_else(|| "-".to_owned(), |bytes| row.highest_bytes_error.as_bytes(bytes)),
        ];
        columns(
            row.part.name(),
            numbers,
            &if left.is_empty() { "nothing".to_owned() } else { left.join(", ") },
        )
    };
    let titles = ["obtained", "freed", "left at end", "highest then"];
    columns("phase", titles, "left, by category") + &phases.iter().map(row).collect::<String>()
}

//! The table of the ranks, and the groups that explain the outliers.

use super::{MAX_NAME_BYTES, MAX_SENTENCE_BYTES, Page};
use memtrack_model::escape::{escape_line, escape_text};
use memtrack_model::units::{capitalised, counted};
use memtrack_report::ranks::heat::HeatMap;
use memtrack_report::ranks::{Outlier, Ranks, signed_bytes};
use std::fmt::Write;

/// The maximum number of outliers that are explained.
pub(super) const MAX_EXPLAINED: usize = 24;
/// The maximum number of groups in one explanation.
const MAX_GROUPS: usize = 8;
/// The maximum number of ranks in all tables together.
pub(super) const MAX_LISTED: usize = 4096;
/// Each table may list at least this many ranks, however many tables there are.
pub(super) const MIN_LISTED: usize = 128;

/// Writes the explanation of an outlier.
pub(super) fn write_explanation(ranks: &Ranks, outlier: &Outlier, open: &str, out: &mut String) {
    let _ = write!(
        out,
        "<details class=\"why\"{open}><summary>{}</summary>\n<table><thead><tr><th scope=\"col\" class=\"number\">More or less</th>\
         <th scope=\"col\">{}</th><th scope=\"col\">Its own, and the others'</th></tr></thead><tbody>\n",
        escape_text(&ranks.why_title(outlier), MAX_NAME_BYTES),
        capitalised(ranks.by.name())
    );
    for difference in outlier.why.iter().take(MAX_GROUPS) {
        let _ = writeln!(
            out,
            "<tr><td class=\"number\">{}</td><th scope=\"row\"><code>{}</code></th><td>{}</td></tr>",
            signed_bytes(difference.by()),
            escape_line(&difference.name, MAX_SENTENCE_BYTES),
            difference.about()
        );
    }
    out.push_str("</tbody></table>\n");
    let more = outlier.why.len().saturating_sub(MAX_GROUPS);
    if more > 0 {
        let _ = writeln!(out, "<p class=\"note\">… and {}</p>", counted(more as u64, "more group"));
    }
    out.push_str("</details>\n");
}

/// Writes the table for one kind of memory.
pub(super) fn write(page: &Page<'_>, number: usize, heat: &HeatMap, out: &mut String) {
    let (ranks, memory) = (page.ranks, &page.ranks.memories[number]);
    let numbers = &page.tables[number];
    let has_odd = !memory.outliers.is_empty();
    out.push_str("<div class=\"table\"><table class=\"ranks\"><thead><tr><th scope=\"col\">Rank</th>");
    for head in &numbers.heads {
        let _ = write!(out, "<th scope=\"col\" class=\"number\">{head}</th>");
    }
    if has_odd {
        out.push_str("<th scope=\"col\">Odd in</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
    for (rank, cells) in &numbers.rows {
        let odd: Vec<&Outlier> = memory.outliers.iter().filter(|one| one.rank == *rank).collect();
        let class = if odd.is_empty() { "" } else { " class=\"odd\"" };
        let file = escape_line(&ranks.ranks[*rank].file, MAX_SENTENCE_BYTES);
        let name = escape_line(&page.short_name(*rank), MAX_NAME_BYTES);
        let name = match page.links.get(*rank).and_then(Option::as_ref) {
            Some(link) => {
                format!("<a href=\"{}\" title=\"{file}\">{name}</a>", escape_text(link, usize::MAX))
            }
            None => format!("<span title=\"{file}\">{name}</span>"),
        };
        let _ = write!(out, "<tr id=\"m{number}-r{rank}\"{class}><th scope=\"row\">{name}</th>");
        for cell in cells {
            let _ = write!(out, "<td class=\"number\">{}</td>", escape_line(cell, MAX_NAME_BYTES));
        }
        if has_odd {
            let _ = write!(out, "<td>{}</td>", format_outlier_measures(heat, *rank, &odd));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    if numbers.left_out > 0 {
        let _ = writeln!(
            out,
            "<p class=\"note\">… and {}. The odd ones and those with the highest peaks are listed first; <code>memtrack ranks -n \
             0</code> lists all.</p>",
            counted(numbers.left_out as u64, "more rank")
        );
    }
}

/// Returns the measures in which a rank is an outlier, and when it became one.
fn format_outlier_measures(heat: &HeatMap, rank: usize, odd: &[&Outlier]) -> String {
    let measures: Vec<String> =
        odd.iter().map(|one| format!("{} {}", one.measure.name(), signed_bytes(one.by()))).collect();
    let history = heat.histories.iter().find(|history| history.rank == rank);
    let words = history.and_then(|history| history.description(&heat.columns));
    let words = words.map_or(String::new(), |words| format!("; {words}"));
    escape_text(&format!("{}{words}", measures.join(", ")), MAX_SENTENCE_BYTES)
}

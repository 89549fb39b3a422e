//! The table of the ranks, and the groups that explain the outliers.

use super::{MAX_NAME_BYTES, MAX_SENTENCE_BYTES, Page, line, text};
use maud::{Markup, html};
use memtrack_model::units::{capitalised, counted};
use memtrack_report::ranks::heat::HeatMap;
use memtrack_report::ranks::{Outlier, Ranks, signed_bytes};

/// The maximum number of outliers that are explained.
pub(super) const MAX_EXPLAINED: usize = 24;
/// The maximum number of groups in one explanation.
const MAX_GROUPS: usize = 8;
/// The maximum number of ranks in all tables together.
pub(super) const MAX_LISTED: usize = 4096;
/// Each table may list at least this many ranks, however many tables there are.
pub(super) const MIN_LISTED: usize = 128;

/// Returns the explanation of an outlier.
pub(super) fn explanation(ranks: &Ranks, outlier: &Outlier, is_open: bool) -> Markup {
    let more = outlier.why.len().saturating_sub(MAX_GROUPS);
    html! {
        details.why open=[is_open.then_some("open")] {
            summary { (text(&ranks.why_title(outlier), MAX_NAME_BYTES)) }
            table {
                thead {
                    tr {
                        th scope="col" class="number" { "More or less" }
                        th scope="col" { (capitalised(ranks.by.name())) }
                        th scope="col" { "Its own, and the others'" }
                    }
                }
                tbody {
                    @for difference in outlier.why.iter().take(MAX_GROUPS) {
                        tr {
                            td.number { (signed_bytes(difference.by)) }
                            th scope="row" { code { (line(&difference.name, MAX_SENTENCE_BYTES)) } }
                            td { (difference.about()) }
                        }
                    }
                }
            }
            @if more > 0 { p.note { "… and " (counted(more as u64, "more group")) } }
        }
    }
}

/// Returns the table for one kind of memory.
pub(super) fn table(page: &Page<'_>, number: usize, heat: &HeatMap) -> Markup {
    let (ranks, memory) = (page.ranks, &page.ranks.memories[number]);
    let numbers = &page.tables[number];
    let has_odd = !memory.outliers.is_empty();
    let odd_in = |rank| memory.outliers.iter().filter(|one| one.place == rank).collect::<Vec<&Outlier>>();
    html! {
        div.table {
            table.ranks {
                thead {
                    tr {
                        th scope="col" { "Rank" }
                        @for head in &numbers.heads { th scope="col" class="number" { (head) } }
                        @if has_odd { th scope="col" { "Odd in" } }
                    }
                }
                tbody {
                    @for (rank, cells) in &numbers.rows {
                        @let odd = odd_in(*rank);
                        @let file = line(&ranks.ranks[*rank].file, MAX_SENTENCE_BYTES);
                        @let name = line(&page.short_name(*rank), MAX_NAME_BYTES);
                        tr id=(format!("m{number}-r{rank}")) class=[(!odd.is_empty()).then_some("odd")] {
                            th scope="row" {
                                @match page.links.get(*rank).and_then(Option::as_ref) {
                                    Some(link) => a href=(text(link, usize::MAX)) title=(file) { (name) },
                                    None => span title=(file) { (name) },
                                }
                            }
                            @for cell in cells { td.number { (line(cell, MAX_NAME_BYTES)) } }
                            @if has_odd { td { (outlier_measures(heat, *rank, &odd)) } }
                        }
                    }
                }
            }
        }
        @if numbers.left_out > 0 {
            p.note {
                "… and " (counted(numbers.left_out as u64, "more rank"))
                ". The odd ones and those with the highest peaks are listed first; "
                code { "memtrack ranks -n 0" } " lists all."
            }
        }
    }
}

/// Returns the measures in which a rank is an outlier, and when it became one.
fn outlier_measures(heat: &HeatMap, rank: usize, odd: &[&Outlier]) -> Markup {
    let measures: Vec<String> =
        odd.iter().map(|one| format!("{} {}", one.measure.name(), signed_bytes(one.by))).collect();
    let history = heat.histories.iter().find(|history| history.rank == rank);
    let words = history.and_then(|history| history.description(&heat.columns));
    let words = words.map_or(String::new(), |words| format!("; {words}"));
    text(&format!("{}{words}", measures.join(", ")), MAX_SENTENCE_BYTES)
}

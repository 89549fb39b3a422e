//! Presents the ranks of a job as one self-contained HTML page. It contains a verdict on whether any ranks are
//! outliers, a chart of the outliers against the other ranks, a heat map of all ranks over time, the reasons why the
//! outliers differ, and a table.
//!
//! Everything except the bytes of individual cells is visible without scripts. Names from files are untrusted: they are
//! escaped in the page and encoded as JSON in the script's data, and the content security policy in the page's head
//! allows only this script and no requests.

mod cells;
mod chart;
mod colours;
mod map;
mod table;
#[cfg(test)]
mod tests;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use memtrack_model::escape::{escape_line, escape_text};
use memtrack_model::units::{capitalised, counted, human_count, shorten_middle};
use memtrack_report::ranks::heat::{HeatMap, MAX_COLUMNS, MAX_ROWS, RankHistory};
use memtrack_report::ranks::{RankNumbers, Ranks, RanksMemory, Unread};
use std::collections::HashSet;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The script's hash in base64. The policy allows only this script.
const SCRIPT_SHA256: &str = include_str!("page.sha256");
/// The maximum number of bytes in a sentence.
const MAX_SENTENCE_BYTES: usize = 1000;
/// The maximum number of bytes in a name.
const MAX_NAME_BYTES: usize = 300;
/// The maximum number of outliers for which the first lines of the page state when they became outliers.
const MAX_SINCE_SENTENCES: usize = 3;
/// The maximum number of unreadable files that are listed, each with the reason.
const MAX_UNREADABLE: usize = 200;
/// The maximum number of kinds of memory that are shown. A rank has one for each device, and two for host memory.
const MAX_MEMORIES: usize = 32;
/// Each map may have at least this many rows, however many kinds of memory there are.
const MIN_ROWS: usize = 64;

/// Returns the page for `ranks`. For each of [`Ranks::ranks`], `links` contains the address of the rank's own page, if
/// there is one, relative to this page. The page has at most a few megabytes, however many ranks there are.
pub fn html(ranks: &Ranks, links: &[Option<String>]) -> String {
    let shown = ranks.memories.len().clamp(1, MAX_MEMORIES);
    let limit = (table::MAX_LISTED / shown).max(table::MIN_LISTED);
    let tables: Vec<RankNumbers> =
        ranks.memories.iter().take(shown).map(|memory| ranks.numbers(memory, limit)).collect();
    let listed = tables.iter().map(|table| table.rows.iter().map(|row| row.0).collect()).collect();
    let page = Page { ranks, links, tables, listed };
    let title = line(&ranks.title(), MAX_NAME_BYTES);
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action \
         'none'",
        SCRIPT_SHA256.trim()
    );
    let more = ranks.memories.len().saturating_sub(MAX_MEMORIES);
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · memtrack" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    @for doubt in &ranks.doubts {
                        p.doubt { "Careful: " (text(doubt, MAX_SENTENCE_BYTES)) "." }
                    }
                }
                main {
                    @if ranks.memories.is_empty() { p.answer { "None of them holds any memory." } }
                    @for number in 0..ranks.memories.len().min(MAX_MEMORIES) {
                        (page.memory(number))
                    }
                    @if more > 0 {
                        p {
                            "… and " (counted(more as u64, "more device")) ": "
                            code { "memtrack ranks" } " without -o prints them."
                        }
                    }
                    (page.incomplete())
                    p.note {
                        "A rank is odd if it is off the median by more than 5 scaled median absolute deviations, 5 % and 1 MiB. \
                         Bytes are requested ones; reserved are segments."
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    html.into_string()
}

/// Returns the text, cut to `max_bytes` and cleaned. Untrusted text is written by this and [`line`] only.
fn text(text: &str, max_bytes: usize) -> PreEscaped<String> {
    PreEscaped(escape_text(text, max_bytes))
}

/// Returns the text like [`text`], on one line.
fn line(text: &str, max_bytes: usize) -> PreEscaped<String> {
    PreEscaped(escape_line(text, max_bytes))
}

struct Page<'a> {
    ranks: &'a Ranks,
    links: &'a [Option<String>],
    /// The table for each kind of memory.
    tables: Vec<RankNumbers>,
    /// For each of these tables, the ranks that it lists.
    listed: Vec<HashSet<usize>>,
}

impl Page<'_> {
    /// Returns the section about one kind of memory.
    fn memory(&self, number: usize) -> Markup {
        let memory = &self.ranks.memories[number];
        let heat = HeatMap::of(self.ranks, memory, MAX_COLUMNS, self.max_rows(memory));
        let id = format!("m{number}");
        html! {
            section.memory aria-labelledby=(id) {
                h2 id=(id) { (line(&self.ranks.heading(memory), MAX_NAME_BYTES)) }
                (self.answer(memory, &heat))
                (chart::figure(self, number, &heat))
                (map::figure(self, number, &heat))
                (self.explanations(memory))
                (table::table(self, number, &heat))
            }
        }
    }

    /// Returns the maximum number of rows in a map, which keeps the page small and the rows distinguishable.
    fn max_rows(&self, memory: &RanksMemory) -> usize {
        let most = (MAX_ROWS / self.ranks.memories.len().max(1)).max(MIN_ROWS);
        // In shared rows, each cell has two numbers, so there may be only half as many rows.
        if memory.members.len() > most { most / 2 } else { most }
    }

    fn answer(&self, memory: &RanksMemory, heat: &HeatMap) -> Markup {
        let mut sentences = self.ranks.verdict(memory).into_iter();
        let mut answer = sentences.next().unwrap_or_default();
        let first = memory.outliers.first();
        let of_first = first.and_then(|odd| heat.histories.iter().find(|one| one.rank == odd.place));
        if let Some(since) = of_first.and_then(|history| self.format_since(history, heat)) {
            answer = format!("{answer} {since}");
        }
        let others = heat.histories.iter().filter(|one| first.is_none_or(|odd| odd.place != one.rank));
        let others = others.take(MAX_SINCE_SENTENCES).filter_map(|history| self.format_since(history, heat));
        let steps = memory.skew.as_ref().map(|skew| self.ranks.steps_sentence(skew));
        let more: Vec<String> = sentences.chain(others).chain(steps).collect();
        html! {
            p.answer { (text(&answer, 2 * MAX_SENTENCE_BYTES)) }
            @if !more.is_empty() {
                ul.more { @for sentence in more { li { (text(&sentence, MAX_SENTENCE_BYTES)) } } }
            }
        }
    }

    /// Returns a sentence that states when a rank became an outlier.
    fn format_since(&self, history: &RankHistory, heat: &HeatMap) -> Option<String> {
        let words = history.description(&heat.columns)?;
        Some(format!("{} {words}.", capitalised(&self.ranks.label(history.rank))))
    }

    /// Returns the groups that explain the outliers. The first few explanations are open.
    fn explanations(&self, memory: &RanksMemory) -> Markup {
        let explained = self.ranks.explained(memory);
        let more = explained.len().saturating_sub(table::MAX_EXPLAINED);
        html! {
            @for (place, outlier) in explained.iter().take(table::MAX_EXPLAINED).enumerate() {
                (table::explanation(self.ranks, outlier, place < MAX_SINCE_SENTENCES))
            }
            @if more > 0 {
                p.note { (counted(more as u64, "more odd rank")) ": " code { "memtrack ranks --json" } " says why." }
            }
        }
    }

    /// Lists the data that the files lack, and the files that could not be read.
    fn incomplete(&self) -> Markup {
        let unread = &self.ranks.unread;
        html! {
            @for gap in self.ranks.gaps() { p.doubt { (text(&gap, MAX_SENTENCE_BYTES)) } }
            @if !unread.is_empty() {
                section {
                    h2 { "Not read: " (counted(unread.len() as u64, "file")) }
                    ul.unread {
                        @for Unread { path, why } in unread.iter().take(MAX_UNREADABLE) {
                            li { code { (line(path, MAX_NAME_BYTES)) } ": " (text(why, MAX_SENTENCE_BYTES)) }
                        }
                        @if unread.len() > MAX_UNREADABLE {
                            li { "… " (human_count((unread.len() - MAX_UNREADABLE) as u64)) " more" }
                        }
                    }
                }
            }
        }
    }

    /// Returns the short name of a rank, which is its number or, if it has none, its file's name without folders,
    /// shortened.
    fn short_name(&self, rank: usize) -> String {
        let digest = &self.ranks.ranks[rank];
        match digest.rank {
            Some(number) => number.to_string(),
            None => {
                let name = digest.file.rsplit(['/', '\\']).next().unwrap_or(&digest.file);
                shorten_middle(name, 14)
            }
        }
    }

    /// Returns an element for a rank's name. The element is a link to the rank's own page if it has one, or else to its
    /// row in the table if it is listed there, or else plain text.
    fn rank_name(&self, memory: usize, rank: usize, look: &NameLook<'_>, name: &str) -> Markup {
        let NameLook { class, style, title } = look;
        let title = title.map(|title| line(title, MAX_NAME_BYTES));
        let link = match self.links.get(rank).and_then(Option::as_ref) {
            Some(link) => Some(text(link, usize::MAX)),
            None => self.listed[memory].contains(&rank).then(|| PreEscaped(format!("#m{memory}-r{rank}"))),
        };
        let name = line(name, MAX_NAME_BYTES);
        html! {
            @match link {
                Some(link) => a class=[class] style=(style) title=[title] href=(link) { (name) },
                None => span class=[class] style=(style) title=[title] { (name) },
            }
        }
    }
}

/// The attributes of a rank's name beside a drawing.
struct NameLook<'a> {
    class: Option<String>,
    style: String,
    title: Option<&'a str>,
}

/// Returns the class of an outlier's tint. The first few outliers have a tint each, and all others share one.
fn tint_of(place: usize) -> String {
    format!("tint-{}", place.min(chart::MAX_LINES))
}

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

use memtrack_model::escape::{escape_line, escape_text};
use memtrack_model::units::{capitalised, counted, human_count, shorten_middle};
use memtrack_report::ranks::heat::{HeatMap, MAX_COLUMNS, MAX_ROWS, RankHistory};
use memtrack_report::ranks::{RankNumbers, Ranks, RanksMemory};
use std::collections::HashSet;
use std::fmt::Write;

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
    let mut out = String::new();
    let title = escape_line(&ranks.title(), MAX_NAME_BYTES);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{}'; \
         style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{title} · memtrack</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{title}</h1>\n",
        SCRIPT_SHA256.trim(),
    );
    for doubt in &ranks.doubts {
        let _ = writeln!(out, "<p class=\"doubt\">Careful: {}.</p>", escape_text(doubt, MAX_SENTENCE_BYTES));
    }
    out.push_str("</header>\n<main>\n");
    if ranks.memories.is_empty() {
        out.push_str("<p class=\"answer\">None of them holds any memory.</p>\n");
    }
    for number in 0..ranks.memories.len().min(MAX_MEMORIES) {
        page.write_memory(number, &mut out);
    }
    if ranks.memories.len() > MAX_MEMORIES {
        let more = counted((ranks.memories.len() - MAX_MEMORIES) as u64, "more device");
        let _ = writeln!(out, "<p>… and {more}: <code>memtrack ranks</code> without -o prints them.</p>");
    }
    page.write_incomplete(&mut out);
    let _ = write!(
        out,
        "<p class=\"note\">A rank is odd if it is off the median by more than 5 scaled median absolute deviations, 5 % and 1 MiB. Bytes \
         are requested ones; reserved are segments.</p>\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    );
    out
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
    /// Writes the section about one kind of memory.
    fn write_memory(&self, number: usize, out: &mut String) {
        let memory = &self.ranks.memories[number];
        let heat = HeatMap::of(self.ranks, memory, MAX_COLUMNS, self.max_rows(memory));
        let _ = writeln!(
            out,
            "<section class=\"memory\" aria-labelledby=\"m{number}\">\n<h2 id=\"m{number}\">{}</h2>",
            escape_line(&self.ranks.heading(memory), MAX_NAME_BYTES)
        );
        self.write_answer(memory, &heat, out);
        chart::write(self, number, &heat, out);
        map::write(self, number, &heat, out);
        self.write_explanations(memory, out);
        table::write(self, number, &heat, out);
        out.push_str("</section>\n");
    }

    /// Returns the maximum number of rows in a map, which keeps the page small and the rows distinguishable.
    fn max_rows(&self, memory: &RanksMemory) -> usize {
        let most = (MAX_ROWS / self.ranks.memories.len().max(1)).max(MIN_ROWS);
        // In shared rows, each cell has two numbers, so there may be only half as many rows.
        if memory.members.len() > most { most / 2 } else { most }
    }

    fn write_answer(&self, memory: &RanksMemory, heat: &HeatMap, out: &mut String) {
        let verdict = self.ranks.verdict(memory);
        let (first, more) =
            verdict.split_first().map_or((String::new(), &[][..]), |(one, more)| (one.clone(), more));
        let mut answer = first;
        let of_first =
            memory.outliers.first().and_then(|odd| heat.histories.iter().find(|one| one.rank == odd.rank));
        if let Some(since) = of_first.and_then(|history| self.format_since(history, heat)) {
            answer = format!("{answer} {since}");
        }
        let _ = writeln!(out, "<p class=\"answer\">{}</p>", escape_text(&answer, 2 * MAX_SENTENCE_BYTES));
        let others = heat
            .histories
            .iter()
            .filter(|one| memory.outliers.first().is_none_or(|odd| odd.rank != one.rank));
        let others = others.take(MAX_SINCE_SENTENCES).filter_map(|history| self.format_since(history, heat));
        let steps = memory.skew.as_ref().map(|skew| self.ranks.steps_sentence(skew));
        let lines: Vec<String> = more.iter().cloned().chain(others).chain(steps).collect();
        if !lines.is_empty() {
            out.push_str("<ul class=\"more\">\n");
            for sentence in lines {
                let _ = writeln!(out, "<li>{}</li>", escape_text(&sentence, MAX_SENTENCE_BYTES));
            }
            out.push_str("</ul>\n");
        }
    }

    /// Returns a sentence that states when a rank became an outlier.
    fn format_since(&self, history: &RankHistory, heat: &HeatMap) -> Option<String> {
        let words = history.description(&heat.columns)?;
        Some(format!("{} {words}.", capitalised(&self.ranks.label(history.rank))))
    }

    /// Writes the groups that explain the outliers.
    fn write_explanations(&self, memory: &RanksMemory, out: &mut String) {
        let explained = self.ranks.explained(memory);
        for (place, outlier) in explained.iter().take(table::MAX_EXPLAINED).enumerate() {
            // The first few explanations are open.
            let open = if place < MAX_SINCE_SENTENCES { " open=\"open\"" } else { "" };
            table::write_explanation(self.ranks, outlier, open, out);
        }
        let more = explained.len().saturating_sub(table::MAX_EXPLAINED);
        if more > 0 {
            let more = counted(more as u64, "more odd rank");
            let _ =
                writeln!(out, "<p class=\"note\">{more}: <code>memtrack ranks --json</code> says why.</p>");
        }
    }

    /// Lists the data that the files lack, and the files that could not be read.
    fn write_incomplete(&self, out: &mut String) {
        for gap in self.ranks.gaps() {
            let _ = writeln!(out, "<p class=\"doubt\">{}</p>", escape_text(&gap, MAX_SENTENCE_BYTES));
        }
        let unread = &self.ranks.unread;
        if unread.is_empty() {
            return;
        }
        let files = counted(unread.len() as u64, "file");
        let _ = writeln!(out, "<section>\n<h2>Not read: {files}</h2>\n<ul class=\"unread\">");
        for (file, why) in unread.iter().take(MAX_UNREADABLE) {
            let (file, why) = (escape_line(file, MAX_NAME_BYTES), escape_text(why, MAX_SENTENCE_BYTES));
            let _ = writeln!(out, "<li><code>{file}</code>: {why}</li>");
        }
        if unread.len() > MAX_UNREADABLE {
            let more = human_count((unread.len() - MAX_UNREADABLE) as u64);
            let _ = writeln!(out, "<li>… {more} more</li>");
        }
        out.push_str("</ul>\n</section>\n");
    }

    /// Returns the short name of a rank, which is its number or, if it has none, its file's name without folders,
    /// shortened.
    fn short_name(&self, rank: usize) -> String {
        let digest = &self.ranks.ranks[rank];
        match digest.name.rank {
            Some(number) => number.to_string(),
            None => {
                let name = digest.file.rsplit(['/', '\\']).next().unwrap_or(&digest.file);
                shorten_middle(name, 14)
            }
        }
    }

    /// Returns an element for a rank's name with these attributes. The element is a link to the rank's own page if it
    /// has one, or else to its row in the table if it is listed there, or else plain text.
    fn format_name_element(&self, memory: usize, rank: usize, attributes: &str, name: &str) -> String {
        let link = match self.links.get(rank).and_then(Option::as_ref) {
            Some(link) => Some(escape_text(link, usize::MAX)),
            None => self.listed[memory].contains(&rank).then(|| format!("#m{memory}-r{rank}")),
        };
        let name = escape_line(name, MAX_NAME_BYTES);
        match link {
            Some(link) => format!("<a {attributes} href=\"{link}\">{name}</a>"),
            None => format!("<span {attributes}>{name}</span>"),
        }
    }
}

/// Returns the number of an outlier's tint. The first few outliers have a tint each, and all others share one.
fn tint_of(place: usize) -> usize {
    place.min(chart::MAX_LINES)
}

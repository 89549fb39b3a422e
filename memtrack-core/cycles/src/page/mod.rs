//! Writes one HTML page that needs no network, with the findings, the picture, and a table of the values.
//!
//! The page is readable without scripts: the script only moves the picture and repeats the contents of the table in a
//! pane. The page contains no data besides what it shows, and the script interprets no text. Labels are untrusted: they
//! are escaped here, the script copies elements unchanged, and the content security policy in the page's head allows
//! only this script and no URL.

mod findings;
mod values;

use crate::findings::Findings;
use crate::graph::Graph;
use crate::picture::svg::Picture;
use crate::picture::{DrawnValues, weak_verb};
use crate::words;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use memtrack_model::escape::{escape_line, escape_text};
use memtrack_model::units::human_count;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The script's SHA-256 hash in base64. The content security policy allows only this script.
const SCRIPT_SHA256: &str = include_str!("page.sha256");
/// The maximum lengths of a title and of a remark in bytes, and the maximum number of remarks.
const MAX_TITLE_BYTES: usize = 300;
const MAX_REMARK_BYTES: usize = 1000;
const MAX_REMARKS: usize = 50;

/// Returns the page. `title` names the file or program from which the graph came.
pub fn html(graph: &Graph, findings: &Findings, title: &str) -> String {
    let drawn = DrawnValues::of(graph, findings);
    let picture = Picture::new(graph, findings, &drawn);
    let title = line(title, MAX_TITLE_BYTES);
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        SCRIPT_SHA256.trim()
    );
    let left_out = parts_left_out(&drawn, &picture);
    let has_remarks = !graph.remarks.is_empty() || !left_out.is_empty();
    let is_empty = findings.cycles.is_empty() && graph.unexplained.is_empty() && !has_remarks;
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · reference cycles · memtrack" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { (title) } p { (text(&words::summary(graph, findings), MAX_REMARK_BYTES)) } }
                main class=[is_empty.then_some("alone")] {
                    section.findings aria-label="Findings" {
                        (findings::list(graph, findings, &drawn))
                        @if has_remarks {
                            h2 { "Remarks" }
                            ul.remarks {
                                @for part in left_out { li { (part) } }
                                @for remark in graph.remarks.iter().take(MAX_REMARKS) {
                                    li { (text(remark, MAX_REMARK_BYTES)) }
                                }
                                @if graph.remarks.len() > MAX_REMARKS {
                                    li { (graph.remarks.len() - MAX_REMARKS) " more remarks" }
                                }
                            }
                        }
                    }
                    section.picture aria-label="Graph" {
                        @if drawn.nodes.is_empty() {
                            p.nothing { "No value here leads to device memory: there is nothing to draw." }
                        } @else {
                            (picture_pane(graph, &picture, !findings.cycles.is_empty()))
                        }
                    }
                    @if !drawn.nodes.is_empty() { (values::table(graph, findings, &drawn)) }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    html.into_string()
}

/// Returns the picture with its key and the pane in which the script describes values.
fn picture_pane(graph: &Graph, picture: &Picture<'_>, has_cycles: bool) -> Markup {
    html! {
        div.bar id="bar" hidden="hidden" {}
        div.view id="view" { (PreEscaped(picture.render(true))) }
        p.key {
            span { i.box {} "a value" } " " span { i class="box memory" {} "has device memory" } " "
            @if has_cycles {
                span { i.ring { "1" } "in cycle 1" } " " span { i.dash {} (weak_verb(graph)) }
            }
        }
        div.pane id="pane" aria-live="polite" hidden="hidden" {
            p {
                "Point at a value, or move to it with the arrow keys: its details appear here, with the place where its device \
                 memory was allocated."
            }
            p.note {
                "A click on a reference follows it. Drag to move; the wheel, + and − zoom; 0 shows all, / finds."
            }
        }
        noscript { p.key { "Values and references are links to the table below." } }
    }
}

/// Returns the text, cut to `max_bytes` and cleaned. Untrusted text is written by this and [`line`] only.
fn text(text: &str, max_bytes: usize) -> PreEscaped<String> {
    PreEscaped(escape_text(text, max_bytes))
}

/// Returns the text like [`text`], on one line.
fn line(text: &str, max_bytes: usize) -> PreEscaped<String> {
    PreEscaped(escape_line(text, max_bytes))
}

/// Returns the parts that the picture leaves out.
fn parts_left_out(drawn: &DrawnValues, picture: &Picture<'_>) -> Vec<Markup> {
    let mut out = Vec::new();
    if drawn.left_out > 0 {
        let (values, them) = if drawn.left_out == 1 { ("value is", "it") } else { ("values are", "them") };
        out.push(html! {
            (human_count(drawn.left_out)) " more " (values) " not drawn or listed here; "
            code { "memtrack cycles -o graph.json" } " has " (them) "."
        });
    }
    if picture.lines_left_out > 0 {
        out.push(html! {
            (human_count(picture.lines_left_out))
            " of the references among the values drawn are not drawn; the table of values counts them."
        });
    }
    out
}

#[cfg(test)]
mod tests;

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
use memtrack_model::escape::{escape_line, escape_text};
use memtrack_model::units::human_count;
use std::fmt::Write;

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
    let mut out = String::new();
    let title = escape_line(title, MAX_TITLE_BYTES);
    let more = list_left_out(&drawn, &picture);
    let is_empty = findings.cycles.is_empty()
        && graph.unexplained.is_empty()
        && graph.remarks.is_empty()
        && more.is_empty();
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{}'; \
         style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{title} · reference cycles · memtrack</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{title}</h1><p>{}</p></header>\n<main{}>\n<section class=\"findings\" \
         aria-label=\"Findings\">\n",
        SCRIPT_SHA256.trim(),
        escape_text(&words::summary(graph, findings), MAX_REMARK_BYTES),
        if is_empty { " class=\"alone\"" } else { "" },
    );
    findings::write(graph, findings, &drawn, &mut out);
    let remarks = graph.remarks.iter().map(|remark| escape_text(remark, MAX_REMARK_BYTES));
    if !graph.remarks.is_empty() || !more.is_empty() {
        out.push_str("<h2>Remarks</h2>\n<ul class=\"remarks\">\n");
        for remark in more.into_iter().chain(remarks.take(MAX_REMARKS)) {
            let _ = writeln!(out, "<li>{remark}</li>");
        }
        if graph.remarks.len() > MAX_REMARKS {
            let _ = writeln!(out, "<li>{} more remarks</li>", graph.remarks.len() - MAX_REMARKS);
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</section>\n");
    if drawn.nodes.is_empty() {
        out.push_str(
            "<section class=\"picture\" aria-label=\"Graph\"><p class=\"nothing\">No value here leads to device memory: there is \
             nothing to draw.</p></section>\n",
        );
    } else {
        let _ = write!(
            out,
            "<section class=\"picture\" aria-label=\"Graph\">\n<div class=\"bar\" id=\"bar\" hidden=\"hidden\"></div>\n\
             <div class=\"view\" id=\"view\">\n{}</div>\n<p class=\"key\"><span><i class=\"box\"></i>a value</span> \
             <span><i class=\"box memory\"></i>has device memory</span> {}</p>\n<div class=\"pane\" id=\"pane\" aria-live=\"polite\" hidden=\"hidden\">\
             <p>Point at a value, or move to it with the arrow keys: its details appear here, with the place where its device memory \
             was allocated.</p><p class=\"note\">A click on a reference follows it. Drag to move; the wheel, + and − zoom; 0 shows \
             all, / finds.</p></div>\n<noscript><p class=\"key\">Values and references are links to the table \
             below.</p></noscript>\n</section>\n",
            picture.render(true),
            if findings.cycles.is_empty() {
                String::new()
            } else {
                let verb = weak_verb(graph);
                format!(
                    "<span><i class=\"ring\">1</i>in cycle 1</span> <span><i class=\"dash\"></i>{verb}</span>"
                )
            }
        );
        values::write(graph, findings, &drawn, &mut out);
    }
    let _ = write!(out, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
    out
}

/// Lists the parts that the picture leaves out.
fn list_left_out(drawn: &DrawnValues, picture: &Picture<'_>) -> Vec<String> {
    let mut out = Vec::new();
    if drawn.left_out > 0 {
        let (verb, s) = if drawn.left_out == 1 { ("is", "") } else { ("are", "s") };
        out.push(format!(
            "{} more value{s} {verb} not drawn or listed here; <code>memtrack cycles -o graph.json</code> has {}.",
            human_count(drawn.left_out),
            if drawn.left_out == 1 { "it" } else { "them" }
        ));
    }
    if picture.lines_left_out > 0 {
        out.push(format!(
            "{} of the references among the values drawn are not drawn; the table of values counts them.",
            human_count(picture.lines_left_out)
        ));
    }
    out
}

#[cfg(test)]
mod tests;

//! Writes the text of the findings, with a table of facts for each cycle.

use crate::findings::{Cycle, Findings, Proof};
use crate::graph::Graph;
use crate::picture::{DrawnValues, MAX_CYCLES};
use crate::words;
use memtrack_model::escape::{escape_line, escape_text};
use memtrack_model::units::{counted, human_count};
use std::fmt::Write;

/// The maximum length of a stack, and of any other text, in bytes.
const MAX_STACK_BYTES: usize = 6000;
const MAX_TEXT_BYTES: usize = 4000;
/// The maximum number of references to make weak that are listed if all of them are needed.
const MAX_CUTS: usize = 12;
/// The maximum number of references to make weak that are listed if one of them is enough.
const MAX_ALTERNATIVES: usize = 3;

pub(super) fn write(graph: &Graph, findings: &Findings, drawn: &DrawnValues, out: &mut String) {
    if !findings.cycles.is_empty() {
        out.push_str("<ol class=\"cycles\">\n");
        for (number, cycle) in findings.cycles.iter().enumerate().take(MAX_CYCLES) {
            write_cycle(graph, number, cycle, drawn, out);
        }
        out.push_str("</ol>\n");
    }
    if findings.cycles.len() > MAX_CYCLES {
        let more = counted((findings.cycles.len() - MAX_CYCLES) as u64, "cycle");
        let _ = writeln!(
            out,
            "<p>{more} of other kinds are not listed here; <code>memtrack cycles -o graph.json</code> has them.</p>"
        );
    }
    if !graph.unexplained.is_empty() {
        write_unexplained(graph, findings, drawn, out);
    }
}

/// Returns `text`, linked to the value in the picture if the value is drawn.
fn link_value(node: Option<u32>, drawn: &DrawnValues, text: &str) -> String {
    match node.filter(|&node| drawn.has(node)) {
        Some(node) => format!("<a href=\"#n{node}\">{text}</a>"),
        None => text.to_owned(),
    }
}

fn write_cycle(graph: &Graph, number: usize, cycle: &Cycle, drawn: &DrawnValues, out: &mut String) {
    let kept = if cycle.proof == Proof::HeldOutside { cycle.pinned } else { cycle.all_leaked };
    let many = if cycle.instances > 1 {
        format!("{} cycles of this kind keep ", human_count(cycle.instances))
    } else {
        String::new()
    };
    let verb = match (cycle.proof, cycle.instances) {
        (Proof::HeldOutside, _) => "leads to ",
        (_, 1) => "keeps ",
        _ => "",
    };
    let heading = format!("{many}{verb}{}", words::bytes(kept));
    let first = cycle.nodes.iter().find(|&&node| drawn.has(node)).copied();
    let _ = write!(
        out,
        "<li class=\"cycle tint-{}\" id=\"c{}\" data-cycle=\"{number}\"><h2>{} <span>{}</span></h2>\n<p class=\"way\">{}</p>\n<table class=\"facts\"><tbody>\n",
        number % 6,
        number + 1,
        link_value(first, drawn, &format!("Cycle {}", number + 1)),
        escape_text(&heading, MAX_TEXT_BYTES),
        format_path(graph, &cycle.closed_path, cycle.closed_path.len(), drawn),
    );
    let mut row = |what: &str, html: &str| {
        let _ = writeln!(out, "<tr><th scope=\"row\">{what}</th><td>{html}</td></tr>");
    };
    let weak = words::make_weak(graph, cycle);
    if !weak.is_empty() {
        let is_enough = cycle.cuts.first().is_some_and(|cut| cut.ends_it);
        let most = if is_enough { MAX_ALTERNATIVES } else { MAX_CUTS };
        let mut lines: Vec<String> = weak
            .iter()
            .take(most)
            .enumerate()
            .map(|(at, text)| {
                let text = escape_text(text, MAX_TEXT_BYTES);
                if at == 0 { format!("<b class=\"weak\">{text}</b>") } else { text }
            })
            .collect();
        if weak.len() > most {
            lines.push(format!("… {} more", weak.len() - most));
        }
        let ends = if is_enough {
            "<br/><small>Without it, these values form no cycle. A suggestion: only you know which of two values owns the other.</small>"
        } else {
            ""
        };
        row("What to do", &format!("{}{ends}", lines.join("<br/>")));
    }
    let mut proof = words::proof(cycle);
    if cycle.weak_outside > 0 {
        let _ = write!(proof, " ({} from outside)", counted(cycle.weak_outside, "weak handle"));
    }
    row("Proof", &escape_text(&proof, MAX_TEXT_BYTES));
    if cycle.proof != Proof::HeldOutside {
        let mut keeps = words::bytes(cycle.leaked);
        if cycle.instances > 1 {
            keeps += " each";
        }
        if cycle.exclusive != cycle.leaked && !cycle.leaked.is_none() {
            let _ = write!(keeps, "; {} if only this cycle is ended", words::bytes(cycle.exclusive));
        }
        row("Keeps", &escape_text(&keeps, MAX_TEXT_BYTES));
    }
    if !cycle.pinned.is_none() && cycle.proof != Proof::HeldOutside {
        row(
            "Will keep",
            &escape_text(&format!("{} that is in use now", words::bytes(cycle.pinned)), MAX_TEXT_BYTES),
        );
    }
    if cycle.nodes.len() > cycle.closed_path.len() {
        row(
            "Values",
            &escape_text(
                &format!("{} lead to each other", human_count(cycle.nodes.len() as u64)),
                MAX_TEXT_BYTES,
            ),
        );
    }
    if !cycle.held_by_cycles.is_empty() {
        let link = |other: &u32| {
            let name = format!("cycle {}", other + 1);
            if (*other as usize) < MAX_CYCLES {
                format!("<a href=\"#c{}\">{name}</a>", other + 1)
            } else {
                name
            }
        };
        row("Also held by", &words::other_cycles(cycle, |other| link(&other)));
    }
    if !cycle.to_memory.is_empty() {
        row("Path to its memory", &format_path(graph, &cycle.to_memory, cycle.to_memory_steps, drawn));
    }
    if let Some(node) = cycle.memory_node {
        let value = &graph.nodes[node as usize];
        for (text, what) in [(value.allocated, "Memory allocated at"), (value.created, "Registered at")] {
            if let Some(text) = text {
                row(what, &format!("<pre>{}</pre>", escape_text(graph.text(text), MAX_STACK_BYTES)));
                break;
            }
        }
        if value.allocated.is_none() {
            row("Memory allocated at", "unknown");
        }
    }
    out.push_str("</tbody></table></li>\n");
}

/// Formats a path whose values link to the picture. The steps in the middle of a long path are only counted.
fn format_path(graph: &Graph, edges: &[u32], steps: usize, drawn: &DrawnValues) -> String {
    const SHOWN: usize = 8;
    let values = words::path_labels(graph, edges);
    let value =
        |node: u32, at: usize| link_value(Some(node), drawn, &escape_line(&values[at], MAX_TEXT_BYTES));
    let Some(&first) = edges.first() else { return String::new() };
    let mut out = value(graph.edges[first as usize].from, 0);
    for (at, &edge) in edges.iter().enumerate() {
        if edges.len() > 2 * SHOWN && (SHOWN..edges.len() - SHOWN).contains(&at) {
            if at == SHOWN {
                let _ = write!(out, " → <i>… {} more …</i>", human_count((steps - 2 * SHOWN) as u64));
            }
            continue;
        }
        let to = value(graph.edges[edge as usize].to, at + 1);
        let _ = write!(
            out,
            " <code>{}</code> → {to}",
            escape_line(&words::edge_label(graph, edge), MAX_TEXT_BYTES)
        );
    }
    out
}

fn write_unexplained(graph: &Graph, findings: &Findings, drawn: &DrawnValues, out: &mut String) {
    out.push_str(
        "<h2>Handles that are unaccounted for</h2>\n<p>Forgotten, or where memtrack cannot see them. These are not cycles.</p>\n\
         <table class=\"handles\"><thead><tr><th scope=\"col\">Value</th><th scope=\"col\">Handles</th><th scope=\"col\">Made at</th>\
         <th scope=\"col\">Leads to</th></tr></thead><tbody>\n",
    );
    for handles in findings.unexplained.iter().take(MAX_CYCLES) {
        let mut made = escape_text(&handles.site, MAX_TEXT_BYTES);
        if let Some(scope) = &handles.scope {
            let _ = write!(made, "<br/>in {}", escape_text(scope, MAX_TEXT_BYTES));
        }
        if let Some(since) = words::age(handles) {
            let _ = write!(made, "<br/>{since}");
        }
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{made}</td><td>{}</td></tr>",
            link_value(
                Some(handles.node),
                drawn,
                &escape_line(&words::label(graph, handles.node), MAX_TEXT_BYTES)
            ),
            match handles.values {
                1 => human_count(handles.handles),
                values => format!("{} to {}", human_count(handles.handles), counted(values, "value")),
            },
            words::bytes(handles.held),
        );
    }
    out.push_str("</tbody></table>\n");
    if findings.unexplained.len() > MAX_CYCLES {
        let more = human_count((findings.unexplained.len() - MAX_CYCLES) as u64);
        let _ = writeln!(
            out,
            "<p>{more} more are not listed here; <code>memtrack cycles -o graph.json</code> has them.</p>"
        );
    }
}

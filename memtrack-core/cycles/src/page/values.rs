//! Writes the table of drawn values, with the description of each value and all known facts about it. The script shows
//! the table's rows beside the picture.

use crate::findings::Findings;
use crate::graph::{Graph, Origin, Reachability, Referrers};
use crate::picture::{DrawnValues, MAX_CYCLES};
use crate::words;
use foldhash::{HashMap, HashMapExt};
use memtrack_model::escape::{escape_line, escape_text};
use memtrack_model::units::{counted, human_bytes, human_count};
use std::fmt::Write;

/// The maximum length, in bytes, of a label, of a stack, and of a reference's name.
const MAX_LABEL_BYTES: usize = 2000;
const MAX_STACK_BYTES: usize = 6000;
const MAX_NAME_BYTES: usize = 200;
/// The maximum number of references from a value, of references to it, and of storages that are listed.
const MAX_LISTED: usize = 24;

pub(super) fn write(graph: &Graph, findings: &Findings, drawn: &DrawnValues, out: &mut String) {
    let referrers = Referrers::of(graph);
    let mut cycle_of = HashMap::new();
    for (cycle, number) in findings.cycles.iter().take(MAX_CYCLES).zip(1..) {
        for &node in cycle.nodes.iter().filter(|&&node| drawn.has(node)) {
            cycle_of.entry(node).or_insert(number);
        }
    }
    let held = if graph.origin == Origin::Rust { "<th scope=\"col\">Kept alive by</th>" } else { "" };
    let _ = writeln!(
        out,
        "<section class=\"values\" aria-label=\"Values\">\n<h2>Values</h2>\n<table><thead><tr><th scope=\"col\">Value</th>\
         <th scope=\"col\">Device memory</th><th scope=\"col\">Where from</th><th scope=\"col\">Refers to</th>\
         <th scope=\"col\">Referred to by</th>{held}</tr></thead>\n<tbody>"
    );
    for &node in &drawn.nodes {
        let value = &graph.nodes[node as usize];
        let _ = write!(
            out,
            "<tr id=\"v{node}\"><th scope=\"row\"><a href=\"#n{node}\">{}</a>",
            escape_text(graph.label(node), MAX_LABEL_BYTES)
        );
        if let Some(number) = cycle_of.get(&node) {
            let number: &i32 = number;
            let _ = write!(out, " <a class=\"in\" href=\"#c{number}\">cycle {number}</a>");
        }
        if let Some(why) = value.incomplete {
            let _ = write!(
                out,
                "<p class=\"note\">Not all that it refers to is known: {}</p>",
                escape_text(graph.text(why), MAX_LABEL_BYTES)
            );
        }
        out.push_str("</th><td>");
        write_memory(graph, node, out);
        out.push_str("</td><td>");
        let mut from = false;
        for (text, what) in [(value.allocated, "allocated at"), (value.created, "registered at")] {
            if let Some(text) = text {
                from = true;
                let text = graph.text(text);
                let _ = write!(out, "<p>{what}</p><pre>{}</pre>", escape_text(text, MAX_STACK_BYTES));
            }
        }
        if !from {
            out.push_str(if value.root {
                "<p class=\"note\">the place where it was allocated is unknown</p>"
            } else {
                ""
            });
        }
        out.push_str("</td><td>");
        let edges: Vec<u32> = graph.edges_of(node).take(MAX_LISTED).map(|edge| edge as u32).collect();
        references(graph, drawn, &edges, graph.edges_of(node).len(), true, out);
        out.push_str("</td><td>");
        let edges = referrers.of_node(node);
        references(graph, drawn, &edges[..edges.len().min(MAX_LISTED)], edges.len(), false, out);
        out.push_str("</td>");
        if graph.origin == Origin::Rust {
            let mut by = match value.held {
                Reachability::Unreachable => "values that nothing else holds".to_owned(),
                Reachability::Outside(handles) => {
                    format!("{} from outside", counted(handles, "strong pointer"))
                }
                Reachability::Reachable => "a value that is held from outside".to_owned(),
            };
            if value.weak_outside > 0 {
                let _ = write!(by, "; {} outside", counted(value.weak_outside, "weak handle"));
            }
            let _ = write!(out, "<td>{by}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n</section>\n");
}

fn write_memory(graph: &Graph, node: u32, out: &mut String) {
    let memory = graph.memory_of(node);
    if memory.is_empty() && graph.nodes[node as usize].root {
        out.push_str("1 device buffer of unknown size");
    }
    for (at, memory) in memory.iter().enumerate() {
        if at == MAX_LISTED {
            break;
        }
        let size = memory.size_bytes.map_or("size unknown".into(), human_bytes);
        let device = escape_line(graph.text(memory.device), MAX_NAME_BYTES);
        let _ = write!(
            out,
            "{}<b>{size}</b> on {device}<br/><small>{:#x}</small>",
            if at > 0 { "<br/>" } else { "" },
            memory.storage
        );
    }
    if memory.len() > MAX_LISTED {
        let _ = write!(out, "<br/>… {} more", human_count((memory.len() - MAX_LISTED) as u64));
    }
}

fn references(
    graph: &Graph,
    drawn: &DrawnValues,
    edges: &[u32],
    all: usize,
    forward: bool,
    out: &mut String,
) {
    if all == 0 {
        return;
    }
    out.push_str("<ul>");
    for &number in edges {
        let edge = graph.edges[number as usize];
        let other = if forward { edge.to } else { edge.from };
        let label = escape_line(&words::label(graph, other), MAX_NAME_BYTES);
        let label = if drawn.has(other) { format!("<a href=\"#v{other}\">{label}</a>") } else { label };
        let path = escape_line(graph.text(edge.path), MAX_NAME_BYTES);
        let _ = if forward {
            write!(out, "<li><code>{path}</code> → {label}</li>")
        } else {
            write!(out, "<li>{label} <code>{path}</code></li>")
        };
    }
    if all > edges.len() {
        let _ = write!(out, "<li class=\"note\">… {} more</li>", human_count((all - edges.len()) as u64));
    }
    out.push_str("</ul>");
}

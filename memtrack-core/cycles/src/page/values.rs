//! The table of drawn values, with the description of each value and all known facts about it. The script shows
//! the table's rows beside the picture.

use super::{line, text};
use crate::findings::Findings;
use crate::graph::{Graph, Node, Origin, Reachability, Referrers};
use crate::picture::{DrawnValues, cycles_by_value};
use crate::words;
use maud::{Markup, html};
use memtrack_model::units::{counted, human_bytes, human_count};

/// The maximum length, in bytes, of a label, of a stack, and of a reference's name.
const MAX_LABEL_BYTES: usize = 2000;
const MAX_STACK_BYTES: usize = 6000;
const MAX_NAME_BYTES: usize = 200;
/// The maximum number of references from a value, of references to it, and of storages that are listed.
const MAX_LISTED: usize = 24;

pub(super) fn table(graph: &Graph, findings: &Findings, drawn: &DrawnValues) -> Markup {
    let referrers = Referrers::of(graph);
    let cycle_of = cycles_by_value(findings, drawn);
    let heads = ["Value", "Device memory", "Where from", "Refers to", "Referred to by", "Kept alive by"];
    let is_rust = graph.origin == Origin::Rust;
    html! {
        section.values aria-label="Values" {
            h2 { "Values" }
            table {
                thead {
                    tr { @for head in &heads[..if is_rust { 6 } else { 5 }] { th scope="col" { (head) } } }
                }
                tbody {
                    @for &node in &drawn.nodes {
                        @let value = &graph.nodes[node as usize];
                        @let edges: Vec<u32> = graph.edges_of(node).take(MAX_LISTED).map(|edge| edge as u32).collect();
                        tr id=(format!("v{node}")) {
                            th scope="row" {
                                a href=(format!("#n{node}")) { (text(graph.label(node), MAX_LABEL_BYTES)) }
                                @if let Some(number) = cycle_of.get(&node) {
                                    " " a.in href=(format!("#c{}", number + 1)) { "cycle " (number + 1) }
                                }
                                @if let Some(why) = value.incomplete {
                                    p.note {
                                        "Not all that it refers to is known: " (text(graph.text(why), MAX_LABEL_BYTES))
                                    }
                                }
                            }
                            td { (memory(graph, node)) }
                            td {
                                @for (id, what) in [(value.allocated, "allocated at"), (value.created, "registered at")] {
                                    @if let Some(id) = id { p { (what) } pre { (text(graph.text(id), MAX_STACK_BYTES)) } }
                                }
                                @if value.root && value.allocated.or(value.created).is_none() {
                                    p.note { "the place where it was allocated is unknown" }
                                }
                            }
                            td { (references(graph, drawn, &edges, graph.edges_of(node).len(), true)) }
                            td { (references(graph, drawn, referrers.of_node(node), referrers.of_node(node).len(), false)) }
                            @if is_rust { td { (kept_alive_by(value)) } }
                        }
                    }
                }
            }
        }
    }
}

fn kept_alive_by(value: &Node) -> Markup {
    html! {
        @match value.held {
            Reachability::Unreachable => "values that nothing else holds",
            Reachability::Outside(handles) => { (counted(handles, "strong pointer")) " from outside" },
            Reachability::Reachable => "a value that is held from outside",
        }
        @if value.weak_outside > 0 { "; " (counted(value.weak_outside, "weak handle")) " outside" }
    }
}

fn memory(graph: &Graph, node: u32) -> Markup {
    let memory = graph.memory_of(node);
    html! {
        @if memory.is_empty() && graph.nodes[node as usize].root { "1 device buffer of unknown size" }
        @for (at, memory) in memory.iter().take(MAX_LISTED).enumerate() {
            @if at > 0 { br; }
            b { (memory.size_bytes.map_or("size unknown".into(), human_bytes)) }
            " on " (line(graph.text(memory.device), MAX_NAME_BYTES)) br;
            small { (format!("{:#x}", memory.storage)) }
        }
        @if memory.len() > MAX_LISTED { br; "… " (human_count((memory.len() - MAX_LISTED) as u64)) " more" }
    }
}

/// Lists the first of a value's `all` references to others if `forward`, or of the others' references to it.
fn references(graph: &Graph, drawn: &DrawnValues, edges: &[u32], all: usize, forward: bool) -> Markup {
    html! {
        @if all > 0 {
            ul {
                @for &number in edges.iter().take(MAX_LISTED) {
                    @let edge = graph.edges[number as usize];
                    @let other = if forward { edge.to } else { edge.from };
                    @let label = line(&words::label(graph, other), MAX_NAME_BYTES);
                    @let path = line(graph.text(edge.path), MAX_NAME_BYTES);
                    li {
                        @if forward { code { (path) } " → " }
                        @if drawn.has(other) { a href=(format!("#v{other}")) { (label) } } @else { (label) }
                        @if !forward { " " code { (path) } }
                    }
                }
                @if all > MAX_LISTED { li.note { "… " (human_count((all - MAX_LISTED) as u64)) " more" } }
            }
        }
    }
}

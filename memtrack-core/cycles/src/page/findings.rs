//! The text of the findings, with a table of facts for each cycle.

use super::{line, text};
use crate::findings::{Cycle, Findings, Proof};
use crate::graph::Graph;
use crate::picture::{DrawnValues, MAX_CYCLES};
use crate::words;
use maud::{Markup, PreEscaped, html};
use memtrack_model::units::{counted, human_count};

/// The maximum length of a stack, and of any other text, in bytes.
const MAX_STACK_BYTES: usize = 6000;
const MAX_TEXT_BYTES: usize = 4000;
/// The maximum number of references to make weak that are listed if all of them are needed.
const MAX_CUTS: usize = 12;
/// The maximum number of references to make weak that are listed if one of them is enough.
const MAX_ALTERNATIVES: usize = 3;

pub(super) fn list(graph: &Graph, findings: &Findings, drawn: &DrawnValues) -> Markup {
    let more = findings.cycles.len().saturating_sub(MAX_CYCLES);
    html! {
        @if !findings.cycles.is_empty() {
            ol.cycles {
                @for (number, cycle) in findings.cycles.iter().enumerate().take(MAX_CYCLES) {
                    (cycle_item(graph, number, cycle, drawn))
                }
            }
        }
        @if more > 0 {
            p {
                (counted(more as u64, "cycle")) " of other kinds are not listed here; "
                code { "memtrack cycles -o graph.json" } " has them."
            }
        }
        @if !graph.unexplained.is_empty() { (unexplained(graph, findings, drawn)) }
    }
}

/// Returns `text`, linked to the value in the picture if the value is drawn.
fn link_value(node: Option<u32>, drawn: &DrawnValues, text: Markup) -> Markup {
    match node.filter(|&node| drawn.has(node)) {
        Some(node) => html! { a href=(format!("#n{node}")) { (text) } },
        None => text,
    }
}

fn cycle_item(graph: &Graph, number: usize, cycle: &Cycle, drawn: &DrawnValues) -> Markup {
    let is_held = cycle.proof == Proof::HeldOutside;
    let kept = words::bytes(if is_held { cycle.pinned } else { cycle.all_leaked });
    let verb = match (is_held, cycle.instances) {
        (true, _) => "leads to ",
        (_, 1) => "keeps ",
        _ => "",
    };
    let many = format!("{} cycles of this kind keep ", human_count(cycle.instances));
    let heading = format!("{}{verb}{kept}", if cycle.instances > 1 { &many } else { "" });
    let first = cycle.nodes.iter().find(|&&node| drawn.has(node)).copied();
    let name = html! { "Cycle " (number + 1) };
    let mut proof = words::proof(cycle);
    if cycle.weak_outside > 0 {
        proof += &format!(" ({} from outside)", counted(cycle.weak_outside, "weak handle"));
    }
    html! {
        li class={ "cycle tint-" (number % 6) } id=(format!("c{}", number + 1)) data-cycle=(number) {
            h2 { (link_value(first, drawn, name)) " " span { (text(&heading, MAX_TEXT_BYTES)) } }
            p.way { (path(graph, &cycle.closed_path, cycle.closed_path.len(), drawn)) }
            table.facts {
                tbody {
                    @if !cycle.cuts.is_empty() { (fact("What to do", suggestion(graph, cycle))) }
                    (fact("Proof", text(&proof, MAX_TEXT_BYTES)))
                    @if !is_held { (fact("Keeps", html! { (kept_by(cycle)) })) }
                    @if !is_held && !cycle.pinned.is_none() {
                        (fact("Will keep", html! { (words::bytes(cycle.pinned)) " that is in use now" }))
                    }
                    @if cycle.nodes.len() > cycle.closed_path.len() {
                        (fact("Values", html! { (human_count(cycle.nodes.len() as u64)) " lead to each other" }))
                    }
                    @if !cycle.held_by_cycles.is_empty() { (fact("Also held by", other_cycles(cycle))) }
                    @if !cycle.to_memory.is_empty() {
                        (fact("Path to its memory", path(graph, &cycle.to_memory, cycle.to_memory_steps, drawn)))
                    }
                    @if let Some(node) = cycle.memory_node { (origin_facts(graph, node)) }
                }
            }
        }
    }
}

/// Returns a row of the table of facts.
fn fact(what: &str, text: Markup) -> Markup {
    html! { tr { th scope="row" { (what) } td { (text) } } }
}

/// Returns the references to make weak.
fn suggestion(graph: &Graph, cycle: &Cycle) -> Markup {
    let weak = words::make_weak(graph, cycle);
    let is_enough = cycle.cuts.first().is_some_and(|cut| cut.ends_it);
    let most = if is_enough { MAX_ALTERNATIVES } else { MAX_CUTS };
    html! {
        @for (at, cut) in weak.iter().take(most).enumerate() {
            @if at == 0 { b.weak { (text(cut, MAX_TEXT_BYTES)) } } @else { br; (text(cut, MAX_TEXT_BYTES)) }
        }
        @if weak.len() > most { br; "… " (weak.len() - most) " more" }
        @if is_enough {
            br;
            small {
                "Without it, these values form no cycle. A suggestion: only you know which of two values owns the other."
            }
        }
    }
}

/// Describes the memory that a cycle keeps.
fn kept_by(cycle: &Cycle) -> String {
    let mut keeps = words::bytes(cycle.leaked);
    if cycle.instances > 1 {
        keeps += " each";
    }
    if cycle.exclusive != cycle.leaked && !cycle.leaked.is_none() {
        keeps += &format!("; {} if only this cycle is ended", words::bytes(cycle.exclusive));
    }
    keeps
}

/// Lists the other cycles that lead to a cycle, as links.
fn other_cycles(cycle: &Cycle) -> Markup {
    let link = |other: u32| {
        let name = format!("cycle {}", other + 1);
        if (other as usize) < MAX_CYCLES {
            html! { a href=(format!("#c{}", other + 1)) { (name) } }.into_string()
        } else {
            name
        }
    };
    PreEscaped(words::other_cycles(cycle, link))
}

/// Returns where the memory at the end of a cycle's path was allocated, or else where its value was registered.
fn origin_facts(graph: &Graph, node: u32) -> Markup {
    let value = &graph.nodes[node as usize];
    let stack = |id| html! { pre { (text(graph.text(id), MAX_STACK_BYTES)) } };
    html! {
        @if let Some(allocated) = value.allocated {
            (fact("Memory allocated at", stack(allocated)))
        } @else {
            @if let Some(created) = value.created { (fact("Registered at", stack(created))) }
            (fact("Memory allocated at", html! { "unknown" }))
        }
    }
}

/// Returns a path whose values link to the picture. The steps in the middle of a long path are only counted.
fn path(graph: &Graph, edges: &[u32], steps: usize, drawn: &DrawnValues) -> Markup {
    const SHOWN: usize = 8;
    let values = words::path_labels(graph, edges);
    let value = |node: u32, at: usize| link_value(Some(node), drawn, line(&values[at], MAX_TEXT_BYTES));
    let skipped = if edges.len() > 2 * SHOWN { SHOWN..edges.len() - SHOWN } else { 0..0 };
    html! {
        @if let Some(&first) = edges.first() { (value(graph.edges[first as usize].from, 0)) }
        @for (at, &edge) in edges.iter().enumerate() {
            @if !skipped.contains(&at) {
                " " code { (line(&words::edge_label(graph, edge), MAX_TEXT_BYTES)) } " → "
                (value(graph.edges[edge as usize].to, at + 1))
            } @else if at == SHOWN {
                " → " i { "… " (human_count((steps - 2 * SHOWN) as u64)) " more …" }
            }
        }
    }
}

fn unexplained(graph: &Graph, findings: &Findings, drawn: &DrawnValues) -> Markup {
    let more = findings.unexplained.len().saturating_sub(MAX_CYCLES);
    html! {
        h2 { "Handles that are unaccounted for" }
        p { "Forgotten, or where memtrack cannot see them. These are not cycles." }
        table.handles {
            thead {
                tr { @for head in ["Value", "Handles", "Made at", "Leads to"] { th scope="col" { (head) } } }
            }
            tbody {
                @for handles in findings.unexplained.iter().take(MAX_CYCLES) {
                    @let label = line(&words::label(graph, handles.node), MAX_TEXT_BYTES);
                    tr {
                        td { (link_value(Some(handles.node), drawn, label)) }
                        td {
                            (human_count(handles.handles))
                            @if handles.values != 1 { " to " (counted(handles.values, "value")) }
                        }
                        td {
                            (text(&handles.site, MAX_TEXT_BYTES))
                            @if let Some(scope) = &handles.scope { br; "in " (text(scope, MAX_TEXT_BYTES)) }
                            @if let Some(since) = words::age(handles) { br; (since) }
                        }
                        td { (words::bytes(handles.held)) }
                    }
                }
            }
        }
        @if more > 0 {
            p { (human_count(more as u64)) " more are not listed here; " code { "memtrack cycles -o graph.json" } " has them." }
        }
    }
}

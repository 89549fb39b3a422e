//! Sentences about the findings, shared by the text, the page and the log.

use crate::findings::{Bytes, Cut, Cycle, HandleGroup, Proof};
use crate::graph::{Graph, Origin};
use foldhash::{HashSet, HashSetExt};
use memtrack_model::text::cut;
use memtrack_model::units::{counted, human_bytes, human_count, printable, shorten_middle};

/// The maximum number of characters of a value's label that are shown on one line.
const MAX_LABEL_CHARACTERS: usize = 60;
/// The maximum number of bytes of a text that are inspected.
const MAX_INSPECTED_BYTES: usize = 4096;
/// The maximum number of steps shown at each end of a path.
const MAX_STEPS_SHOWN: usize = 8;

/// Returns a value's label on one line, with its type and its contents.
pub fn label(graph: &Graph, node: u32) -> String {
    let label = cut(graph.label(node), MAX_INSPECTED_BYTES);
    let line = match graph.origin {
        // The base class that all objects share carries no information.
        Origin::Python => label.strip_prefix("object\n").unwrap_or(label).replace('\n', " "),
        Origin::Rust => match label.split_once('\n') {
            Some((kind, contents)) => format!("{kind} {{ {} }}", contents.replace('\n', " ")),
            None => label.to_owned(),
        },
    };
    shorten_middle(&printable(&line), MAX_LABEL_CHARACTERS)
}

/// Returns a short label for a value in a list. For a Rust value, this is its type.
pub fn short_label(graph: &Graph, node: u32) -> String {
    match graph.origin {
        Origin::Python => label(graph, node),
        Origin::Rust => {
            let kind = cut(graph.label(node), MAX_INSPECTED_BYTES).lines().next().unwrap_or_default();
            shorten_middle(&printable(kind), MAX_LABEL_CHARACTERS)
        }
    }
}

/// Returns the label of a reference on one line.
pub fn edge_label(graph: &Graph, edge: u32) -> String {
    shorten_middle(
        &printable(cut(graph.text(graph.edges[edge as usize].path), MAX_INSPECTED_BYTES)),
        MAX_LABEL_CHARACTERS,
    )
}

/// Formats a path along references: `Trainer { name: "gpt" } .hooks[0] → Hook { layer: 0 } .owner → Trainer`. Each
/// value shows its contents only once. The steps in the middle of a long path are only counted.
pub fn path_text(graph: &Graph, edges: &[u32]) -> String {
    long_path_text(graph, edges, edges.len())
}

/// Formats a path of `steps` steps. `edges` may leave out steps in the middle of the path.
pub fn long_path_text(graph: &Graph, edges: &[u32], steps: usize) -> String {
    let values = path_labels(graph, edges);
    let mut out = values.first().cloned().unwrap_or_default();
    for (at, &edge) in edges.iter().enumerate() {
        if at == MAX_STEPS_SHOWN && edges.len() > 2 * MAX_STEPS_SHOWN {
            out += &format!(" → … {} more …", human_count((steps - 2 * MAX_STEPS_SHOWN) as u64));
        }
        if at >= MAX_STEPS_SHOWN && at + MAX_STEPS_SHOWN < edges.len() {
            continue;
        }
        out += &format!(" {} → {}", edge_label(graph, edge), values[at + 1]);
    }
    out
}

/// Returns the labels of the values along a path, from first to last. The contents of a value are included only where
/// it first occurs. Labels in the middle of a long path are empty.
pub(crate) fn path_labels(graph: &Graph, edges: &[u32]) -> Vec<String> {
    let nodes = edges.iter().take(1).map(|&first| graph.edges[first as usize].from);
    let nodes = nodes.chain(edges.iter().map(|&edge| graph.edges[edge as usize].to));
    let mut shown = HashSet::new();
    nodes
        .enumerate()
        .map(|(at, node)| {
            if at > MAX_STEPS_SHOWN && at + MAX_STEPS_SHOWN < edges.len() {
                return String::new();
            }
            if shown.insert(node) { label(graph, node) } else { short_label(graph, node) }
        })
        .collect()
}

/// Describes how certain it is that the values in a cycle can no longer be used.
pub fn proof(cycle: &Cycle) -> String {
    match cycle.proof {
        Proof::Proved => "held only by itself".into(),
        Proof::WeakHandles => "held only by itself, but weak handles exist".into(),
        Proof::HeldOutside => {
            format!(
                "still held from outside ({}): no leak yet",
                counted(cycle.outside_pointers.max(1), "strong pointer")
            )
        }
    }
}

/// Formats an amount of device memory, counting the buffers whose sizes are unknown.
pub fn bytes(bytes: Bytes) -> String {
    let buffers = |count: u64| counted(count, "device buffer");
    match (bytes.storages, bytes.unknown) {
        (0, _) => "no device memory".into(),
        (storages, unknown) if unknown == storages => format!("{} of unknown size", buffers(storages)),
        (storages, 0) => format!("{} ({})", human_bytes(bytes.known_bytes), buffers(storages)),
        (_, unknown) => {
            format!("{} and {} of unknown size", human_bytes(bytes.known_bytes), buffers(unknown))
        }
    }
}

/// Formats a reference as the field that contains it and its target: `Hook .owner → Trainer`.
pub fn field(graph: &Graph, cut: &Cut) -> String {
    let edge = graph.edges[cut.edge as usize];
    format!(
        "{} {} → {}",
        short_label(graph, edge.from),
        edge_label(graph, cut.edge),
        short_label(graph, edge.to)
    )
}

/// Returns one line for each reference to make weak, starting with the suggested one.
pub fn make_weak(graph: &Graph, cycle: &Cycle) -> Vec<String> {
    // In Python, a reference is cut with a `weakref`, or with a `del` when the work is done.
    let what = match graph.origin {
        Origin::Rust => "make weak",
        Origin::Python => "cut",
    };
    let back = |cut: &Cut| if cut.leads_back { " (leads back, as to an owner)" } else { "" };
    let is_enough = cycle.cuts.first().is_some_and(|cut| cut.ends_it);
    let mut lines: Vec<String> = Vec::new();
    for (at, cut) in cycle.cuts.iter().enumerate() {
        let begin = match (at, is_enough) {
            (0, false) if cycle.cuts.len() > 1 => format!("{what} all of"),
            (0, _) => what.into(),
            (_, true) => "or".into(),
            (_, false) => "and".into(),
        };
        lines.push(format!("{begin}: {}{}", field(graph, cut), back(cut)));
    }
    if !cycle.cuts.is_empty() && !cycle.cuts_are_enough {
        lines.push("and more: other cycles remain even without these".into());
    }
    lines
}

/// Describes unexplained handles without the place where they were created: `12 handles to 12 values like Buffer`.
pub fn handles(graph: &Graph, handles: &HandleGroup) -> String {
    let value = label(graph, handles.node);
    match handles.values {
        1 => format!("{} to {value}", counted(handles.handles, "handle")),
        values => {
            format!("{} to {} like {value}", counted(handles.handles, "handle"), counted(values, "value"))
        }
    }
}

/// Describes the age of handles: `the oldest made 12 root scopes ago`.
pub fn age(handles: &HandleGroup) -> Option<String> {
    let ended = handles.ended_roots;
    let since = match (ended, handles.handles) {
        (0, _) => return None,
        (1, _) => "made in a root scope that has ended since".to_owned(),
        (_, 1) => format!("made {} ago", counted(ended, "root scope")),
        (_, _) => format!("the oldest made {} ago", counted(ended, "root scope")),
    };
    Some(since)
}

/// Lists the other cycles that lead to a cycle, numbered from 1: `cycles 2 and 3: end those first`.
pub fn other_cycles(cycle: &Cycle, number: impl Fn(u32) -> String) -> String {
    let mut others: Vec<String> = cycle.held_by_cycles.iter().map(|&other| number(other)).collect();
    let last = others.pop().unwrap_or_default();
    match &others[..] {
        [] => format!("cycle {last}: end that first"),
        others => format!("cycles {} and {last}: end those first", others.join(", ")),
    }
}

/// Formats a cycle as a warning that gives the memory it keeps and a path around it.
pub fn warning(graph: &Graph, cycle: &Cycle) -> String {
    let one = cycle.instances == 1;
    let sure = if cycle.proof == Proof::WeakHandles { " (weak handles exist)" } else { "" };
    let keeps = match (cycle.all_leaked.is_none(), one) {
        (true, true) => format!("will keep {} that is in use now", bytes(cycle.pinned)),
        (true, false) => format!("will keep {} each that is in use now", bytes(cycle.pinned)),
        (false, true) => format!("keeps {} until the program ends", bytes(cycle.leaked)),
        (false, false) => format!("keep {} until the program ends", bytes(cycle.all_leaked)),
    };
    let weak: Vec<String> = cycle.suggested_cuts().iter().map(|cut| field(graph, cut)).collect();
    let weak = match &weak[..] {
        [] => String::new(),
        [_] if cycle.closed_path.len() == 1 => "; make that reference weak".to_owned(),
        _ => format!("; make weak: {}", weak.join(" and ")),
    };
    format!(
        "{} that nothing else holds{sure} {keeps}: {}{weak}",
        counted(cycle.instances, "cycle"),
        path_text(graph, &cycle.closed_path)
    )
}

/// Returns a one-line summary of the findings.
pub fn summary(graph: &Graph, findings: &crate::Findings) -> String {
    let leaks = findings.leaks();
    let held = findings
        .cycles
        .iter()
        .filter(|cycle| cycle.proof == Proof::HeldOutside)
        .map(|cycle| cycle.instances)
        .sum::<u64>();
    let more = |count: u64| {
        if count == 0 { String::new() } else { format!(" {} more were not inspected.", human_count(count)) }
    };
    let keeps = |count: u64| if count == 1 { "keeps" } else { "keep" };
    let rest = more(findings.not_measured);
    let answer = match (leaks, held, graph.origin) {
        (0, 0, _) if findings.without_memory == 0 => format!("No cycle.{rest}"),
        (0, 0, _) => format!(
            "No cycle keeps device memory alive; {} without.{rest}",
            counted(findings.without_memory, "cycle")
        ),
        (0, held, _) => format!(
            "No cycle has leaked. {} of values in use {} to device memory: it will leak when the last outside pointer goes.{rest}",
            counted(held, "cycle"),
            if held == 1 { "leads" } else { "lead" }
        ),
        (leaks, _, Origin::Rust) => format!(
            "{} that nothing else holds {} {} until the program ends.{rest}",
            counted(leaks, "cycle"),
            keeps(leaks),
            bytes(findings.leaked)
        ),
        (leaks, _, Origin::Python) => format!(
            "{} of garbage {} {} until the collector runs.{rest}",
            counted(leaks, "cycle"),
            keeps(leaks),
            bytes(findings.leaked)
        ),
    };
    if findings.unreachable_beside_cycles.is_none() {
        answer
    } else {
        format!("{answer} Garbage that no cycle holds has {}.", bytes(findings.unreachable_beside_cycles))
    }
}

//! Formats the findings as text: first the summary, and then each cycle with the memory that it keeps and the
//! references to make weak.

use crate::findings::{Cycle, Findings, Proof};
use crate::graph::Graph;
use crate::words;
use memtrack_model::units::{counted, human_count, printable};
use std::fmt::Write;

/// The maximum number of stack frames printed for an allocation.
const MAX_FRAMES: usize = 8;

/// Formats the findings, listing at most `rows` cycles.
pub fn text(graph: &Graph, findings: &Findings, rows: usize) -> String {
    let mut out = format!("{}\n", words::summary(graph, findings));
    for remark in &graph.remarks {
        let _ = writeln!(out, "{}", printable(remark));
    }
    for (number, cycle) in findings.cycles.iter().enumerate().take(rows) {
        write_cycle(graph, number + 1, cycle, &mut out);
    }
    if findings.cycles.len() > rows {
        let more = (findings.cycles.len() - rows) as u64;
        let _ = writeln!(out, "\n… and {} of other kinds", counted(more, "cycle"));
    }
    if !graph.unexplained.is_empty() {
        out.push_str(
            "\nHandles that are unaccounted for: forgotten, or held where memtrack cannot see \
                      them. These are not cycles.\n",
        );
        for handles in findings.unexplained.iter().take(rows) {
            let scope = handles.scope.as_deref().map(|scope| format!(" in {}", printable(scope)));
            let scope = scope.unwrap_or_default();
            let since = words::age(handles).map(|since| format!(" ({since})")).unwrap_or_default();
            let what = words::handles(graph, handles);
            let held = words::bytes(handles.held);
            let _ = writeln!(
                out,
                "  {what}, made at {}{scope}{since}; leading to {held}",
                printable(&handles.site)
            );
        }
        if findings.unexplained.len() > rows {
            let more = (findings.unexplained.len() - rows) as u64;
            let _ = writeln!(out, "  … and those of {}", counted(more, "other place"));
        }
    }
    out
}

fn write_cycle(graph: &Graph, number: usize, cycle: &Cycle, out: &mut String) {
    let _ = writeln!(out, "\n{number}. {}", words::path_text(graph, &cycle.closed_path));
    let mut facts = vec![words::proof(cycle)];
    if cycle.instances > 1 {
        facts.push(format!(
            "{} of the kind, which keep {} together",
            human_count(cycle.instances),
            words::bytes(cycle.all_leaked)
        ));
    }
    if cycle.nodes.len() > cycle.closed_path.len() {
        facts.push(format!("{} lead to each other", counted(cycle.nodes.len() as u64, "value")));
    }
    if cycle.nodes.iter().any(|&node| graph.nodes[node as usize].incomplete.is_some()) {
        facts.push("not all of it could be inspected, so it may keep more".into());
    }
    let _ = writeln!(out, "   {}", facts.join("; "));
    let mut keeps = Vec::new();
    if cycle.proof != Proof::HeldOutside {
        keeps.push(format!("keeps {}", words::bytes(cycle.leaked)));
        if cycle.exclusive != cycle.leaked && !cycle.leaked.is_none() {
            keeps.push(format!("{} if only this cycle is ended", words::bytes(cycle.exclusive)));
        }
        if !cycle.pinned.is_none() {
            keeps.push(format!("will keep {} that is in use now", words::bytes(cycle.pinned)));
        }
    } else {
        keeps.push(format!("leads to {}", words::bytes(cycle.pinned)));
    }
    let _ = writeln!(out, "   {}", keeps.join("; "));
    if !cycle.held_by_cycles.is_empty() {
        let _ =
            writeln!(out, "   also held by {}", words::other_cycles(cycle, |other| (other + 1).to_string()));
    }
    for line in words::make_weak(graph, cycle) {
        let _ = writeln!(out, "   {line}");
    }
    if !cycle.to_memory.is_empty() {
        let _ = writeln!(
            out,
            "   to its memory: {}",
            words::long_path_text(graph, &cycle.to_memory, cycle.to_memory_steps)
        );
    }
    let node = cycle.memory_node.map(|node| &graph.nodes[node as usize]);
    let known = node.and_then(|node| {
        let created = node.created.map(|text| (text, "registered at"));
        node.allocated.map(|text| (text, "allocated at")).or(created)
    });
    if let Some((text, what)) = known {
        let _ = writeln!(out, "   {what}");
        let text = graph.text(text);
        for line in text.lines().take(MAX_FRAMES) {
            let _ = writeln!(out, "     {}", printable(line));
        }
        let more = text.lines().count().saturating_sub(MAX_FRAMES);
        if more > 0 {
            let _ = writeln!(out, "     … {}", counted(more as u64, "more frame"));
        }
    }
}

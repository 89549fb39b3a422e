//! Writes the graph for Graphviz. For a Python program's graph, the output matches that of
//! `torch.utils.viz._cycles.to_dot` byte for byte. For a Rust program's graph, it shows the cycles as clusters and the
//! suggested weak references as dashed lines.

use crate::Findings;
use crate::findings::Proof;
use crate::graph::{Graph, Origin, Reachability};
use memtrack_model::units::human_bytes;
use std::io::{self, Write};

/// Writes the graph.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn write(graph: &Graph, findings: &Findings, out: &mut dyn Write) -> io::Result<()> {
    match graph.origin {
        Origin::Python => write_pytorch(graph, out),
        Origin::Rust => write_graphviz(graph, findings, out),
    }
}

fn write_pytorch(graph: &Graph, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"digraph GraphName {\nnode [shape=rect];\nrankdir=LR;\n")?;
    let mut line = String::new();
    for (number, node) in graph.nodes.iter().enumerate() {
        line.clear();
        push_python_json(graph.text(node.label), &mut line);
        let color = if node.root { "red" } else { "black" };
        writeln!(out, "{number} [label={line}, color={color}];")?;
    }
    for edge in &graph.edges {
        line.clear();
        push_python_json(graph.text(edge.path), &mut line);
        writeln!(out, "{} -> {} [label = {line}]", edge.from, edge.to)?;
    }
    out.write_all(b"}\n")
}

/// Appends a string as Python's `json.dumps` writes it, with non-ASCII characters as UTF-16 `\u` escapes.
fn push_python_json(text: &str, out: &mut String) {
    use std::fmt::Write as _;
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='\u{7f}' => out.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

fn write_graphviz(graph: &Graph, findings: &Findings, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"digraph references {\n  rankdir=LR;\n  node [shape=box];\n")?;
    let mut in_cluster = vec![false; graph.nodes.len()];
    for (number, cycle) in findings.cycles.iter().enumerate() {
        let style = match cycle.proof {
            Proof::Proved | Proof::WeakHandles => "filled",
            Proof::HeldOutside => "dotted",
        };
        writeln!(out, "  subgraph cluster_{number} {{")?;
        writeln!(out, "    label=\"cycle {}\"; style={style}; fillcolor=\"#f4f4f4\";", number + 1)?;
        for &node in &cycle.nodes {
            in_cluster[node as usize] = true;
            write_node(graph, node, "    ", out)?;
        }
        out.write_all(b"  }\n")?;
    }
    for node in (0..graph.nodes.len() as u32).filter(|&node| !in_cluster[node as usize]) {
        write_node(graph, node, "  ", out)?;
    }
    let mut weak = vec![false; graph.edges.len()];
    for edge in findings.cycles.iter().flat_map(|cycle| cycle.edges_to_make_weak(graph)) {
        weak[edge as usize] = true;
    }
    for (edge, weak) in graph.edges.iter().zip(weak) {
        let path = escape(graph.text(edge.path));
        let style = if weak { ", style=dashed, tooltip=\"make this weak\"" } else { "" };
        writeln!(out, "  {} -> {} [label=\"{path}\"{style}];", edge.from, edge.to)?;
    }
    out.write_all(b"}\n")
}

fn write_node(graph: &Graph, number: u32, indent: &str, out: &mut dyn Write) -> io::Result<()> {
    let node = &graph.nodes[number as usize];
    let mut label = escape(graph.text(node.label));
    for memory in graph.memory_of(number) {
        let size = memory.size_bytes.map_or_else(|| "unknown size".into(), human_bytes);
        label += &format!("\\n{size} on {}", escape(graph.text(memory.device)));
    }
    let color = if node.root { ", color=red" } else { "" };
    let style = if node.held == Reachability::Unreachable { "" } else { ", style=dotted" };
    let tooltip = node.allocated.or(node.created).map(|text| escape(graph.text(text)));
    let tooltip = tooltip.map(|text| format!(", tooltip=\"{text}\"")).unwrap_or_default();
    writeln!(out, "{indent}{number} [label=\"{label}\"{color}{style}{tooltip}];")
}

/// Escapes a text for a quoted string, in which Graphviz interprets `\n`, `\"` and `\\`. Other control characters are
/// replaced.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            character if character.is_control() => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}

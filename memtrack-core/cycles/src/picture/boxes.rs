//! The text in the boxes of a picture and beside its lines, and the size of that text.

use super::select::DrawnEdge;
use crate::graph::{Graph, Origin};
use memtrack_model::text::cut;
use memtrack_model::units::{counted, human_bytes, printable, shorten_middle};

/// The maximum number of lines in a label, and of characters in a line.
const MAX_LABEL_LINES: usize = 3;
const MAX_LABEL_CHARACTERS: usize = 34;
/// The maximum number of references that are named beside a line, and of characters in a name.
const MAX_NAMES: usize = 3;
const MAX_NAME_CHARACTERS: usize = 24;
/// The maximum number of bytes of a text that are inspected.
const MAX_INSPECTED_BYTES: usize = 2048;

/// The width of a character in pixels. Characters are at most this wide in any font that a browser may choose.
const CHARACTER_WIDTH: f64 = 7.4;
const SMALL_CHARACTER_WIDTH: f64 = 6.7;
/// The distance between lines of text.
pub(super) const LINE_HEIGHT: f64 = 16.0;
pub(super) const SMALL_LINE_HEIGHT: f64 = 14.0;
/// The space around a box's text.
pub(super) const PADDING: f64 = 9.0;

/// The lines of text in a box: the lines of the label, and one line for the value's device memory.
pub(super) struct BoxText {
    pub label: Vec<String>,
    pub memory: Option<String>,
}

pub(super) fn box_text(graph: &Graph, node: u32) -> BoxText {
    let text = cut(graph.label(node), MAX_INSPECTED_BYTES);
    let text = match graph.origin {
        // The base class that all Python objects share carries no information.
        Origin::Python => text.strip_prefix("object\n").unwrap_or(text),
        Origin::Rust => text,
    };
    let lines: Vec<&str> = text.split('\n').collect();
    let mut label: Vec<String> = lines
        .iter()
        .take(MAX_LABEL_LINES)
        .map(|line| shorten_middle(&printable(line), MAX_LABEL_CHARACTERS))
        .collect();
    if lines.len() > MAX_LABEL_LINES {
        label[MAX_LABEL_LINES - 1] =
            format!("… {}", counted((lines.len() - MAX_LABEL_LINES + 1) as u64, "more line"));
    }
    BoxText { label, memory: graph.nodes[node as usize].root.then(|| format_memory(graph, node)) }
}

/// Returns the verb for the change suggested for a reference. In Python, there are other ways to remove a reference than
/// to make it weak.
pub(crate) fn weak_verb(graph: &Graph) -> &'static str {
    match graph.origin {
        Origin::Rust => "make weak",
        Origin::Python => "cut",
    }
}

/// Formats a value's device memory, such as `1.50 GiB on cuda:0`.
pub(crate) fn format_memory(graph: &Graph, node: u32) -> String {
    let memory = graph.memory_of(node);
    let known: Vec<u64> = memory.iter().filter_map(|memory| memory.size_bytes).collect();
    let unknown = (memory.len() - known.len()) as u64;
    let size = match (known.is_empty(), unknown) {
        (true, 0 | 1) => "size unknown".into(),
        (true, _) => format!("{}, sizes unknown", counted(unknown, "buffer")),
        (false, 0) => human_bytes(known.iter().fold(0, |sum: u64, &size| sum.saturating_add(size))),
        (false, _) => {
            format!("{} and {} of unknown size", human_bytes(known.iter().sum()), counted(unknown, "buffer"))
        }
    };
    let mut devices: Vec<&str> = memory.iter().map(|memory| graph.text(memory.device)).collect();
    devices.sort_unstable();
    devices.dedup();
    match devices[..] {
        [] => format!("device memory, {size}"),
        [device] => format!("{size} on {}", shorten_middle(&printable(cut(device, MAX_INSPECTED_BYTES)), 16)),
        _ => format!("{size} on {}", counted(devices.len() as u64, "device")),
    }
}

/// Returns the names of a line's references, one per line of text, followed by the number of further references.
pub(super) fn line_names(
    graph: &Graph,
    line: &DrawnEdge,
    suggested: impl Fn(u32) -> bool,
) -> Vec<(String, bool)> {
    let mut edges = line.edges.clone();
    // References that should become weak come first.
    edges.sort_by_key(|&edge| !suggested(edge));
    let name = |edge: u32| {
        let text = printable(cut(graph.text(graph.edges[edge as usize].path), MAX_INSPECTED_BYTES));
        let name = shorten_middle(&text, MAX_NAME_CHARACTERS);
        if suggested(edge) { (format!("{}: {name}", weak_verb(graph)), true) } else { (name, false) }
    };
    let mut names: Vec<_> = edges.iter().take(MAX_NAMES).map(|&edge| name(edge)).collect();
    if edges.len() > MAX_NAMES {
        names.push((format!("… {} more", edges.len() - MAX_NAMES), false));
    }
    names
}

pub(super) fn box_size(text: &BoxText) -> (f64, f64) {
    let lines = text.label.iter().chain(&text.memory);
    let widest = lines.clone().map(|line| text_columns(line)).max().unwrap_or(0);
    let width = (widest as f64 * CHARACTER_WIDTH + 2.0 * PADDING).max(56.0);
    (width.ceil(), lines.count() as f64 * LINE_HEIGHT + 2.0 * PADDING - 4.0)
}

/// Returns the size of the text beside a line.
pub(super) fn names_size(names: &[(String, bool)]) -> (f64, f64) {
    let widest = names.iter().map(|(name, _)| text_columns(name)).max().unwrap_or(0);
    ((widest as f64 * SMALL_CHARACTER_WIDTH + 8.0).ceil(), names.len() as f64 * SMALL_LINE_HEIGHT + 2.0)
}

/// Returns the width of a text, measured in Latin letters. Letters of other scripts may be twice as wide.
fn text_columns(text: &str) -> usize {
    text.chars().map(|c| if c < '\u{1100}' || ('\u{2000}'..'\u{2e80}').contains(&c) { 1 } else { 2 }).sum()
}

//! What is written in and beside the boxes of a picture, and how much room it takes.

use crate::graph::{Graph, Origin};
use memtrack_model::text::cut;
use memtrack_model::units::{counted, human_bytes, printable, shorten_middle};

/// Most lines of a label, and most characters of each.
const LABEL_LINES: usize = 3;
const LABEL_CHARACTERS: usize = 34;
/// Most references that a line names, and most characters of each.
const NAMED: usize = 3;
const NAME_CHARACTERS: usize = 24;
/// No more of a text is looked at, however long it is.
const LOOKED_AT_BYTES: usize = 2048;

/// The room that a character takes: the fonts that a browser may choose are at most so wide.
const CHARACTER: f64 = 7.4;
const SMALL_CHARACTER: f64 = 6.7;
/// From line to line.
pub(super) const LINE: f64 = 16.0;
pub(super) const SMALL_LINE: f64 = 14.0;
/// Around a box's text.
pub(super) const PADDING: f64 = 9.0;

/// The lines in a box: the label's, and one for its device memory.
pub(super) struct Words {
    pub label: Vec<String>,
    pub memory: Option<String>,
}

pub(super) fn words(graph: &Graph, node: u32) -> Words {
    let text = cut(graph.label(node), LOOKED_AT_BYTES);
    let text = match graph.origin {
        // What all Python objects begin with says nothing.
        Origin::Python => text.strip_prefix("object\n").unwrap_or(text),
        Origin::Rust => text,
    };
    let lines: Vec<&str> = text.split('\n').collect();
    let mut label: Vec<String> = lines
        .iter()
        .take(LABEL_LINES)
        .map(|line| shorten_middle(&printable(line), LABEL_CHARACTERS))
        .collect();
    if lines.len() > LABEL_LINES {
        label[LABEL_LINES - 1] =
            format!("… {}", counted((lines.len() - LABEL_LINES + 1) as u64, "more line"));
    }
    Words { label, memory: graph.nodes[node as usize].root.then(|| memory(graph, node)) }
}

/// What is suggested of a reference: in Python there is more than one way.
pub(crate) fn weak_verb(graph: &Graph) -> &'static str {
    match graph.origin {
        Origin::Rust => "make weak",
        Origin::Python => "cut",
    }
}

/// A value's device memory: `1.50 GiB on cuda:0`.
pub(crate) fn memory(graph: &Graph, node: u32) -> String {
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
        [device] => format!("{size} on {}", shorten_middle(&printable(cut(device, LOOKED_AT_BYTES)), 16)),
        _ => format!("{size} on {}", counted(devices.len() as u64, "device")),
    }
}

/// The names of a line's references, one to a line; how many more there are comes last.
pub(super) fn names(
    graph: &Graph,
    line: &super::Line,
    suggested: impl Fn(u32) -> bool,
) -> Vec<(String, bool)> {
    let mut edges = line.edges.clone();
    // What should become weak is named, however many there are.
    edges.sort_by_key(|&edge| !suggested(edge));
    let name = |edge: u32| {
        let text = printable(cut(graph.text(graph.edges[edge as usize].path), LOOKED_AT_BYTES));
        let name = shorten_middle(&text, NAME_CHARACTERS);
        if suggested(edge) { (format!("{}: {name}", weak_verb(graph)), true) } else { (name, false) }
    };
    let mut names: Vec<_> = edges.iter().take(NAMED).map(|&edge| name(edge)).collect();
    if edges.len() > NAMED {
        names.push((format!("… {} more", edges.len() - NAMED), false));
    }
    names
}

/// The size of a box.
pub(super) fn size(words: &Words) -> (f64, f64) {
    let lines = words.label.iter().chain(&words.memory);
    let widest = lines.clone().map(|line| columns(line)).max().unwrap_or(0);
    let width = (widest as f64 * CHARACTER + 2.0 * PADDING).max(56.0);
    (width.ceil(), lines.count() as f64 * LINE + 2.0 * PADDING - 4.0)
}

/// The size of what is written at a line.
pub(super) fn names_size(names: &[(String, bool)]) -> (f64, f64) {
    let widest = names.iter().map(|(name, _)| columns(name)).max().unwrap_or(0);
    ((widest as f64 * SMALL_CHARACTER + 8.0).ceil(), names.len() as f64 * SMALL_LINE + 2.0)
}

/// The width of a text in letters of the Latin alphabet: others may be twice as wide.
fn columns(text: &str) -> usize {
    text.chars().map(|c| if c < '\u{1100}' || ('\u{2000}'..'\u{2e80}').contains(&c) { 1 } else { 2 }).sum()
}

//! Builds the graph of the reported values. The values are visited once more, this time with paths and labels.

use super::super::registry;
use super::table::{HELD, Table};
use crate::graph::{Edge, Graph, Memory, Node, Origin, Reachability, TextId, Texts};
use foldhash::HashMap;
use memtrack_model::event::DeviceId;
use memtrack_model::references::{Counted, DeviceMemory, Path, Sink};
use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The maximum number of characters shown for a field, and the maximum number of fields shown.
const MAX_FIELD_CHARACTERS: usize = 40;
const MAX_FIELDS: usize = 4;

/// Builds the graph. Also returns the index of each of its values in the table.
pub(super) fn describe(
    table: &Table,
    keep: &[bool],
    outside: &[i64],
    weak_outside: &HashMap<u32, u64>,
) -> (Graph, Vec<u32>) {
    let kept: Vec<u32> = (0..table.len() as u32).filter(|&place| keep[place as usize]).collect();
    let mut numbers = vec![u32::MAX; table.len()];
    kept.iter().enumerate().for_each(|(number, &place)| numbers[place as usize] = number as u32);
    let mut graph = Graph::new(Origin::Rust);
    let mut types: HashMap<&'static str, String> = HashMap::default();
    for &place in &kept {
        let node = graph.nodes.len() as u32;
        let mut builder = NodeBuilder {
            table,
            numbers: &numbers,
            node,
            texts: &mut graph.texts,
            edges: &mut graph.edges,
            memory: &mut graph.memory,
            shown: String::new(),
            fields: 0,
            why: None,
        };
        let visited = table.visit(place, &mut builder);
        let NodeBuilder { shown, why, .. } = builder;
        let why = match (why, visited) {
            (Some(why), _) => Some(why),
            (None, false) => Some("its `References` panicked".to_owned()),
            (None, true) => None,
        };
        let name = table.value_name(place);
        let mut label = match table.is_root(place) {
            true => format!("root {name}"),
            false => types.entry(name).or_insert_with(|| shorten_type(name)).clone(),
        };
        if !shown.is_empty() {
            label.push('\n');
            label.push_str(&shown);
        }
        let registered = table.registered.get(&place).map(|registered| registered.registration);
        let texts = &mut graph.texts;
        let node = Node {
            label: texts.intern(&label),
            allocated: None,
            created: registered.map(|registration| texts.intern(&format_created(&registration))),
            root: graph.memory.last().is_some_and(|memory| memory.node == node),
            held: match outside[place as usize] {
                _ if !table.has(place, HELD) => Reachability::Unreachable,
                strong @ 1.. => Reachability::Outside(strong as u64),
                _ => Reachability::Reachable,
            },
            weak_outside: weak_outside.get(&place).copied().unwrap_or(0),
            incomplete: why.map(|why| texts.intern(&why)),
            serial: registered.map(|registration| registration.serial),
        };
        graph.nodes.push(node);
    }
    graph.sort();
    (graph, kept)
}

struct NodeBuilder<'a> {
    table: &'a Table,
    numbers: &'a [u32],
    node: u32,
    texts: &'a mut Texts,
    edges: &'a mut Vec<Edge>,
    memory: &'a mut Vec<Memory>,
    shown: String,
    fields: usize,
    why: Option<String>,
}

impl Sink for NodeBuilder<'_> {
    fn wants_paths(&self) -> bool {
        true
    }

    fn strong(&mut self, path: &Path, target: &dyn Counted, _: Option<u64>) {
        let to = self.table.place_of(target.address()).map_or(u32::MAX, |place| self.numbers[place as usize]);
        if to != u32::MAX {
            let path = self.texts.intern(&path.to_string());
            self.edges.push(Edge { from: self.node, to, path });
        }
    }

    fn weak(&mut self, _: &Path, _: usize) {}

    fn memory(&mut self, _: &Path, memory: DeviceMemory) {
        let device = intern_device(self.texts, memory.device);
        let (storage, size_bytes) = (memory.address, Some(memory.size_bytes));
        let memory = Memory { node: self.node, device, storage, size_bytes };
        // A value may have several tensors with the same storage.
        let before = self.memory.iter().rev().take_while(|other| other.node == self.node);
        if !before.into_iter().any(|other| *other == memory) {
            self.memory.push(memory);
        }
    }

    fn opaque(&mut self, path: &Path, why: &str) {
        self.why.get_or_insert_with(|| match path.0.is_empty() {
            true => why.to_owned(),
            false => format!("{path}: {why}"),
        });
    }

    fn show(&mut self, path: &Path, value: &dyn fmt::Debug) {
        self.fields += 1;
        if self.fields > MAX_FIELDS {
            return;
        }
        if self.fields > 1 {
            self.shown.push_str(", ");
        }
        let path = path.to_string();
        let name = path.strip_prefix('.').unwrap_or(&path);
        let _ = write!(self.shown, "{name}: ");
        let mut rest = ShortText { text: &mut self.shown, left: MAX_FIELD_CHARACTERS + 1, ignored: 0 };
        // A panic ends only this field's output.
        let shown = catch_unwind(AssertUnwindSafe(|| write!(rest, "{value:?}")));
        if shown.is_err() {
            self.shown.push('…');
        }
    }
}

/// The maximum number of bytes ignored after a truncation before writing fails.
const MAX_IGNORED_BYTES: usize = 64 << 10;

/// A writer that keeps a limited number of characters and ignores the rest. Writing an endless text eventually fails,
/// so that the output stops.
struct ShortText<'a> {
    text: &'a mut String,
    /// The number of characters that may still be kept, including the truncation mark.
    left: usize,
    ignored: usize,
}

impl Write for ShortText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match self.left {
                0 => {}
                1 => self.text.push('…'),
                _ => self.text.push(character),
            }
            self.left = self.left.saturating_sub(1);
        }
        // Some `Debug` implementations panic when writing fails, so writing fails only if the output seems endless.
        self.ignored += if self.left == 0 { text.len() } else { 0 };
        if self.ignored > MAX_IGNORED_BYTES { Err(fmt::Error) } else { Ok(()) }
    }
}

fn intern_device(texts: &mut Texts, device: DeviceId) -> TextId {
    match device {
        DeviceId::HOST => texts.intern("host"),
        DeviceId::PINNED => texts.intern("pinned"),
        DeviceId::MAPPED => texts.intern("mapped"),
        DeviceId(ordinal) => texts.intern(&format!("cuda:{ordinal}")),
    }
}

/// Formats the place where a value was registered: the scope, if there was one, and the line.
fn format_created(registration: &registry::Registration) -> String {
    let scope = registration.scope.map(|node| {
        let place = node.place();
        place.full_name()
    });
    match scope {
        Some(scope) if !scope.is_empty() => format!("in {scope}\n{}", registration.site),
        _ => registration.site.to_string(),
    }
}

/// Removes the paths from the name of a type, giving `Mutex<Layer<f32>>` for example.
fn shorten_type(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut segment = 0;
    let mut characters = name.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            ':' if characters.peek() == Some(&':') => {
                characters.next();
                short.truncate(segment);
            }
            _ => {
                short.push(character);
                if !(character.is_alphanumeric() || character == '_') {
                    segment = short.len();
                }
            }
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_without_paths() {
        for (name, short) in [
            ("alloc::vec::Vec<my::net::Layer<f32>>", "Vec<Layer<f32>>"),
            ("(a::B, c::D)", "(B, D)"),
            ("dyn a::Layer + core::marker::Send", "dyn Layer + Send"),
            ("&mut [a::b::C; 3]", "&mut [C; 3]"),
            ("f32", "f32"),
            ("", ""),
        ] {
            assert_eq!(shorten_type(name), short, "{name}");
        }
    }

    #[test]
    fn long_field_is_cut_however_long_it_is() {
        let mut text = String::new();
        let _ = write!(ShortText { text: &mut text, left: 6, ignored: 0 }, "{:?}", vec![1; 1_000_000]);
        assert_eq!(text, "[1, 1…");
    }
}

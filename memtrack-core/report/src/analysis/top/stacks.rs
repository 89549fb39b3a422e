//! Which stacks of a ranking are one row: those that are equal from the first frame that says something outwards.

use super::StackLine;
use crate::analysis::trim::{interesting, is_allocator_entry, is_internal, is_plumbing};
use memtrack_model::Frame;
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;

/// Remembers which addresses say something.
#[derive(Default)]
pub(super) struct Trimmer {
    known: HashMap<u64, Says, foldhash::fast::RandomState>,
}

/// What the functions at an address say of who asked for memory.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    /// Something.
    Something,
    /// Nothing: they pass the allocation on.
    Nothing,
    /// That the program's own allocator begins here, so that everything further in says nothing either.
    AllocatorEntry,
}

impl Says {
    fn of(frames: &[Frame]) -> Self {
        // Functions inlined into one another share an address: the outermost of them decides whether anything is left.
        let outermost = frames.iter().rposition(|frame| !is_plumbing(&frame.function));
        let entry = frames.iter().rposition(|frame| is_allocator_entry(&frame.function));
        match (outermost, entry) {
            (None, None) => Self::Nothing,
            (outermost, Some(entry)) if outermost.is_none_or(|outermost| outermost < entry) => {
                Self::AllocatorEntry
            }
            _ => Self::Something,
        }
    }
}

impl Trimmer {
    /// The addresses from the first that says something; all of them when none does.
    pub(super) fn trim<'a>(&mut self, addresses: &'a [u64], symbols: &mut Symbolizer) -> &'a [u64] {
        let known = &mut self.known;
        let mut says =
            |address: u64| *known.entry(address).or_insert_with(|| Says::of(&symbols.frames(address)));
        let entered = addresses.iter().rposition(|&address| says(address) == Says::AllocatorEntry);
        let outside = entered.map_or(0, |entry| entry + 1);
        let first = addresses[outside..].iter().position(|&address| says(address) == Says::Something);
        &addresses[first.map_or(0, |first| outside + first)..]
    }
}

/// The function of a stack that asked for the memory, for whoever wants one: the innermost of Python, or else the first,
/// of those that do not only pass a call on. Below a line of Python lies what carried its wish out.
pub(in crate::analysis) fn asking(stack: &[StackLine]) -> Option<&StackLine> {
    let of_python = |line: &&StackLine| line.frame.file.as_deref().is_some_and(|file| file.ends_with(".py"));
    let telling = |line: &&StackLine| !is_internal(&line.frame);
    let found = stack.iter().filter(telling).find(of_python).or_else(|| stack.iter().find(of_python));
    found.or_else(|| stack.iter().find(telling)).or(stack.first())
}

/// The functions at trimmed `addresses`, without those inlined into the first that say nothing.
pub(super) fn lines(addresses: &[u64], symbols: &mut Symbolizer) -> Vec<StackLine> {
    let mut lines: Vec<StackLine> = Vec::new();
    for &address in addresses {
        let frames = symbols.frames(address);
        lines.extend(frames.iter().map(|frame| StackLine { address, frame: frame.clone() }));
    }
    let frames: Vec<Frame> = lines.iter().map(|line| line.frame.clone()).collect();
    lines.drain(..lines.len() - interesting(&frames).len());
    lines
}

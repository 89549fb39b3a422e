//! Which stacks of a ranking are one row: those that are equal from the first frame that says something outwards.

use super::StackLine;
use crate::analysis::trim::{is_internal, is_plumbing};
use crate::event::StackId;
use crate::snapshot::Snapshot;
use crate::stack::symbols::Symbolizer;
use std::collections::HashMap;

/// Remembers which addresses say something.
#[derive(Default)]
pub(super) struct Trimmer {
    plumbing: HashMap<u64, bool, foldhash::fast::RandomState>,
}

impl Trimmer {
    /// The addresses from the first that says something; all of them when none does.
    pub(super) fn trim<'a>(&mut self, addresses: &'a [u64], symbols: &mut Symbolizer) -> &'a [u64] {
        let first = addresses.iter().position(|&address| {
            !*self
                .plumbing
                .entry(address)
                .or_insert_with(|| symbols.frames(address).iter().all(|frame| is_plumbing(&frame.function)))
        });
        &addresses[first.unwrap_or(0)..]
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

/// The functions of a whole stack from the first that says something.
pub(in crate::analysis) fn named(
    snapshot: &Snapshot,
    stack: StackId,
    symbols: &mut Symbolizer,
) -> Vec<StackLine> {
    lines(Trimmer::default().trim(&snapshot.frame_keys(stack), symbols), symbols)
}

/// The functions at trimmed `addresses`, without those inlined into the first that say nothing.
pub(super) fn lines(addresses: &[u64], symbols: &mut Symbolizer) -> Vec<StackLine> {
    let mut lines: Vec<StackLine> = Vec::new();
    for &address in addresses {
        let frames = symbols.frames(address);
        lines.extend(frames.iter().map(|frame| StackLine { address, frame: frame.clone() }));
    }
    let first = lines.iter().position(|line| !is_plumbing(&line.frame.function)).unwrap_or(0);
    lines.drain(..first);
    lines
}

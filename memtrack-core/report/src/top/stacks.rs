//! The rule that decides which stacks share a row in a ranking: those that are equal from the first informative frame
//! outwards.

use super::StackLine;
use memtrack_frames::trim::{informative_frames, is_allocator_entry, is_internal, is_plumbing};
use memtrack_model::Frame;
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;

/// A trimmer for stacks, with a cache of the roles of addresses.
#[derive(Default)]
pub(super) struct Trimmer {
    known: HashMap<u64, Role, foldhash::fast::RandomState>,
}

/// The role that the functions at an address play in a request for memory.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// They requested the memory.
    Requester,
    /// They only forward the request.
    Plumbing,
    /// They are the entry point of the program's own allocator, so all frames inside it are uninformative too.
    AllocatorEntry,
}

impl Role {
    fn of(frames: &[Frame]) -> Self {
        // Functions inlined into one another share an address. The outermost informative function determines the role
        // of the address.
        let outermost = frames.iter().rposition(|frame| !is_plumbing(&frame.function));
        let entry = frames.iter().rposition(|frame| is_allocator_entry(&frame.function));
        match (outermost, entry) {
            (None, None) => Self::Plumbing,
            (outermost, Some(entry)) if outermost.is_none_or(|outermost| outermost < entry) => {
                Self::AllocatorEntry
            }
            _ => Self::Requester,
        }
    }
}

impl Trimmer {
    /// Returns the addresses starting at the first informative one, or all addresses if none is informative.
    pub(super) fn trim<'a>(&mut self, addresses: &'a [u64], symbols: &mut Symbolizer) -> &'a [u64] {
        let known = &mut self.known;
        let mut role =
            |address: u64| *known.entry(address).or_insert_with(|| Role::of(&symbols.frames(address)));
        let entered = addresses.iter().rposition(|&address| role(address) == Role::AllocatorEntry);
        let outside = entered.map_or(0, |entry| entry + 1);
        let first = addresses[outside..].iter().position(|&address| role(address) == Role::Requester);
        &addresses[first.map_or(0, |first| outside + first)..]
    }
}

/// Returns the function in a stack that requested the memory: the innermost Python function that does more than forward
/// a call, or else the innermost function of any language that does. Frames below a Python line only perform its
/// request.
pub(crate) fn requester(stack: &[StackLine]) -> Option<&StackLine> {
    let of_python = |line: &&StackLine| line.frame.file.as_deref().is_some_and(|file| file.ends_with(".py"));
    let is_informative = |line: &&StackLine| !is_internal(&line.frame);
    let found = stack.iter().filter(is_informative).find(of_python).or_else(|| stack.iter().find(of_python));
    found.or_else(|| stack.iter().find(is_informative)).or(stack.first())
}

/// Returns the functions at trimmed `addresses`, without any uninformative functions that were inlined into the first
/// one.
pub(super) fn stack_lines(addresses: &[u64], symbols: &mut Symbolizer) -> Vec<StackLine> {
    let mut lines: Vec<StackLine> = Vec::new();
    for &address in addresses {
        let frames = symbols.frames(address);
        lines.extend(frames.iter().map(|frame| StackLine { address, frame: frame.clone() }));
    }
    let frames: Vec<Frame> = lines.iter().map(|line| line.frame.clone()).collect();
    lines.drain(..lines.len() - informative_frames(&frames).len());
    lines
}

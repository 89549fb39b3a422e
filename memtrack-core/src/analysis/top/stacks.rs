//! Which stacks of a ranking are one row: those that are equal from the first frame that says something outwards.

use super::StackLine;
use crate::analysis::trim::is_plumbing;
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

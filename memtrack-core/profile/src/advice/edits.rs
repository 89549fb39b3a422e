//! Computes how changes to the program affect the allocated memory over time.
//!
//! **Why not estimate?** The exact result is cheap: a finding lists pieces of memory and the device states in which they
//! would be gone, needed or recomputed, and a tree over all states yields the peak after these changes. Changing a
//! line that allocates memory in every step counts as one finding. Tests modify random programs the way the
//! advice suggests, and compute the new peak independently (`profile/src/tests/advice.rs`).

use super::uses::{Memory, States};
use crate::curve::{Curve, State};
use foldhash::HashMap;
use std::collections::BTreeMap;

/// The effect of a program change on pieces of memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    /// Pieces that would no longer be live, each with the states in which it is gone.
    pub(super) removed: Vec<(u32, States)>,
    /// Pieces that must be live in the given states even if they were not before.
    pub(super) needed: Vec<(u32, States)>,
    /// Extra bytes allocated in individual states.
    pub(super) extra: Vec<(State, i64)>,
}

impl Change {
    pub(super) fn append(&mut self, other: &Self) {
        self.removed.extend(&other.removed);
        self.needed.extend(&other.needed);
        self.extra.extend(&other.extra);
    }
}

/// Computes the peak that remains after changes.
pub(super) struct Edits<'a> {
    memory: &'a Memory<'a>,
}

impl<'a> Edits<'a> {
    pub(super) const fn new(memory: &'a Memory<'a>) -> Self {
        Self { memory }
    }

    /// Returns the peak in bytes after applying these changes. Restores the curve before returning.
    pub(super) fn peak_after<'c>(
        &self,
        curve: &mut Curve,
        changes: impl IntoIterator<Item = &'c Change>,
    ) -> u64 {
        // The same piece may appear in several changes, but it must be removed or kept only once.
        let mut by_piece: HashMap<u32, (Vec<States>, Vec<States>)> = HashMap::default();
        let mut sums: BTreeMap<States, i64> = BTreeMap::new();
        for change in changes {
            for &(piece, states) in &change.removed {
                by_piece.entry(piece).or_default().0.push(states);
            }
            for &(piece, states) in &change.needed {
                by_piece.entry(piece).or_default().1.push(states);
            }
            for &(state, bytes) in &change.extra {
                add_bytes(&mut sums, (state, state), bytes);
            }
        }
        for (piece, (removed, needed)) in by_piece {
            let bytes = i64::try_from(self.memory.pieces[piece as usize].bytes).unwrap_or(i64::MAX);
            let life = self.memory.live_states(piece);
            let (removed, needed) = (merge_ranges(removed), merge_ranges(needed));
            for states in subtract_ranges(&removed, &needed) {
                add_bytes(&mut sums, states, -bytes);
            }
            for states in subtract_ranges(&needed, &[life]) {
                add_bytes(&mut sums, states, bytes);
            }
        }
        for (&(first, last), &bytes) in &sums {
            curve.add_bytes(first, last, bytes);
        }
        let (_, peak) = curve.find_highest(0, curve.last());
        for (&(first, last), &bytes) in &sums {
            curve.add_bytes(first, last, bytes.saturating_neg());
        }
        u64::try_from(peak).unwrap_or(0)
    }
}

fn add_bytes(sums: &mut BTreeMap<States, i64>, states: States, bytes: i64) {
    let sum = sums.entry(states).or_default();
    *sum = sum.saturating_add(bytes);
}

/// Sorts ranges and merges those that overlap or touch.
fn merge_ranges(mut all: Vec<States>) -> Vec<States> {
    all.retain(|(first, last)| first <= last);
    all.sort_unstable();
    let mut merged: Vec<States> = Vec::with_capacity(all.len());
    for (first, last) in all {
        match merged.last_mut() {
            Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// Returns the states in `all` that are not in `others`. Both slices must be sorted and free of overlaps.
fn subtract_ranges(all: &[States], others: &[States]) -> Vec<States> {
    let mut left = Vec::new();
    for &(mut first, last) in all {
        for &(from, to) in others {
            if from > last {
                break;
            }
            if to < first {
                continue;
            }
            if from > first {
                left.push((first, from - 1));
            }
            first = to + 1;
        }
        if first <= last {
            left.push((first, last));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_states_are_not_removed() {
        assert_eq!(merge_ranges(vec![(5, 7), (1, 2), (3, 3), (9, 8), (6, 10)]), [(1, 3), (5, 10)]);
        assert_eq!(subtract_ranges(&[(1, 3), (5, 10)], &[(2, 6), (8, 8)]), [(1, 1), (7, 7), (9, 10)]);
        assert_eq!(subtract_ranges(&[(4, 5)], &[(0, 9)]), []);
    }
}

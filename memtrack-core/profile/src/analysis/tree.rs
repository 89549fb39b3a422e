//! The records of a trace as a tree.

use memtrack_model::optrace::{OperatorTrace, RecordId, What};

/// Records in the order of a walk that visits a record before what is inside of it.
pub(super) struct Tree {
    /// The records in that order.
    pub(super) walk: Vec<RecordId>,
    /// Each record's place in `walk`.
    pub(super) place: Vec<u32>,
    /// The place after the last record inside of each, by its place in `walk`.
    pub(super) after: Vec<u32>,
}

impl Tree {
    pub(super) fn of(trace: &OperatorTrace) -> Self {
        let count = trace.records.len();
        // Children one after another, by parent; what has none is the child of the entry after the last record.
        let mut starts = vec![0_u32; count + 2];
        let parent_of = |record: usize| trace.records[record].parent.map_or(count, |parent| parent as usize);
        (0..count).for_each(|record| starts[parent_of(record) + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut children = vec![0; count];
        let mut next = starts.clone();
        for record in 0..count {
            let slot = &mut next[parent_of(record)];
            children[*slot as usize] = record as RecordId;
            *slot += 1;
        }
        let mut tree = Self { walk: Vec::with_capacity(count), place: vec![0; count], after: vec![0; count] };
        // What is still to be visited, and for a record that was, the end of its part of the walk.
        let mut left: Vec<(RecordId, bool)> = Vec::new();
        let push = |left: &mut Vec<(RecordId, bool)>, of: usize| {
            let range = starts[of] as usize..starts[of + 1] as usize;
            left.extend(children[range].iter().rev().map(|&child| (child, false)));
        };
        push(&mut left, count);
        while let Some((record, is_left)) = left.pop() {
            if is_left {
                tree.after[tree.place[record as usize] as usize] = tree.walk.len() as u32;
                continue;
            }
            tree.place[record as usize] = tree.walk.len() as u32;
            tree.walk.push(record);
            left.push((record, true));
            push(&mut left, record as usize);
        }
        tree
    }

    /// The record and all that is inside of it.
    pub(super) fn within(&self, record: RecordId) -> &[RecordId] {
        let place = self.place[record as usize] as usize;
        &self.walk[place..self.after[place] as usize]
    }

    /// Whether `inner` is `outer` or inside of it.
    pub(super) fn is_within(&self, inner: RecordId, outer: RecordId) -> bool {
        let (inner, outer) = (self.place[inner as usize], self.place[outer as usize]);
        inner >= outer && inner < self.after[outer as usize]
    }

    /// The first record directly inside of this one.
    pub(super) fn first_child(&self, record: RecordId) -> Option<RecordId> {
        self.within(record).get(1).copied()
    }
}

/// Which records are the first of their module or optimizer: only these register tensors.
pub(super) fn registrations(trace: &OperatorTrace) -> Vec<bool> {
    let mut modules = vec![false; trace.strings.len()];
    let mut optimizers = vec![false; trace.strings.len()];
    let is_first = |what: &What| {
        let seen = match what {
            What::Module(module) => &mut modules[module.identity.index()],
            What::Optimizer(optimizer) => &mut optimizers[optimizer.identity.index()],
            _ => return false,
        };
        !std::mem::replace(seen, true)
    };
    trace.records.iter().map(|record| &record.what).map(is_first).collect()
}

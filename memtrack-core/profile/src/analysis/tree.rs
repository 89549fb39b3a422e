//! The records of a trace as a tree.

use memtrack_model::optrace::{OperatorTrace, RecordId, What};

/// The records in the order of a walk that visits each record before the records inside it.
pub(super) struct Tree {
    /// The records in that order.
    pub(super) walk: Vec<RecordId>,
    /// Each record's place in `walk`.
    pub(super) place: Vec<u32>,
    /// The index in `walk` after the last record inside each record, by the record's index in `walk`.
    pub(super) after: Vec<u32>,
}

impl Tree {
    pub(super) fn of(trace: &OperatorTrace) -> Self {
        let count = trace.records.len();
        // Children grouped by parent; a record without a parent is a child of the entry after the last
        // record.
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
        // The records still to be visited, and for visited ones, the end of their part of the walk.
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

    /// Returns the record and all records inside it.
    pub(super) fn within(&self, record: RecordId) -> &[RecordId] {
        let place = self.place[record as usize] as usize;
        &self.walk[place..self.after[place] as usize]
    }

    /// Returns whether `inner` is `outer` or inside it.
    pub(super) fn is_within(&self, inner: RecordId, outer: RecordId) -> bool {
        let (inner, outer) = (self.place[inner as usize], self.place[outer as usize]);
        inner >= outer && inner < self.after[outer as usize]
    }

    /// Returns the first record directly inside this one.
    pub(super) fn first_child(&self, record: RecordId) -> Option<RecordId> {
        self.within(record).get(1).copied()
    }
}

/// Returns for each record whether it is the first of its module or optimizer: only these register tensors.
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

//! The tree formed by a trace's records, and the phases of the training step in which they run.

use foldhash::HashMap;
use memtrack_model::optrace::{OperatorTrace, Record, RecordId, RecordKind, TracePhase};

/// Numbers in groups, each group in the order in which its numbers were given.
pub(super) struct Grouped {
    /// For each group, the index of its first number.
    starts: Vec<u32>,
    numbers: Vec<u32>,
}

impl Grouped {
    /// Groups the numbers that `pairs` returns, each with its group.
    pub(super) fn of<I: Iterator<Item = (usize, u32)>>(groups: usize, pairs: impl Fn() -> I) -> Self {
        let mut starts = vec![0_u32; groups + 1];
        pairs().for_each(|(group, _)| starts[group + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut numbers = vec![0; starts[groups] as usize];
        let mut next = starts.clone();
        for (group, number) in pairs() {
            numbers[next[group] as usize] = number;
            next[group] += 1;
        }
        Self { starts, numbers }
    }

    pub(super) fn get(&self, group: usize) -> &[u32] {
        &self.numbers[self.starts[group] as usize..self.starts[group + 1] as usize]
    }
}

/// A trace's records in pre-order, where each record precedes the records inside it.
pub(super) struct Tree {
    /// The records in pre-order.
    pub(super) walk: Vec<RecordId>,
    /// Each record's index in `walk`.
    pub(super) walk_index: Vec<u32>,
    /// For each index in `walk`, the index just past the last record inside the record at that index.
    pub(super) subtree_end: Vec<u32>,
}

impl Tree {
    pub(super) fn of(trace: &OperatorTrace) -> Self {
        let count = trace.records.len();
        // Records without a parent form a group of their own, after the last record's group.
        let parent_of = |record: &Record| record.parent.map_or(count, |parent| parent as usize);
        let children = Grouped::of(count + 1, || trace.records.iter().map(parent_of).zip(0..));
        let mut tree =
            Self { walk: Vec::with_capacity(count), walk_index: vec![0; count], subtree_end: vec![0; count] };
        // The records that are still to be visited. The flag marks a record that has been visited and is
        // popped a second time when its subtree ends.
        let mut pending: Vec<(RecordId, bool)> = Vec::new();
        let push = |pending: &mut Vec<(RecordId, bool)>, of: usize| {
            pending.extend(children.get(of).iter().rev().map(|&child| (child, false)));
        };
        push(&mut pending, count);
        while let Some((record, is_done)) = pending.pop() {
            if is_done {
                tree.subtree_end[tree.walk_index[record as usize] as usize] = tree.walk.len() as u32;
                continue;
            }
            tree.walk_index[record as usize] = tree.walk.len() as u32;
            tree.walk.push(record);
            pending.push((record, true));
            push(&mut pending, record as usize);
        }
        tree
    }

    /// Returns a record and all records inside it.
    pub(super) fn subtree(&self, record: RecordId) -> &[RecordId] {
        let place = self.walk_index[record as usize] as usize;
        &self.walk[place..self.subtree_end[place] as usize]
    }

    /// Returns whether `inner` equals `outer` or is inside it.
    pub(super) fn is_inside(&self, inner: RecordId, outer: RecordId) -> bool {
        let (inner, outer) = (self.walk_index[inner as usize], self.walk_index[outer as usize]);
        inner >= outer && inner < self.subtree_end[outer as usize]
    }

    /// Returns the first record that is directly inside this one.
    pub(super) fn first_child(&self, record: RecordId) -> Option<RecordId> {
        self.subtree(record).get(1).copied()
    }
}

/// Returns, for each record, whether it is the first record of its module or optimizer. Only these records
/// register tensors.
pub(super) fn find_first_registrations(trace: &OperatorTrace) -> Vec<bool> {
    let mut modules = vec![false; trace.strings.len()];
    let mut optimizers = vec![false; trace.strings.len()];
    let is_first = |what: &RecordKind| {
        let seen = match what {
            RecordKind::Module(module) => &mut modules[module.identity.index()],
            RecordKind::Optimizer(optimizer) => &mut optimizers[optimizer.identity.index()],
            _ => return false,
        };
        !std::mem::replace(seen, true)
    };
    trace.records.iter().map(|record| &record.what).map(is_first).collect()
}

/// Returns the phase of each record. This is the phase that the record itself states, or else the enclosing
/// record's phase, or else the phase of the innermost unfinished record on the same thread that states one.
/// The last case is needed for PyTorch, whose annotation of an optimizer step does not enclose the step's
/// operators.
pub(crate) fn record_phases(trace: &OperatorTrace) -> Vec<TracePhase> {
    let mut phases: Vec<TracePhase> = Vec::with_capacity(trace.records.len());
    let mut open: HashMap<u64, Vec<(i64, TracePhase)>> = HashMap::default();
    for record in &trace.records {
        let mut phase = record.phase;
        if phase == TracePhase::Inherited {
            phase = record.parent.map_or(TracePhase::Inherited, |parent| phases[parent as usize]);
        }
        if phase == TracePhase::Inherited
            && let Some(open) = open.get_mut(&record.thread)
        {
            while open.last().is_some_and(|&(end_ns, _)| end_ns < record.time_ns) {
                open.pop();
            }
            phase = open.last().map_or(TracePhase::Inherited, |&(_, phase)| phase);
        }
        if let (TracePhase::Of(_) | TracePhase::Other, Some(end_ns)) = (record.phase, record.end_ns) {
            open.entry(record.thread).or_default().push((end_ns, record.phase));
        }
        phases.push(phase);
    }
    phases
}

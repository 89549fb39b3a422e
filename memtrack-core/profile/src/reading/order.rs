//! Analyses the order of events. Determines which phase of the training step was running at each event on a
//! device, and which blocks are the same tensor that was written in place.

use super::frames::StackFacts;
use foldhash::HashMap;
use memtrack_blocks::lifetimes::Lifetime;
use memtrack_model::NameFrames;
use memtrack_model::Phase;
use memtrack_model::event::{Action, DeviceId, ScopeId, StackId};
use memtrack_model::snapshot::{FrameId, ScopeKind, Snapshot};
use std::hash::Hash;

/// The facts that stacks and scopes reveal. Each fact is determined only once.
#[derive(Debug, Default)]
pub(super) struct Facts {
    by_stack: HashMap<StackId, StackFacts>,
    no_stack: StackFacts,
    by_scope: Vec<Option<Phase>>,
    /// For each scope, the outermost enclosing operator that is in the same phase.
    operators: Vec<Option<ScopeId>>,
    /// Whether a profiler wrote the snapshot. If so, each free has the stack of its allocation, and a tensor
    /// that is written in place is freed and immediately allocated again.
    pub(super) is_from_profiler: bool,
    /// Whether free events have their own stacks.
    pub(super) frees_have_stacks: bool,
    /// Whether all stacks consist solely of Python frames.
    pub(super) python_only: bool,
    /// Whether any stack has frames.
    pub(super) has_stacks: bool,
    /// Whether any block was allocated in a scope that reveals its phase, or in an operator's scope.
    pub(super) has_scopes: bool,
}

impl Facts {
    pub(super) fn read(
        snapshot: &Snapshot,
        names: &mut dyn NameFrames,
        device: DeviceId,
        lifetimes: &[Lifetime],
    ) -> Self {
        let scopes = 0..snapshot.scopes.rows.len() as u32;
        let mut facts = Self {
            by_scope: scopes.clone().map(|scope| snapshot.scopes.place(ScopeId(scope)).phase).collect(),
            operators: scopes.map(|scope| outermost_operator(snapshot, ScopeId(scope))).collect(),
            is_from_profiler: is_from_profiler(snapshot),
            ..Self::default()
        };
        let of_events = snapshot.events.rows_of(device).map(|row| snapshot.events.stack[row]);
        for stack in of_events.chain(lifetimes.iter().map(|lifetime| lifetime.stack)) {
            facts.by_stack.entry(stack).or_insert_with(|| {
                let keys = snapshot.frame_keys(stack);
                let frames: Vec<_> = keys.iter().flat_map(|&key| names.frames(key).to_vec()).collect();
                StackFacts::of(&frames)
            });
        }
        facts.has_stacks = facts.by_stack.values().any(|stack| stack.has_frames);
        facts.python_only = facts.has_stacks && !facts.by_stack.values().any(|stack| stack.has_native);
        facts.frees_have_stacks = lifetimes.iter().any(|lifetime| match (lifetime.from, lifetime.to) {
            (Some(_), Some(to)) => {
                let freed = snapshot.events.stack[to];
                let is_free = snapshot.events.action[to] != Action::Alloc;
                is_free && freed != lifetime.stack && facts.stack(freed).has_frames
            }
            _ => false,
        });
        let is_in_scope = |scope| facts.scope(scope).is_some() || facts.operator(scope).is_some();
        facts.has_scopes = lifetimes.iter().any(|lifetime| is_in_scope(lifetime.scope));
        facts
    }

    pub(super) fn stack(&self, stack: StackId) -> &StackFacts {
        self.by_stack.get(&stack).unwrap_or(&self.no_stack)
    }

    pub(super) fn scope(&self, scope: ScopeId) -> Option<Phase> {
        self.by_scope.get(scope.index()).copied().flatten()
    }

    /// Returns the outermost operator that encloses a scope and is in the same phase.
    pub(super) fn operator(&self, scope: ScopeId) -> Option<ScopeId> {
        self.operators.get(scope.index()).copied().flatten()
    }
}

/// Returns the outermost operator that encloses a scope. Operators that enclose a root module, a backward
/// pass or an optimizer step are ignored.
fn outermost_operator(snapshot: &Snapshot, scope: ScopeId) -> Option<ScopeId> {
    let row =
        |id: ScopeId| snapshot.scopes.rows.get(id.index()).filter(|_| !id.is_none()).map(|row| (id, row));
    let ancestors = std::iter::successors(row(scope), |&(id, scope)| {
        row(scope.parent).filter(|&(parent, _)| parent < id)
    });
    let of_phase =
        ancestors.take_while(|(_, row)| matches!(row.kind, ScopeKind::Operator | ScopeKind::Module));
    of_phase.filter(|(_, row)| row.kind == ScopeKind::Operator).last().map(|(id, _)| id)
}

/// Returns whether the file was written by `_profile_to_snapshot`, whose frames have no files.
fn is_from_profiler(snapshot: &Snapshot) -> bool {
    let mut rows = (0..snapshot.frames.len() as u32).map(FrameId);
    snapshot.pytorch.is_some()
        && !snapshot.frames.is_empty()
        && rows.all(|frame| snapshot.strings.get(snapshot.frames.filename(frame)) == "none")
}

/// A tensor's storage. It usually has one lifetime. In a profiler's snapshot it may have several, because
/// each write in place starts a new one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Storage {
    /// The lifetimes in chronological order.
    pub(super) lifetimes: Vec<usize>,
    /// The event row of the allocation, or `None` if the storage was already live before the first event.
    pub(super) from: Option<usize>,
    /// The event row of the free, or `None` if the storage is still live at the end.
    pub(super) to: Option<usize>,
    pub(super) stack: StackId,
    pub(super) scope: ScopeId,
    pub(super) size_bytes: u64,
    /// The event rows at which the storage was written in place.
    pub(super) written: Vec<usize>,
}

/// Groups `lifetimes` into storages.
pub(super) fn group_into_storages(
    snapshot: &Snapshot,
    facts: &Facts,
    lifetimes: &[Lifetime],
) -> Vec<Storage> {
    let mut storages: Vec<Storage> = Vec::with_capacity(lifetimes.len());
    // The event row and storage of the last free at each address.
    let mut freed: HashMap<u64, (usize, usize)> = HashMap::default();
    let mut order: Vec<usize> = (0..lifetimes.len()).collect();
    order.sort_by_key(|&at| lifetimes[at].from);
    for at in order {
        let lifetime = &lifetimes[at];
        let address = lifetime.from.or(lifetime.to).map(|row| snapshot.events.address[row]);
        let before = lifetime.from.and_then(|row| {
            let &(to, storage) = freed.get(&address?).filter(|_| facts.is_from_profiler)?;
            let earlier = &storages[storage];
            // This is a write in place if one of the two preceding events freed a block with the same size
            // and stack.
            let same = earlier.size_bytes == lifetime.size_bytes && earlier.stack == lifetime.stack;
            let is_backward = facts.stack(lifetime.stack).phase == Some(Phase::Backward);
            (same && !is_backward && row - to <= 2).then_some(storage)
        });
        let storage = match before {
            Some(storage) => {
                storages[storage].written.extend(lifetime.from);
                storage
            }
            None => {
                storages.push(Storage {
                    lifetimes: Vec::new(),
                    from: lifetime.from,
                    to: None,
                    stack: lifetime.stack,
                    scope: lifetime.scope,
                    size_bytes: lifetime.size_bytes,
                    written: Vec::new(),
                });
                storages.len() - 1
            }
        };
        storages[storage].lifetimes.push(at);
        storages[storage].to = lifetime.to;
        if let (Some(address), Some(to)) = (address, lifetime.to) {
            freed.insert(address, (to, storage));
        }
    }
    storages
}

/// A sequence of events during which one phase was running.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    /// The phase of the training step, or `None` outside all phases.
    pub(super) phase: Option<Phase>,
    /// The event row of the last allocation in the run.
    last_alloc: Option<usize>,
    /// Whether memory ran out during the run.
    ran_out: bool,
    /// The phases of the nearest runs before and after this one that have a phase.
    before: Option<Phase>,
    after: Option<Phase>,
}

/// The runs on a device.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) runs: Vec<Run>,
    /// The indices in `runs` of the first and last run of each phase.
    first_runs: [Option<usize>; 3],
    last_runs: [Option<usize>; 3],
    /// For each event row, the index in `runs` of the run that it belongs to.
    run_of_row: Vec<u32>,
    /// For each allocation's event row, the row of the next allocation made by a different call.
    next_in_other_call: Vec<usize>,
    /// For each allocation's event row, the row of the next allocation that the same thread made in a
    /// different operator.
    next_in_other_operator: Vec<usize>,
    /// The number of backward passes.
    pub(super) backward_passes: usize,
}

/// The evidence from an event about the running phase.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    Phase(Phase),
    Outside,
    /// A tensor that is older than the backward pass was written in place. This is an optimizer's update
    /// unless the backward pass continues afterwards.
    Written,
}

impl Order {
    pub(super) fn of(snapshot: &Snapshot, facts: &Facts, device: DeviceId, storages: &[Storage]) -> Self {
        let written = written_rows(snapshot, facts, storages);
        let rows: Vec<usize> = snapshot.events.rows_of(device).collect();
        let mut marks: Vec<(usize, Mark)> = Vec::new();
        for &row in &rows {
            marks.extend(find_mark(snapshot, facts, &written, row).map(|mark| (row, mark)));
        }
        keep_updates(&mut marks);
        let mut order = Self {
            runs: Vec::new(),
            run_of_row: vec![0; snapshot.events.len()],
            next_in_other_call: Vec::new(),
            next_in_other_operator: Vec::new(),
            backward_passes: 0,
            first_runs: [None; 3],
            last_runs: [None; 3],
        };
        let run = |phase| Run { phase, last_alloc: None, ran_out: false, before: None, after: None };
        order.runs.push(run(None));
        let mut marks = marks.into_iter().peekable();
        for &row in &rows {
            if let Some((_, mark)) = marks.next_if(|&(at, _)| at == row) {
                let phase = match mark {
                    Mark::Phase(phase) => Some(phase),
                    Mark::Outside => None,
                    Mark::Written => Some(Phase::Optimizer),
                };
                if order.runs.last().is_none_or(|last| last.phase != phase) {
                    order.runs.push(run(phase));
                }
            }
            let number = order.runs.len() - 1;
            order.run_of_row[row] = number as u32;
            let last = &mut order.runs[number];
            match snapshot.events.action[row] {
                Action::Alloc if !written.contains_key(&row) => last.last_alloc = Some(row),
                Action::Oom => last.ran_out = true,
                _ => {}
            }
        }
        order.index_phases();
        let events = &snapshot.events;
        order.next_in_other_call = next_of_others(snapshot, &rows, |row| {
            (!written.contains_key(&row)).then(|| ((), facts.stack(events.stack[row]).call))
        });
        if facts.operators.iter().any(Option::is_some) {
            order.next_in_other_operator = next_of_others(snapshot, &rows, |row| {
                Some((events.thread[row], facts.operator(events.scope[row])))
            });
        }
        order
    }

    fn index_phases(&mut self) {
        let mut before = None;
        for (number, run) in self.runs.iter_mut().enumerate() {
            run.before = before;
            let is_backward = |phase: Option<Phase>| phase == Some(Phase::Backward);
            self.backward_passes += usize::from(is_backward(run.phase) && !is_backward(before));
            before = run.phase.or(before);
            if let Some(phase) = run.phase {
                self.first_runs[phase as usize].get_or_insert(number);
                self.last_runs[phase as usize] = Some(number);
            }
        }
        let mut after = None;
        for run in self.runs.iter_mut().rev() {
            run.after = after;
            after = run.phase.or(after);
        }
    }

    pub(super) fn run_number(&self, row: usize) -> usize {
        self.run_of_row[row] as usize
    }

    pub(super) fn run(&self, row: usize) -> &Run {
        &self.runs[self.run_number(row)]
    }

    /// Returns the phase at an event, or else the last phase before it, along with the next phase after it.
    pub(super) fn phases_around(&self, row: usize) -> (Option<Phase>, Option<Phase>) {
        let run = self.run(row);
        (run.phase.or(run.before), run.after)
    }

    pub(super) fn last_run(&self, phase: Phase) -> Option<usize> {
        self.last_runs[phase as usize]
    }

    pub(super) fn first_run(&self, phase: Phase) -> Option<usize> {
        self.first_runs[phase as usize]
    }

    /// Returns whether a run with a phase started after row `from` and no later than row `to`.
    pub(super) fn has_run_begun_between(&self, from: usize, to: usize) -> bool {
        let (from, to) = (self.run_number(from), self.run_number(to));
        self.runs[from..=to].iter().skip(1).any(|run| run.phase.is_some())
    }

    /// Returns whether a block allocated at `from` outlived that row's run. A block that is live at the end
    /// outlived the run, because programs write their snapshots outside all phases. The exception is a last
    /// run in which memory ran out, because the trace may have ended within that run.
    pub(super) fn outlives_run(&self, from: usize, to: Option<usize>) -> bool {
        let run = self.run_number(from);
        match to {
            Some(to) => self.run_number(to) != run,
            None => run + 1 < self.runs.len() || !self.runs[run].ran_out,
        }
    }

    /// Returns whether the run that contains `row` has no allocations after `row`.
    pub(super) fn is_after_allocations(&self, row: usize) -> bool {
        self.run(row).last_alloc.is_none_or(|last| row > last)
    }

    /// Returns whether the thread that allocated the block at `from` made no allocation outside the same
    /// operator before `to`.
    pub(super) fn is_within_one_operator(&self, from: usize, to: usize) -> bool {
        self.next_in_other_operator.get(from).is_some_and(|&other| other > to)
    }

    /// Returns whether only the call that allocated the block at `from` made allocations before `to`.
    pub(super) fn is_within_one_call(&self, from: usize, to: usize) -> bool {
        self.next_in_other_call.get(from).is_some_and(|&other| other > to)
    }
}

/// Returns the event rows at which a storage is written in place. Each row comes with a flag that is true if
/// the storage is a gradient, which a backward pass can write.
fn written_rows(snapshot: &Snapshot, facts: &Facts, storages: &[Storage]) -> HashMap<usize, bool> {
    let mut rows = HashMap::default();
    for storage in storages.iter().filter(|storage| !storage.written.is_empty()) {
        let is_gradient = facts.stack(storage.stack).phase == Some(Phase::Backward);
        rows.extend(storage.written.iter().map(|&row| (row, is_gradient)));
    }
    debug_assert!(rows.keys().all(|&row| snapshot.events.action[row] == Action::Alloc));
    rows
}

fn find_mark(snapshot: &Snapshot, facts: &Facts, written: &HashMap<usize, bool>, row: usize) -> Option<Mark> {
    let action = snapshot.events.action[row];
    if let Some(&is_gradient) = written.get(&row) {
        return (!is_gradient).then_some(Mark::Written);
    }
    let is_alloc = action == Action::Alloc;
    let is_free = matches!(action, Action::Free | Action::FreeRequested);
    if !(is_alloc || (is_free && facts.frees_have_stacks)) {
        return None;
    }
    // A free event repeats the scope of its allocation, so its scope does not show the phase that is running.
    if let Some(phase) = facts.scope(snapshot.events.scope[row]) {
        return is_alloc.then_some(Mark::Phase(phase));
    }
    let stack = facts.stack(snapshot.events.stack[row]);
    match stack.phase {
        Some(phase) => Some(Mark::Phase(phase)),
        None if stack.is_outside => Some(Mark::Outside),
        None if is_alloc && is_on_autograd_thread(facts, stack) => Some(Mark::Phase(Phase::Backward)),
        None => None,
    }
}

/// Returns whether an allocation with this stack was made by one of autograd's threads, which do not run
/// Python.
pub(super) fn is_on_autograd_thread(facts: &Facts, stack: &StackFacts) -> bool {
    !stack.has_frames && facts.python_only && !facts.is_from_profiler
}

/// Keeps only those writes in place that end a backward pass, i.e. those after which the next mark of another
/// kind does not belong to the backward pass.
fn keep_updates(marks: &mut Vec<(usize, Mark)>) {
    let mut kept = Vec::with_capacity(marks.len());
    let mut pending: Vec<(usize, Mark)> = Vec::new();
    let mut phase = None;
    for &(row, mark) in marks.iter() {
        match mark {
            Mark::Written if phase == Some(Phase::Backward) => pending.push((row, mark)),
            Mark::Written => {}
            _ => {
                if mark != Mark::Phase(Phase::Backward) {
                    kept.append(&mut pending);
                }
                pending.clear();
                kept.push((row, mark));
                phase = if let Mark::Phase(phase) = mark { Some(phase) } else { None };
            }
        }
    }
    kept.append(&mut pending);
    *marks = kept;
}

/// Returns, for the row of each allocation, the row of the next allocation in the same sequence that another maker made.
/// `maker` returns the sequence and the maker of an allocation, or `None` for events to ignore.
fn next_of_others<S: Eq + Hash, M: PartialEq>(
    snapshot: &Snapshot,
    rows: &[usize],
    maker: impl Fn(usize) -> Option<(S, M)>,
) -> Vec<usize> {
    let mut others = vec![0; snapshot.events.len()];
    // For each sequence, the next allocation and its maker.
    let mut next: HashMap<S, (usize, M)> = HashMap::default();
    for &row in rows.iter().rev().filter(|&&row| snapshot.events.action[row] == Action::Alloc) {
        let Some((sequence, maker)) = maker(row) else { continue };
        others[row] = match next.get(&sequence) {
            None => usize::MAX,
            Some((row, same)) if *same == maker => others[*row],
            Some((row, _)) => *row,
        };
        next.insert(sequence, (row, maker));
    }
    others
}

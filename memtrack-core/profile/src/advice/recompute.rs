//! Finds modules whose activations could be recomputed in the backward pass instead of being kept for it.

use super::edits::Change;
use super::find::Proposal;
use super::uses::{Memory, States};
use super::{Finding, Kind};
use crate::analysis::{Action, Role};
use crate::category::Category;
use crate::curve::{Curve, State};
use crate::modules::calls::{Call, CallId};
use crate::places::{ModuleId, StepPart};
use foldhash::{HashMap, HashSet};
use memtrack_model::optrace::{OpKind, RecordKind};
use memtrack_model::snapshot::StringId;
use std::cmp::Reverse;

/// The maximum number of proposals that are tried in combination.
const MAX_TOGETHER: usize = 64;

/// The memory allocated and read by a call and the calls inside it.
#[derive(Clone, Debug, Default)]
struct CallMemory {
    allocated: Vec<u32>,
    read: HashSet<u32>,
    /// Whether the call writes to memory that already existed when it started.
    writes_older_memory: bool,
    /// The total duration of the call's operators, in ns.
    forward_ns: u64,
}

/// Returns the proposals for single modules, the proposals for groups of similar modules, and the set of
/// pieces that could be recomputed.
pub(super) fn find_recomputations(
    memory: &Memory<'_>,
    curve: &Curve,
    peak: State,
) -> (Vec<Proposal>, Vec<Proposal>, HashSet<u32>) {
    let call_memory = memory_of_calls(memory);
    let writes = write_times(memory);
    let mut by_module: HashMap<ModuleId, Candidate> = HashMap::default();
    let mut excluded: HashSet<ModuleId> = HashSet::default();
    for (number, (call, call_memory)) in (0..).zip(memory.calls.all().iter().zip(&call_memory)) {
        let Some((backward_ns, _)) = call.backward_ns.filter(|_| !call.is_recomputed) else { continue };
        let is_changed = |piece: &u32| {
            let times = writes.get(piece).map_or(&[][..], |times| times);
            times.iter().any(|&time_ns| call.begin_ns <= time_ns && time_ns < backward_ns)
        };
        if call_memory.writes_older_memory || call_memory.read.iter().any(is_changed) {
            // The call has overwritten older memory, or its inputs change before its backward pass. Recomputing the module
            // would therefore start from different input values.
            excluded.insert(call.module);
            continue;
        }
        let recompute_state = curve.state_before(backward_ns);
        let mut change = Change::default();
        let mut at_peak: Vec<u32> = Vec::new();
        let mut gone_bytes: u64 = 0;
        for &piece in &call_memory.allocated {
            let Some(states) = idle_until_backward(memory, curve, piece, (number, call), recompute_state)
            else {
                continue;
            };
            change.removed.push((piece, states));
            gone_bytes = gone_bytes.saturating_add(memory.pieces[piece as usize].bytes);
            if states.0 <= peak && peak <= states.1 {
                at_peak.push(piece);
            }
        }
        if change.removed.is_empty() {
            continue;
        }
        // Recomputing takes as much memory as the original computation.
        let most = peak_inside(memory, &call_memory.allocated, call);
        change
            .extra
            .push((recompute_state, i64::try_from(most.saturating_sub(gone_bytes)).unwrap_or(i64::MAX)));
        let end = curve.state_after(call.end_ns);
        change.needed.extend(call_memory.read.iter().map(|&piece| (piece, (end, recompute_state))));
        let candidate = by_module.entry(call.module).or_insert_with(|| Candidate::new(memory, call));
        candidate.longest_ns = candidate.longest_ns.max(call_memory.forward_ns);
        let found = &mut candidate.found;
        found.change.append(&change);
        if !at_peak.is_empty() {
            found.finding.count += at_peak.len() as u64;
            found.finding.allocated_bytes =
                found.finding.allocated_bytes.saturating_add(memory.bytes_of(&at_peak));
            let duration_ns = found.finding.forward_ns.unwrap_or(0);
            found.finding.forward_ns = Some(duration_ns.saturating_add(call_memory.forward_ns));
            candidate.at_peak.extend(at_peak);
        }
    }
    by_module.retain(|module, _| !excluded.contains(module));
    let mut all: Vec<Candidate> = by_module.into_values().collect();
    all.sort_by_key(|candidate| candidate.found.modules[0]);
    let mut recomputable = HashSet::default();
    for candidate in &mut all {
        if let Some(&largest) =
            candidate.at_peak.iter().max_by_key(|&&piece| memory.pieces[piece as usize].bytes)
        {
            candidate.found.finding.category = memory.category(largest, curve, peak);
        }
        recomputable.extend(candidate.at_peak.iter().copied());
    }
    let similar = group_similar(memory, &all);
    let singles = all.into_iter().filter(|candidate| !candidate.at_peak.is_empty());
    (singles.map(|candidate| candidate.found).collect(), similar, recomputable)
}

/// A module that the backward pass could recompute.
struct Candidate {
    found: Proposal,
    class: StringId,
    at_peak: Vec<u32>,
    /// The longest total duration of the module's operators in a single call, in ns.
    longest_ns: u64,
}

impl Candidate {
    fn new(memory: &Memory<'_>, call: &Call) -> Self {
        let class = match &memory.profile.trace().records[call.record as usize].what {
            RecordKind::Module(module) => module.class,
            _ => StringId::default(),
        };
        Self { found: new_proposal(memory, call), class, at_peak: Vec::new(), longest_ns: 0 }
    }
}

fn new_proposal(memory: &Memory<'_>, call: &Call) -> Proposal {
    Proposal {
        finding: Finding {
            kind: Kind::Recompute,
            category: Category::Activation,
            module: Some(memory.places.full_name(call.module)),
            modules: vec![memory.places.full_name(call.module)],
            ..Finding::default()
        },
        change: Change::default(),
        modules: vec![call.module],
    }
}

/// Combines modules of the same type and depth, such as the layers of a model, into one proposal per group.
fn group_similar(memory: &Memory<'_>, all: &[Candidate]) -> Vec<Proposal> {
    let mut groups: Vec<Proposal> = Vec::new();
    let mut places: HashMap<(StringId, u32), usize> = HashMap::default();
    for Candidate { found, class, longest_ns, .. } in all {
        let depth = memory.places.modules[found.modules[0] as usize].depth;
        let place = *places.entry((*class, depth)).or_insert(groups.len());
        let duration_ns = found.finding.forward_ns.unwrap_or(*longest_ns);
        let Some(group) = groups.get_mut(place) else {
            let mut group = found.clone();
            group.finding.forward_ns = Some(duration_ns);
            groups.push(group);
            continue;
        };
        group.finding.count += found.finding.count;
        group.finding.allocated_bytes =
            group.finding.allocated_bytes.saturating_add(found.finding.allocated_bytes);
        group.finding.modules.extend(found.finding.modules.iter().cloned());
        group.finding.forward_ns = group.finding.forward_ns.map(|sum| sum.saturating_add(duration_ns));
        group.modules.extend(&found.modules);
        group.change.append(&found.change);
    }
    groups.retain(|group| group.modules.len() > 1 && group.finding.count > 0);
    groups
}

/// Decides for each group of similar modules whether to keep the group or its members. The group wins if it
/// saves more than any single member does.
pub(super) fn choose_groups(mut singles: Vec<Proposal>, similar: Vec<Proposal>) -> Vec<Proposal> {
    let mut all: Vec<Proposal> = Vec::new();
    for group in similar {
        let is_member = |single: &Proposal| group.modules.contains(&single.modules[0]);
        let best =
            singles.iter().filter(|single| is_member(single)).map(|single| single.finding.saves_bytes).max();
        if best.is_some_and(|best| best < group.finding.saves_bytes) {
            singles.retain(|single| !is_member(single));
            all.push(group);
        }
    }
    all.extend(singles);
    all
}

/// Returns the states between the end of a call and its backward pass in which a piece does not have to be
/// live, or `None` if something else uses the piece after the call.
fn idle_until_backward(
    memory: &Memory<'_>,
    curve: &Curve,
    piece: u32,
    (number, call): (CallId, &Call),
    recompute_state: State,
) -> Option<States> {
    let (backward_ns, _) = call.backward_ns?;
    let category = memory.pieces[piece as usize].category_at(i64::MAX);
    use Category::{Buffer, Gradient, OptimizerState, Parameter};
    if matches!(category, Buffer | Gradient | OptimizerState | Parameter) {
        return None;
    }
    let mut end_ns = call.end_ns;
    let mut is_kept = false;
    for of in memory.uses(piece) {
        if of.part != StepPart::Backward {
            if of.end_ns >= backward_ns {
                return None;
            }
            end_ns = end_ns.max(of.end_ns);
        } else {
            let around = memory.calls.enclosing(of.record);
            if of.begin_ns < backward_ns || !memory.calls.ancestors(around).any(|outer| outer == number) {
                return None;
            }
            is_kept = true;
        }
    }
    let states = (curve.state_after(end_ns) + 1, recompute_state.checked_sub(1)?);
    (is_kept && states.0 <= states.1 && states.1 <= memory.live_states(piece).1).then_some(states)
}

/// Returns the memory that each call allocates and reads.
fn memory_of_calls(memory: &Memory<'_>) -> Vec<CallMemory> {
    let mut all = vec![CallMemory::default(); memory.calls.all().len()];
    for (number, piece) in (0..).zip(&memory.pieces) {
        let Some(allocated_by) = piece.allocated_by else { continue };
        if !matches!(memory.places.get(allocated_by).part, StepPart::Forward | StepPart::Other) {
            continue;
        }
        for call in memory.calls.ancestors(memory.calls.enclosing(allocated_by)) {
            all[call as usize].allocated.push(number);
        }
    }
    let made_in = |piece: u32, call: CallId| {
        let allocated_by = memory.pieces[piece as usize].allocated_by;
        let around = allocated_by.and_then(|record| memory.calls.enclosing(record));
        memory.calls.ancestors(around).any(|outer| outer == call)
    };
    for (number, record) in (0..).zip(&memory.profile.trace().records) {
        let RecordKind::Op(op) = &record.what else { continue };
        let place = memory.places.get(number);
        let around = memory
            .calls
            .enclosing(number)
            .filter(|_| matches!(place.part, StepPart::Forward | StepPart::Other));
        if around.is_none() {
            continue;
        }
        if place.operator.is_none() && op.kind == OpKind::Op && op.known {
            let duration_ns = memory.ends[number as usize].saturating_sub(record.time_ns);
            for call in memory.calls.ancestors(around) {
                let sum = &mut all[call as usize].forward_ns;
                *sum = sum.saturating_add(u64::try_from(duration_ns).unwrap_or(0));
            }
        }
        for (role, storage) in memory.profile.references(number) {
            let Some(piece) = storage.and_then(|storage| memory.piece_of_storage[storage as usize]) else {
                continue;
            };
            let category = memory.pieces[piece as usize].category_at(i64::MAX);
            if matches!(category, Category::Parameter | Category::Buffer) {
                continue;
            }
            for call in memory.calls.ancestors(around) {
                if made_in(piece, call) {
                    continue;
                }
                let call_memory = &mut all[call as usize];
                call_memory.writes_older_memory |= role == Role::Argument(Some(true));
                call_memory.read.insert(piece);
            }
        }
    }
    all
}

/// Returns the times at which each piece was written, in ns.
fn write_times(memory: &Memory<'_>) -> HashMap<u32, Vec<i64>> {
    let mut writes: HashMap<u32, Vec<i64>> = HashMap::default();
    for change in memory.profile.changes() {
        let piece = change.storage.and_then(|storage| memory.piece_of_storage[storage as usize]);
        if let Some(piece) = piece.filter(|_| change.action == Action::IncrementVersion) {
            writes.entry(piece).or_default().push(change.time_ns);
        }
    }
    writes
}

/// Returns the peak, in bytes, of the call's own allocations while the call runs.
fn peak_inside(memory: &Memory<'_>, made: &[u32], call: &Call) -> u64 {
    let mut changes: Vec<(i64, i64)> = Vec::with_capacity(2 * made.len());
    for &piece in made {
        let piece = &memory.pieces[piece as usize];
        let bytes = i64::try_from(piece.bytes).unwrap_or(i64::MAX);
        changes.extend(piece.begin_ns.map(|begin_ns| (begin_ns, bytes)));
        changes.extend(piece.end_ns.filter(|&end_ns| end_ns <= call.end_ns).map(|end_ns| (end_ns, -bytes)));
    }
    changes.sort_by_key(|&(time_ns, _)| time_ns);
    let (mut now, mut most) = (0_i64, 0_i64);
    for at_once in changes.chunk_by(|a, b| a.0 == b.0) {
        now = at_once.iter().fold(now, |sum, &(_, bytes)| sum.saturating_add(bytes));
        most = most.max(now);
    }
    u64::try_from(most).unwrap_or(0)
}

/// Chooses proposals whose modules are not nested in each other, and returns their changes. The set is built
/// greedily by adding proposals that lower the peak further, once in order of saving and once in order of
/// saving per unit of time; the better result wins. `peak_with` returns the peak, in bytes, after a set of
/// changes.
pub(super) fn best_combination<'a>(
    memory: &Memory<'_>,
    modules: &'a [Proposal],
    peak_with: &mut impl FnMut(&[&'a Change]) -> u64,
) -> Vec<&'a Change> {
    let mut best: Vec<&Proposal> = modules.iter().filter(|found| found.finding.saves_bytes > 0).collect();
    best.sort_by_key(|found| Reverse(found.finding.saves_bytes));
    let (by_bytes, lowest) = add_greedily(memory, &best, peak_with);
    let worth = |found: &Proposal| {
        found.finding.saves_bytes as f64 / found.finding.forward_ns.unwrap_or(0).max(1) as f64
    };
    best.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    let (by_worth, peak) = add_greedily(memory, &best, peak_with);
    if peak <= lowest { by_worth } else { by_bytes }
}

/// Adds the proposals in order and keeps those that lower the peak. Returns their changes and the resulting
/// peak.
fn add_greedily<'a>(
    memory: &Memory<'_>,
    best: &[&'a Proposal],
    peak_with: &mut impl FnMut(&[&'a Change]) -> u64,
) -> (Vec<&'a Change>, u64) {
    let ancestors = |module: ModuleId| {
        std::iter::successors(Some(module), |&module| memory.places.modules[module as usize].parent)
    };
    let is_inside = |a: &Proposal, b: &Proposal| {
        a.modules.iter().any(|&module| ancestors(module).any(|outer| b.modules.contains(&outer)))
    };
    let mut chosen: Vec<&Proposal> = Vec::new();
    let mut changes: Vec<&Change> = Vec::new();
    let mut peak = peak_with(&changes);
    for &found in best.iter().take(MAX_TOGETHER) {
        if chosen.iter().any(|other| is_inside(other, found) || is_inside(found, other)) {
            continue;
        }
        changes.push(&found.change);
        let lower = peak_with(&changes);
        if lower < peak {
            peak = lower;
            chosen.push(found);
        } else {
            changes.pop();
        }
    }
    (changes, peak)
}

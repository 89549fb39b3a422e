//! Determines whether a training step has ended. Before the first step ends, each layer in the first forward pass keeps
//! memory for the backward pass, and this looks like a leak.

use memtrack_blocks::lifetimes::Lifetime;
use memtrack_frames::attribution::Attributor;
use memtrack_frames::framework_operators::Patterns;
use memtrack_frames::torch_stacks::ParsedFrame;
use memtrack_model::Phase;
use memtrack_model::event::{Action, DeviceId, ScopeId, StackId};
use memtrack_model::snapshot::Snapshot;
use memtrack_symbols::Symbolizer;
use std::collections::{HashMap, HashSet};

/// The live memory of forward passes must have reached this share of its maximum before a drop counts as the end of a
/// pass, because a pass's first layers also allocate and free temporary memory.
const MIN_LIVE_SHARE: f64 = 0.25;
/// If forward passes allocated this many times their maximum live memory in total, several passes must have ended.
const MIN_TURNOVER: i128 = 8;
/// A pass has ended once its live memory has dropped to this share of the maximum so far.
const MAX_FALLEN_SHARE: f64 = 0.5;

/// Returns whether the file has a forward pass on `device` but no completed step. If neither scopes nor stacks show a
/// forward pass, the program's steps are unknown, and the result is false. Heaps are not judged, because modules may
/// run there without any training.
pub(super) fn no_step_has_ended(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    device: DeviceId,
    lifetimes: &[Lifetime],
) -> bool {
    if !snapshot.device_kind(device).is_accelerator() {
        return false;
    }
    let mut phases = PhaseCache::of(snapshot);
    let mut runs: Vec<Run> = Vec::new();
    let mut out_of_memory = false;
    for row in snapshot.events.rows_of(device) {
        match snapshot.events.action[row] {
            Action::Alloc => {}
            Action::Oom => {
                out_of_memory = true;
                continue;
            }
            _ => continue,
        }
        out_of_memory = false;
        let (scope, stack) = (snapshot.events.scope[row], snapshot.events.stack[row]);
        // The phase of allocations that have neither a scope nor a stack is unknown.
        if scope.is_none() && stack.is_none() {
            continue;
        }
        let phase = phases.phase(scope, stack, symbols);
        match runs.last_mut() {
            Some(run) if run.phase == phase => run.last = stack,
            _ => runs.push(Run { phase, last: stack }),
        }
    }
    let is = |run: &Run, phase: Phase| run.phase == Some(phase);
    if !runs.iter().any(|run| is(run, Phase::Forward)) {
        return false;
    }
    let step_ended = |pair: &[Run]| match pair[0].phase {
        Some(Phase::Optimizer) => true,
        Some(Phase::Backward) => is(&pair[1], Phase::Forward),
        _ => false,
    };
    if runs.windows(2).any(step_ended) {
        return false;
    }
    // If the same line runs before several passes, the program loops over batches or requests, so earlier passes have
    // ended.
    let mut before = HashSet::new();
    let begins = runs.windows(2).filter(|pair| pair[0].phase.is_none() && is(&pair[1], Phase::Forward));
    if begins.map(|pair| pair[0].last).any(|stack| !before.insert(stack)) {
        return false;
    }
    let is_one_pass = runs.iter().filter(|run| is(run, Phase::Forward)).count() == 1;
    let ended_in_it = out_of_memory && runs.last().is_some_and(|run| is(run, Phase::Forward));
    if is_one_pass && ended_in_it {
        return true;
    }
    !passes_have_ended(snapshot, symbols, &mut phases, lifetimes)
}

/// Consecutive allocations in the same phase.
struct Run {
    phase: Option<Phase>,
    /// The stack of the last of these allocations.
    last: StackId,
}

/// Returns whether the live memory of forward passes dropped and a forward pass allocated again afterwards, or whether
/// forward passes allocated so much more than their maximum live memory that it must have been freed many times.
fn passes_have_ended(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    phases: &mut PhaseCache<'_>,
    lifetimes: &[Lifetime],
) -> bool {
    let mut changes = vec![0i128; snapshot.events.len()];
    let mut allocated = 0i128;
    let mut begins = vec![false; snapshot.events.len()];
    for lifetime in lifetimes {
        let Some(from) = lifetime.from else { continue };
        let phase = phases.phase(snapshot.events.scope[from], lifetime.stack, symbols);
        if phase != Some(Phase::Forward) {
            continue;
        }
        begins[from] = true;
        allocated += i128::from(lifetime.bytes);
        changes[from] += i128::from(lifetime.bytes);
        if let Some(to) = lifetime.to {
            changes[to] -= i128::from(lifetime.bytes);
        }
    }
    let mut held = 0;
    let levels: Vec<i128> = changes
        .iter()
        .map(|change| {
            held += change;
            held
        })
        .collect();
    let most = levels.iter().copied().max().unwrap_or(0);
    if allocated >= MIN_TURNOVER * most {
        return true;
    }
    let (mut so_far, mut fallen) = (0, false);
    for (&level, &begins) in levels.iter().zip(&begins) {
        if fallen && begins {
            return true;
        }
        so_far = so_far.max(level);
        fallen |=
            so_far as f64 >= MIN_LIVE_SHARE * most as f64 && level as f64 <= MAX_FALLEN_SHARE * so_far as f64;
    }
    false
}

/// Caches the phases of events, so that each distinct pair of scope and stack is analyzed only once.
struct PhaseCache<'a> {
    attributor: Attributor<'a>,
    snapshot: &'a Snapshot,
    known: HashMap<(ScopeId, StackId), Option<Phase>, foldhash::fast::RandomState>,
}

impl<'a> PhaseCache<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        static PATTERNS: std::sync::LazyLock<Patterns> = std::sync::LazyLock::new(Patterns::default);
        Self { attributor: Attributor::new(snapshot, &PATTERNS), snapshot, known: HashMap::default() }
    }

    fn phase(&mut self, scope: ScopeId, stack: StackId, symbols: &mut Symbolizer) -> Option<Phase> {
        *self.known.entry((scope, stack)).or_insert_with(|| {
            self.attributor.phase(scope, stack, symbols).or_else(|| {
                // This is a module's method that is called directly, or whose callers are missing from the file.
                let frames = symbols.stack(&self.snapshot.frame_keys(stack));
                let is_forward = frames.iter().any(|frame| {
                    let line = ParsedFrame::of(frame);
                    line.is_python && line.method() == "forward"
                });
                is_forward.then_some(Phase::Forward)
            })
        })
    }
}

//! One tracker's run: what the scopes drive. Operators that end and the root module's ends come in here from every thread
//! and are recorded for each tracker that runs; [`MemoryTracker`](super::MemoryTracker) holds a run and reads it.

use super::TrackerStats;
use crate::event::DeviceId;
use crate::recorder::{DEVICE_SLOTS, ForkCell, Sums, device_of, slot_of, sums};
use crate::scope::{ScopeKind, ScopeNode, ScopeObserver};
use crate::{host, reentry};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Bytes in the tracker's unit.
const MIB: f64 = 1_048_576.0;

/// A marker of one iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// `fw_start` or `fw_bw_boundary`.
    pub name: &'static str,
    /// Counted by `fw_start`, from 0.
    pub iteration: u64,
    /// Index of the next operator.
    pub op_index: u64,
}

/// The data of a tracker, shared with the observer while it runs.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) asked: Option<DeviceId>,
    pub(super) state: Mutex<State>,
}

/// What a run has recorded.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The device, once it is known.
    device: Option<DeviceId>,
    pub(super) stats: TrackerStats,
    /// Sums when the session began: values count from there.
    zero: Vec<Sums>,
    /// Allocated MiB when this tracker started.
    pub(super) first_mib: f64,
    /// How often each operator ran.
    counts: HashMap<&'static str, u64>,
    pub(super) marks: Vec<Mark>,
    iterations: u64,
}

impl Run {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes where the values stand before the first operator.
    pub(super) fn set_first(&self) {
        let mut state = self.state();
        if let Some(device) = self.asked.or_else(|| state.first_accelerator()) {
            state.device = Some(device);
            state.first_mib = state.values(device).0;
        }
    }

    fn operator_finished(&self, node: &'static ScopeNode) {
        let mut state = self.state();
        let device = match state.device {
            Some(device) => device,
            None => {
                let device = state.first_accelerator().unwrap_or(DeviceId::HOST);
                *state.device.insert(device)
            }
        };
        let (allocated, active, reserved) = state.values(device);
        let count = state.counts.entry(node.name).or_default();
        let place = node.place();
        let name = match node.kind {
            ScopeKind::Operator => format!("{}_{count}", place.operator_name().unwrap_or_default()),
            // A backward pass or optimizer step as a whole: where nothing inside is annotated, the only record of it.
            _ => format!("{}.{}_{count}", place.prefix(), node.name),
        };
        *count += 1;
        state.stats.push(&name, allocated, active, reserved);
    }

    fn mark(&self, name: &'static str, begins: bool) {
        let mut state = self.state();
        state.stats.mark(name);
        let iteration = if begins { state.iterations } else { state.iterations.saturating_sub(1) };
        state.iterations += u64::from(begins);
        let op_index = state.stats.op_index;
        state.marks.push(Mark { name, iteration, op_index });
    }
}

impl State {
    /// Nothing recorded yet; values count from the sums `zero`.
    pub(super) fn since(zero: Vec<Sums>) -> Self {
        Self { zero, ..Self::default() }
    }

    /// The first accelerator that has reported anything.
    fn first_accelerator(&self) -> Option<DeviceId> {
        (1..DEVICE_SLOTS)
            .filter(|&slot| device_of(slot).is_accelerator())
            .find(|&slot| sums(slot).since(&self.zero[slot]).recorded > 0)
            .map(device_of)
    }

    /// Allocated, active and reserved MiB of a device since the session began.
    fn values(&self, device: DeviceId) -> (f64, f64, f64) {
        let Some(slot) = slot_of(device) else { return (0.0, 0.0, 0.0) };
        let sums = sums(slot).since(&self.zero[slot]);
        let reserved = if device.is_host() {
            host::resident_bytes_lately() as f64
        } else {
            // A pool that does not report its segments holds at least what is in use.
            sums.reserved().max(sums.active()) as f64
        };
        (sums.allocated() as f64 / MIB, sums.active() as f64 / MIB, reserved / MIB)
    }
}

/// The trackers that run.
pub(super) static TRACKERS: ForkCell<RwLock<Vec<Arc<Run>>>> = ForkCell::new(|| RwLock::new(Vec::new()));

/// In the child of a fork: the trackers stay with the parent.
pub(crate) fn reset_after_fork() {
    TRACKERS.forget();
}

/// Hears from all scopes, for all trackers.
pub(super) struct Observer;

impl Observer {
    fn each(tell: impl Fn(&Run)) {
        let _inside = reentry::enter();
        for run in TRACKERS.get().read().unwrap_or_else(PoisonError::into_inner).iter() {
            tell(run);
        }
    }
}

impl ScopeObserver for Observer {
    fn operator_finished(&self, node: &'static ScopeNode) {
        Self::each(|run| run.operator_finished(node));
    }

    fn root_entered(&self, _node: &'static ScopeNode) {
        Self::each(|run| run.mark("fw_start", true));
    }

    fn root_left(&self, _node: &'static ScopeNode) {
        Self::each(|run| run.mark("fw_bw_boundary", false));
    }
}

//! A tracker's run, driven by scopes. Every thread reports the ends of operators and the starts and ends of the root
//! module to the [`Observer`], which records them for each running tracker. [`MemoryTracker`](super::MemoryTracker)
//! owns a run and reads it.

use super::series::{self, Levels, Series, move_into_larger, to_mib};
use super::{AllocatedPeak, Mark, ReachedPeak, TrackerStats};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_recorder::recorder::{
    DEVICE_SLOTS, ForkCell, Sums, device_of, observed_sums, recent_resident_bytes, slot_of, sums, ticks,
};
use memtrack_recorder::reentry;
use memtrack_recorder::scope::{ScopeNode, ScopeObserver};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The maximum number of markers to keep (2 MiB). The newest ones are kept.
const MAX_MARKS: usize = 1 << 16;

/// The number of different marker names.
const MARKER_NAME_COUNT: usize = 2;

/// A tracker's run. It is shared with the observer while it records.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) device: Option<DeviceId>,
    pub(super) state: Mutex<State>,
}

/// A run's data.
pub(super) struct State {
    /// The device, once it is known.
    device: Option<DeviceId>,
    /// The data, if it was loaded from a file. A recorded run has a series instead.
    pub(super) loaded: Option<TrackerStats>,
    series: Series,
    /// Each device's sums when the session started. Values are relative to them.
    start_sums: Vec<Sums>,
    /// The number of bytes allocated when this tracker started.
    baseline_bytes: i64,
    /// The number of operators that have run, by the ID of their name.
    counts: Vec<u64>,
    marks: VecDeque<Mark>,
    /// The newest marker with each name.
    markers: Vec<(&'static str, u64)>,
    iterations: u64,
    /// The time at which this tracker started, by the recorder's clock.
    start_ticks: u64,
    /// The result of the search for the peak: `None` before the search, and `Some(None)` if no peak was found.
    peak: Option<Option<AllocatedPeak>>,
}

impl Default for State {
    /// Creates the state of a run that is not recording.
    fn default() -> Self {
        Self::starting_at(Vec::new(), 1)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("operators", &self.series.total()).finish_non_exhaustive()
    }
}

impl Run {
    pub(super) fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the values before the first operator.
    pub(super) fn set_baseline(&self) {
        let mut state = self.lock_state();
        if let Some(device) = self.device.or_else(|| state.first_accelerator()) {
            state.device = Some(device);
            state.baseline_bytes = state.current_levels(device).0.allocated;
            let bytes = state.baseline_bytes;
            state.series.set_previous(bytes);
        }
    }

    /// Records an operator if this needs no memory beyond `spare`. Otherwise, fails with the number of chunks in the
    /// series, for which the caller can allocate memory. Afterwards, `spare` contains the memory to be freed.
    fn operator_finished(&self, node: &'static ScopeNode, spare: &mut SpareMemory) -> Result<(), usize> {
        let name = node.name_id() as usize;
        let mut state = self.lock_state();
        if !state.fits(name, spare) {
            return Err(state.series.chunk_count());
        }
        let device = match state.device {
            Some(device) => device,
            None => {
                let device = state.first_accelerator().unwrap_or(DeviceId::HOST);
                *state.device.insert(device)
            }
        };
        let (levels, ticks) = state.current_levels(device);
        if state.counts.len() <= name {
            let known = state.counts.len();
            spare.counts[..known].copy_from_slice(&state.counts);
            std::mem::swap(&mut state.counts, &mut spare.counts);
        }
        let count = state.counts[name];
        state.counts[name] += 1;
        state.series.push(node, count, levels, ticks, &mut spare.series);
        Ok(())
    }

    /// Records an operator that needs memory, allocating it while no lock is held.
    #[cold]
    fn operator_finished_slow(&self, node: &'static ScopeNode, mut chunks: usize) {
        loop {
            let mut spare = SpareMemory::new(node.name_id() as usize, chunks);
            match self.operator_finished(node, &mut spare) {
                Ok(()) => return,
                Err(current) => chunks = current,
            }
        }
    }

    fn mark(&self, name: &'static str, begins_iteration: bool) {
        let mut spare = VecDeque::new();
        let mut state = self.lock_state();
        while state.marks.len() == state.marks.capacity().max(spare.capacity())
            && state.marks.len() < MAX_MARKS
        {
            let marks = state.marks.len();
            drop(state);
            spare = VecDeque::with_capacity((2 * marks).clamp(64, MAX_MARKS));
            state = self.lock_state();
        }
        move_into_larger(&mut state.marks, &mut spare);
        let iteration = if begins_iteration { state.iterations } else { state.iterations.saturating_sub(1) };
        state.iterations += u64::from(begins_iteration);
        let op_index = state.series.total();
        match state.markers.iter_mut().find(|marker| marker.0 == name) {
            Some(marker) => marker.1 = op_index,
            None => state.markers.push((name, op_index)),
        }
        if state.marks.len() >= MAX_MARKS {
            state.marks.pop_front();
        }
        state.marks.push_back(Mark { name, iteration, op_index });
        drop(state);
        drop(spare);
    }

    /// Copies the recorded or loaded data. Names are assembled from the copy later, when no thread is waiting for the
    /// lock.
    pub(super) fn copy(&self) -> RunCopy {
        let mut series = Series::new(1, 0);
        let mut markers = Vec::with_capacity(MARKER_NAME_COUNT);
        // Read `marks` before `markers`, so that none of the marks is newer than the newest marker.
        let marks = self.marks();
        loop {
            let state = self.lock_state();
            if state.series.copy_into(&mut series) {
                markers.extend_from_slice(&state.markers);
                // A loaded run does not record, so no operator waits while its data is cloned.
                let peak = state.peak.clone().flatten();
                return RunCopy { loaded: state.loaded.clone(), series, markers, marks, peak };
            }
            let chunks = state.series.chunk_count();
            drop(state);
            series.reserve_chunks(chunks);
        }
    }

    /// Finds the peak of the tracker's device in the recorded snapshot, unless this has already been done.
    pub(super) fn find_peak(&self, snapshot: &Snapshot) {
        let (device, start_ticks) = {
            let state = self.lock_state();
            match state.device {
                Some(device) if state.peak.is_none() && state.loaded.is_none() => (device, state.start_ticks),
                _ => return,
            }
        };
        // Ignore a peak from before this tracker started.
        let peak = ReachedPeak::of(snapshot, device).filter(|peak| peak.ticks >= start_ticks);
        let copy = self.copy();
        let peak = peak.map(|peak| copy.series.locate_peak(&peak));
        self.lock_state().peak = Some(peak);
    }

    /// Returns the newest markers.
    pub(super) fn marks(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        loop {
            let state = self.lock_state();
            if state.marks.len() <= marks.capacity() {
                marks.extend(state.marks.iter().cloned());
                return marks;
            }
            let count = state.marks.len();
            drop(state);
            marks.reserve(count);
        }
    }
}

/// Preallocated memory for recording an operator.
#[derive(Default)]
struct SpareMemory {
    counts: Vec<u64>,
    series: series::SpareMemory,
}

impl SpareMemory {
    /// Allocates memory for an operator whose name has the ID `name`, in a series of `chunks` chunks.
    fn new(name: usize, chunks: usize) -> Self {
        Self {
            counts: vec![0; (name + 1).next_power_of_two().max(64)],
            series: series::SpareMemory::new(chunks),
        }
    }
}

impl State {
    /// Creates an empty state. Values are relative to `start_sums`, and at least `keep` operators are kept.
    pub(super) fn starting_at(start_sums: Vec<Sums>, keep: u64) -> Self {
        Self {
            device: None,
            loaded: None,
            series: Series::new(keep, 0),
            start_sums,
            baseline_bytes: 0,
            counts: Vec::new(),
            marks: VecDeque::new(),
            markers: Vec::with_capacity(MARKER_NAME_COUNT),
            iterations: 0,
            start_ticks: ticks(),
            peak: None,
        }
    }

    /// Returns whether an operator whose name has the ID `name` can be recorded without memory beyond `spare`.
    fn fits(&self, name: usize, spare: &SpareMemory) -> bool {
        name < self.counts.len().max(spare.counts.len()) && self.series.fits(&spare.series)
    }

    /// Returns the number of MiB allocated when this tracker started.
    pub(super) fn baseline_mib(&self) -> f64 {
        to_mib(self.baseline_bytes)
    }

    /// Returns the first accelerator that has reported events since the session started.
    fn first_accelerator(&self) -> Option<DeviceId> {
        (1..DEVICE_SLOTS)
            .filter(|&slot| device_of(slot).is_accelerator())
            .find(|&slot| sums(slot).since(&self.start_sums[slot]).recorded > 0)
            .map(device_of)
    }

    /// Returns a device's allocated, active and reserved bytes relative to the start of the session, and the time of
    /// these values in ticks.
    fn current_levels(&self, device: DeviceId) -> (Levels, u64) {
        let Some(slot) = slot_of(device) else {
            return (Levels { allocated: 0, active: 0, reserved: 0 }, ticks());
        };
        let sums = observed_sums(slot).since(&self.start_sums[slot]);
        let (allocated, active) = (sums.allocated(), sums.active());
        let (reserved, ticks) = if device.is_host() {
            let (resident, ticks) = recent_resident_bytes();
            (resident as i64, ticks)
        } else {
            // A pool that does not report segments has reserved at least the memory in use.
            (sums.reserved().max(active), ticks())
        };
        (Levels { allocated, active, reserved }, ticks)
    }
}

/// A copy of a run's data.
pub(super) struct RunCopy {
    loaded: Option<TrackerStats>,
    series: Series,
    markers: Vec<(&'static str, u64)>,
    marks: Vec<Mark>,
    peak: Option<AllocatedPeak>,
}

impl RunCopy {
    /// Returns the data with the names of operators.
    pub(super) fn stats(&self) -> TrackerStats {
        self.loaded.clone().unwrap_or_else(|| {
            let mut stats = self.series.stats(&self.markers, &self.marks);
            stats.peak.clone_from(&self.peak);
            stats
        })
    }
}

/// The running trackers.
pub(super) static TRACKERS: ForkCell<RwLock<Vec<Arc<Run>>>> = ForkCell::new(|| RwLock::new(Vec::new()));

/// The observer of scopes for all trackers.
pub(super) struct Observer;

/// Changes the list of trackers. Memory is allocated and freed while the list is unlocked, because threads wait for the
/// lock when operators end.
pub(super) fn change_trackers(change: impl FnOnce(&mut Vec<Arc<Run>>)) {
    let mut list = Vec::new();
    let mut trackers = loop {
        let trackers = TRACKERS.get().write().unwrap_or_else(PoisonError::into_inner);
        let needed = trackers.len() + 1;
        if needed <= list.capacity() {
            break trackers;
        }
        drop(trackers);
        list.reserve(needed);
    };
    list.append(&mut trackers);
    change(&mut list);
    std::mem::swap(&mut *trackers, &mut list);
    drop(trackers);
    drop(list);
}

impl Observer {
    fn for_each_run(visit: impl Fn(&Run)) {
        let _inside = reentry::enter();
        for run in TRACKERS.get().read().unwrap_or_else(PoisonError::into_inner).iter() {
            visit(run);
        }
    }
}

impl ScopeObserver for Observer {
    fn operator_finished(&self, node: &'static ScopeNode) {
        /// The maximum number of trackers whose recording is deferred until the list is unlocked, because it needs
        /// memory. There is usually only one tracker.
        const MAX_DEFERRED: usize = 4;
        let _inside = reentry::enter();
        let mut deferred: [Option<(Arc<Run>, usize)>; MAX_DEFERRED] = [const { None }; MAX_DEFERRED];
        let mut free = deferred.iter_mut();
        let mut spare = SpareMemory::default();
        for run in TRACKERS.get().read().unwrap_or_else(PoisonError::into_inner).iter() {
            let Err(chunks) = run.operator_finished(node, &mut spare) else { continue };
            match free.next() {
                Some(slot) => *slot = Some((Arc::clone(run), chunks)),
                None => run.operator_finished_slow(node, chunks),
            }
        }
        for (run, chunks) in deferred.iter().flatten() {
            run.operator_finished_slow(node, *chunks);
        }
    }

    fn root_entered(&self, _node: &'static ScopeNode) {
        Self::for_each_run(|run| run.mark("fw_start", true));
    }

    fn root_left(&self, _node: &'static ScopeNode) {
        Self::for_each_run(|run| run.mark("fw_bw_boundary", false));
    }
}

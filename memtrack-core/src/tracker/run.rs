//! One tracker's run, driven by the scopes. The ends of operators, and the beginnings and ends of the root
//! module, are reported here by every thread and recorded for each running tracker;
//! [`MemoryTracker`](super::MemoryTracker) holds a run and reads it.

use super::series::{self, Levels, Series, grow, mib};
use super::{AllocatedPeak, Mark, ReachedPeak, TrackerStats};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_recorder::recorder::{
    DEVICE_SLOTS, ForkCell, Sums, device_of, observed_sums, slot_of, sums, ticks,
};
use memtrack_recorder::scope::{ScopeNode, ScopeObserver};
use memtrack_recorder::{host, reentry};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The number of newest markers that are kept: 2 MiB.
const MAX_MARKS: usize = 1 << 16;

/// The number of markers with different names.
const MARKER_NAMES: usize = 2;

/// The data of a tracker, shared with the observer while it runs.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) device: Option<DeviceId>,
    pub(super) state: Mutex<State>,
}

/// The data of a run.
pub(super) struct State {
    /// The device, once it is known.
    device: Option<DeviceId>,
    /// The data read from a file; a run that records has a series.
    pub(super) loaded: Option<TrackerStats>,
    series: Series,
    /// The sums when the session began, which are subtracted from values.
    zero: Vec<Sums>,
    /// Allocated bytes when this tracker started.
    first_bytes: i64,
    /// The number of operators of each name that ran, by the name's number.
    counts: Vec<u64>,
    marks: VecDeque<Mark>,
    /// The newest marker of each name.
    markers: Vec<(&'static str, u64)>,
    iterations: u64,
    /// The start of this tracker, by the recorder's clock.
    start_ticks: u64,
    /// The peak, once it has been searched for in a recording.
    peak: Option<Option<AllocatedPeak>>,
}

impl Default for State {
    /// Returns the state of a run that does not record.
    fn default() -> Self {
        Self::since(Vec::new(), 1)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("operators", &self.series.total()).finish_non_exhaustive()
    }
}

impl Run {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the values before the first operator.
    pub(super) fn set_first(&self) {
        let mut state = self.state();
        if let Some(device) = self.device.or_else(|| state.first_accelerator()) {
            state.device = Some(device);
            state.first_bytes = state.levels(device).0.allocated;
            let first = state.first_bytes;
            state.series.set_before(first);
        }
    }

    /// Records an operator, if that needs no memory other than `room`; otherwise returns the number of
    /// chunks. Memory to be freed is in `room` afterwards.
    fn operator_finished(&self, node: &'static ScopeNode, room: &mut Room) -> Result<(), usize> {
        let name = node.name_id() as usize;
        let mut state = self.state();
        if !state.fits(name, room) {
            return Err(state.series.chunk_count());
        }
        let device = match state.device {
            Some(device) => device,
            None => {
                let device = state.first_accelerator().unwrap_or(DeviceId::HOST);
                *state.device.insert(device)
            }
        };
        let (levels, ticks) = state.levels(device);
        if state.counts.len() <= name {
            let known = state.counts.len();
            room.counts[..known].copy_from_slice(&state.counts);
            std::mem::swap(&mut state.counts, &mut room.counts);
        }
        let count = state.counts[name];
        state.counts[name] += 1;
        state.series.push(node, count, levels, ticks, &mut room.series);
        Ok(())
    }

    /// Records an operator, allocating memory while nothing is locked.
    #[cold]
    fn operator_finished_with_room(&self, node: &'static ScopeNode, mut chunks: usize) {
        loop {
            let mut room = Room::new(node.name_id() as usize, chunks);
            match self.operator_finished(node, &mut room) {
                Ok(()) => return,
                Err(now) => chunks = now,
            }
        }
    }

    fn mark(&self, name: &'static str, begins: bool) {
        let mut room = VecDeque::new();
        let mut state = self.state();
        while state.marks.len() == state.marks.capacity().max(room.capacity())
            && state.marks.len() < MAX_MARKS
        {
            let marks = state.marks.len();
            drop(state);
            room = VecDeque::with_capacity((2 * marks).clamp(64, MAX_MARKS));
            state = self.state();
        }
        grow(&mut state.marks, &mut room);
        let iteration = if begins { state.iterations } else { state.iterations.saturating_sub(1) };
        state.iterations += u64::from(begins);
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
        drop(room);
    }

    /// Copies the recorded or loaded data; names are assembled later, when no thread waits for the run.
    pub(super) fn copy(&self) -> Recorded {
        let mut series = Series::new(1, 0);
        let mut markers = Vec::with_capacity(MARKER_NAMES);
        // Read before the markers, which are the newest of these or newer.
        let marks = self.marks();
        loop {
            let state = self.state();
            if state.series.copy_into(&mut series) {
                markers.extend_from_slice(&state.markers);
                // A loaded one does not run.
                let peak = state.peak.clone().flatten();
                return Recorded { loaded: state.loaded.clone(), series, markers, marks, peak };
            }
            let chunks = state.series.chunk_count();
            drop(state);
            series.make_room(chunks);
        }
    }

    /// Finds the peak of this tracker's device in the recorded snapshot, unless it was found before.
    pub(super) fn find_peak(&self, snapshot: &Snapshot) {
        let (device, start_ticks) = {
            let state = self.state();
            match state.device {
                Some(device) if state.peak.is_none() && state.loaded.is_none() => (device, state.start_ticks),
                _ => return,
            }
        };
        // A peak from before this tracker started does not count.
        let peak = ReachedPeak::of(snapshot, device).filter(|peak| peak.ticks >= start_ticks);
        let copy = self.copy();
        let peak = peak.map(|peak| copy.series.placed(&peak));
        self.state().peak = Some(peak);
    }

    /// Returns the newest markers.
    pub(super) fn marks(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        loop {
            let state = self.state();
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

/// Memory for the records of an operator's end.
#[derive(Default)]
struct Room {
    counts: Vec<u64>,
    series: series::Room,
}

impl Room {
    /// Allocates memory for an operator whose name has that number, after this many chunks of others.
    fn new(name: usize, chunks: usize) -> Self {
        Self { counts: vec![0; (name + 1).next_power_of_two().max(64)], series: series::Room::new(chunks) }
    }
}

impl State {
    /// Returns a state with nothing recorded; values are relative to the sums `zero`, and at least `keep`
    /// operators are kept.
    pub(super) fn since(zero: Vec<Sums>, keep: u64) -> Self {
        Self {
            device: None,
            loaded: None,
            series: Series::new(keep, 0),
            zero,
            first_bytes: 0,
            counts: Vec::new(),
            marks: VecDeque::new(),
            markers: Vec::with_capacity(MARKER_NAMES),
            iterations: 0,
            start_ticks: ticks(),
            peak: None,
        }
    }

    /// Returns whether an operator whose name has that number needs no memory other than `room`.
    fn fits(&self, name: usize, room: &Room) -> bool {
        name < self.counts.len().max(room.counts.len()) && self.series.fits(&room.series)
    }

    /// Returns the allocated MiB when this tracker started.
    pub(super) fn first_mib(&self) -> f64 {
        mib(self.first_bytes)
    }

    /// Returns the first accelerator that has reported anything.
    fn first_accelerator(&self) -> Option<DeviceId> {
        (1..DEVICE_SLOTS)
            .filter(|&slot| device_of(slot).is_accelerator())
            .find(|&slot| sums(slot).since(&self.zero[slot]).recorded > 0)
            .map(device_of)
    }

    /// Returns the allocated, active and reserved bytes of a device since the session began, and their time
    /// in ticks.
    fn levels(&self, device: DeviceId) -> (Levels, u64) {
        let Some(slot) = slot_of(device) else {
            return (Levels { allocated: 0, active: 0, reserved: 0 }, ticks());
        };
        let sums = observed_sums(slot).since(&self.zero[slot]);
        let (allocated, active) = (sums.allocated(), sums.active());
        let (reserved, ticks) = if device.is_host() {
            let (resident, ticks) = host::recent_resident_bytes();
            (resident as i64, ticks)
        } else {
            // A pool that does not report its segments holds at least the memory in use.
            (sums.reserved().max(active), ticks())
        };
        (Levels { allocated, active, reserved }, ticks)
    }
}

/// A copy of a run's data.
pub(super) struct Recorded {
    loaded: Option<TrackerStats>,
    series: Series,
    markers: Vec<(&'static str, u64)>,
    marks: Vec<Mark>,
    peak: Option<AllocatedPeak>,
}

impl Recorded {
    /// Returns the data with the operators' names.
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

/// The observer of all scopes, for all trackers.
pub(super) struct Observer;

/// Changes the list of trackers. Memory is allocated and freed while it is not locked, because operators that
/// end wait for it.
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
    fn each(visit: impl Fn(&Run)) {
        let _inside = reentry::enter();
        for run in TRACKERS.get().read().unwrap_or_else(PoisonError::into_inner).iter() {
            visit(run);
        }
    }
}

impl ScopeObserver for Observer {
    fn operator_finished(&self, node: &'static ScopeNode) {
        /// The maximum number of trackers handled together that need room: usually there is one.
        const MAX_LATE: usize = 4;
        let _inside = reentry::enter();
        let mut late: [Option<(Arc<Run>, usize)>; MAX_LATE] = [const { None }; MAX_LATE];
        let mut free = late.iter_mut();
        let mut room = Room::default();
        for run in TRACKERS.get().read().unwrap_or_else(PoisonError::into_inner).iter() {
            let Err(chunks) = run.operator_finished(node, &mut room) else { continue };
            match free.next() {
                Some(place) => *place = Some((Arc::clone(run), chunks)),
                None => run.operator_finished_with_room(node, chunks),
            }
        }
        for (run, chunks) in late.iter().flatten() {
            run.operator_finished_with_room(node, *chunks);
        }
    }

    fn root_entered(&self, _node: &'static ScopeNode) {
        Self::each(|run| run.mark("fw_start", true));
    }

    fn root_left(&self, _node: &'static ScopeNode) {
        Self::each(|run| run.mark("fw_bw_boundary", false));
    }
}

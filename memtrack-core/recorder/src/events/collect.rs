//! Takes a [`Snapshot`] of the recorder's state, even while threads continue to record. The snapshot is exact for one
//! moment `T`: the collector waits for hooks stamped up to `T` before it reads the live table and again before it reads
//! the events, and it restores blocks freed between `T` and the reading from their free events. Only the sums of bytes
//! and blocks are slightly newer if threads continue to record.

use super::barrier::wait_for_hooks;
use super::chunk::Chunk;
use super::merge::Run;
use super::resident_reading::read_pages;
use super::thread_names;
use super::threads::{self, DEVICE_SLOTS, device_of};
use super::totals::Sums;
use super::{Options, Recorder, binaries, marks, merge, operators, scope_sums};
use crate::{clock, settings};
use crate::{host, reentry, scope, shared_memory, tasks};
use memtrack_model::event::{Action, Event, EventFlags};
use memtrack_model::snapshot::{
    Clock, DeviceStatistics, DriverReading, EventTable, Folded, LiveBlock, Meta, Sampling, Segment, Snapshot,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The clock and the sums at the beginning of a session.
#[derive(Clone, Copy)]
pub(crate) struct Baseline {
    pub(crate) clock: (u64, u64),
    pub(crate) sums: [Sums; DEVICE_SLOTS],
}

impl Baseline {
    /// Returns the current sums and clock reading.
    pub(crate) fn now() -> Self {
        Self { clock: clock::reading(), sums: std::array::from_fn(threads::sums) }
    }
}

/// Returns the head of a recording made with `options`.
pub(crate) fn meta(options: &Options, complete: bool) -> Meta {
    Meta {
        program: std::env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
        pid: std::process::id(),
        memtrack_version: env!("CARGO_PKG_VERSION").to_owned(),
        sample_threshold_bytes: options.sample_threshold_bytes,
        sample_mean_bytes: options.sample_mean_bytes,
        sample_block_bytes: host::sample_block_bytes(options.budget_share()),
        budget: options.budget_share(),
        max_entries: options.ring_entries(),
        context: options.context.name().to_owned(),
        complete,
        earlier_parts: 0,
    }
}

/// Returns the head of the recording of another process, which `memtrack run` writes.
pub fn meta_of_process(options: &Options, program: &str, pid: u32) -> Meta {
    Meta { program: program.to_owned(), pid, ..meta(options, false) }
}

/// What to do with the ring's events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RingEvents {
    /// Copy them to the snapshot; they stay in the ring.
    Copy,
    /// Move them to the snapshot.
    Take,
    /// Omit them; they stay in the ring.
    Omit,
}

impl Recorder {
    /// Returns everything recorded since `baseline`. If this is the `last` snapshot of the session, moves the events
    /// out of the ring, so that a chunk and its copy need not exist at the same time.
    pub(crate) fn snapshot(&self, options: &Options, baseline: &Baseline, last: bool) -> Snapshot {
        self.collect(options, baseline, if last { RingEvents::Take } else { RingEvents::Copy })
    }

    /// Returns a snapshot of the memory that is live now, without events. This takes little memory and time.
    pub(crate) fn snapshot_without_events(&self, options: &Options, baseline: &Baseline) -> Snapshot {
        self.collect(options, baseline, RingEvents::Omit)
    }

    fn collect(&self, options: &Options, baseline: &Baseline, ring_events: RingEvents) -> Snapshot {
        let _inside = reentry::enter();
        // Read first, because the snapshot's tables take memory.
        let is_last = ring_events == RingEvents::Take;
        let resident = if is_last && options.wants_host_heap() { read_pages() } else { None };
        self.store().keeps_all = true;
        if settings::skips_any() {
            settings::write_all(true);
            // From here on, hooks write every event.
            wait_for_hooks();
        }
        // The newest stamp may be ahead of the clock.
        let moment = clock::ticks().max(self.live.newest_ticks());
        wait_for_hooks();
        let since = settings::start_ticks();
        let sums: [Sums; DEVICE_SLOTS] =
            std::array::from_fn(|slot| threads::sums(slot).since(&baseline.sums[slot]));
        let counted_peak = super::counted_peak::so_far(moment);
        let scope_sums = scope_sums::all();
        let mut blocks = self.live.blocks();
        let mut segments = self.segments.between(since, moment);
        wait_for_hooks();
        let operators = if ring_events == RingEvents::Omit { Default::default() } else { operators::all() };
        let marks = marks::between(since, moment);
        let tasks = tasks::until(moment);
        let mut devices = Vec::new();
        let mut runs = Vec::new();
        for (slot, sums) in sums.iter().enumerate() {
            let (chunks, evicted) = self.chunks_of(slot, ring_events == RingEvents::Take);
            let (before, after): (Vec<_>, Vec<_>) =
                chunks.into_iter().map(|chunk| Run::split(chunk, since, moment)).unzip();
            let mut before: Vec<Run> = before.into_iter().flatten().collect();
            let after: Vec<Run> = after.into_iter().flatten().collect();
            restore_freed_blocks(&mut blocks, &before, &after);
            restore_freed_segments(&mut segments, &after);
            if settings::skips_any() {
                before = before.into_iter().filter_map(Run::without_unwanted).collect();
            }
            let held: u64 = before.iter().map(Run::len).sum();
            let kept = if ring_events == RingEvents::Omit { 0 } else { held.min(options.ring_entries()) };
            devices.extend(statistics(slot, sums, kept, evicted + (held - kept)));
            if kept > 0 {
                runs.push((before, kept));
            }
        }
        self.store().keeps_all = false;
        settings::write_all(false);
        let events = table(runs, options.ring_entries());
        blocks.retain(|block| block.ticks >= since && block.ticks <= moment);
        blocks.sort_by_key(|block| block.ticks);
        segments.sort_by_key(|segment| (segment.device, segment.address));
        let mut snapshot = Snapshot {
            meta: meta(options, true),
            clock: Clock { first: baseline.clock, last: clock::reading() },
            modules: binaries::loaded(),
            // These tables are read last, so that they contain every id in the events.
            stacks: self.stacks.table(),
            scopes: scope::table(),
            threads: thread_names::threads(),
            events,
            blocks,
            segments,
            devices,
            scope_sums: Some(scope_sums),
            driver: self.driver_readings(),
            sampling: sampling(options, &sums),
            counted_peak,
            folded: self.folded(),
            operators,
            marks,
            resident: resident.into_iter().collect(),
            tasks,
            ..Snapshot::default()
        };
        snapshot.remove_superseded();
        snapshot
    }

    /// Returns how many rows of each kind did not fit into their tables.
    pub(super) fn folded(&self) -> Folded {
        #[cfg(feature = "cuda")]
        let [driver_allocations, driver_bytes] = self.driver.omitted();
        #[cfg(not(feature = "cuda"))]
        let [driver_allocations, driver_bytes] = [0; 2];
        Folded {
            stacks: self.stacks.omitted(),
            threads: thread_names::unnamed(),
            blocks: self.live.untracked(),
            driver_allocations,
            driver_bytes,
        }
    }

    /// Returns the readings of the CUDA driver.
    pub(super) fn driver_readings(&self) -> Vec<DriverReading> {
        #[cfg(feature = "cuda")]
        return self.readings.all();
        #[cfg(not(feature = "cuda"))]
        Vec::new()
    }

    /// Returns the chunks of a device, from the ring and from the threads, and the number of events that the ring has
    /// dropped. Removes the ring's chunks from it if `take` is set.
    #[allow(unsafe_code)]
    fn chunks_of(&self, slot: usize, take: bool) -> (Vec<Arc<Chunk<Event>>>, u64) {
        let mut chunks = Vec::new();
        let mut store = loop {
            let store = self.store();
            // Threads get new chunks only while the store is locked.
            let count = store.rings[slot].chunk_count() + threads::states().count();
            if count <= chunks.capacity() {
                break store;
            }
            // Capacity is reserved while the store is not locked.
            drop(store);
            chunks.reserve(count + count / 8);
        };
        let ring = &mut store.rings[slot];
        let evicted = ring.evicted();
        match take {
            true => chunks.extend(ring.take()),
            false => chunks.extend(ring.chunks()),
        }
        // Chunks in shared memory are read by the command.
        let is_shared = shared_memory::is_connected();
        for state in threads::states().filter(|_| !is_shared) {
            // SAFETY: the store is locked.
            chunks.extend(unsafe { threads::chunk_in(&state.chunks[slot]) });
        }
        (chunks, evicted)
    }
}

/// Returns the newest events of all devices, in merge order. `runs` contains, for each device, its events and the
/// number of events to return.
fn table(mut runs: Vec<(Vec<Run>, u64)>, max_entries: u64) -> EventTable {
    let kept = runs.iter().map(|(_, kept)| kept).sum::<u64>() as usize;
    let mut table = EventTable::with_capacity(kept);
    if runs.len() <= 1 {
        if let Some((runs, _)) = runs.pop() {
            merge::newest(runs, max_entries, |events| table.extend_recorded(events));
        }
        return table;
    }
    let mut all = Vec::with_capacity(kept);
    for (runs, _) in runs {
        merge::newest(runs, max_entries, |events| all.extend_from_slice(events));
    }
    all.sort_by_key(|event| (event.ticks, event.thread));
    table.extend_recorded(&all);
    table
}

/// Restores the blocks that were live at the snapshot's moment and freed before the live table was read. These are the
/// blocks whose first event in `after`, which contains the later events, is a free. All runs belong to one device and
/// are unordered.
fn restore_freed_blocks(blocks: &mut Vec<LiveBlock>, before: &[Run], after: &[Run]) {
    let mut after: Vec<Event> = after.iter().flat_map(Run::events).collect();
    after.sort_by_key(|event| event.ticks);
    let mut first: HashMap<u64, Event> = HashMap::new();
    for event in after {
        if matches!(
            event.action,
            Action::Alloc | Action::Free | Action::FreeCompleted | Action::FreeRequested
        ) {
            first.entry(event.address).or_insert(event);
        }
    }
    first
        .retain(|_, event| event.action != Action::Alloc && !event.flags.contains(EventFlags::UNKNOWN_BLOCK));
    let Some(device) = first.values().next().map(|event| event.device) else { return };
    // The newest allocation at each address; if the ring has dropped it, the fields of the free are used.
    let mut allocs: HashMap<u64, Event> = HashMap::new();
    let is_freed = |event: &Event| event.action == Action::Alloc && first.contains_key(&event.address);
    for alloc in before.iter().flat_map(Run::events).filter(is_freed) {
        let newest = allocs.entry(alloc.address).or_insert(alloc);
        if newest.ticks < alloc.ticks {
            *newest = alloc;
        }
    }
    // Blocks that the live table contains at these addresses were allocated after the snapshot's moment.
    blocks.retain(|block| block.device != device || !first.contains_key(&block.address));
    blocks.extend(first.values().map(|event| {
        let alloc = allocs.get(&event.address);
        LiveBlock {
            stack: alloc.unwrap_or(event).stack,
            scope: alloc.unwrap_or(event).scope,
            ticks: alloc.map_or(settings::start_ticks(), |alloc| alloc.ticks),
            pending_free: event.action == Action::FreeCompleted,
            ..LiveBlock::of_recorded(event)
        }
    }));
}

/// Restores the segments that existed at the snapshot's moment and were freed before the segments were read.
fn restore_freed_segments(segments: &mut Vec<Segment>, after: &[Run]) {
    let mut after: Vec<Event> = after.iter().flat_map(Run::events).collect();
    after.sort_by_key(|event| event.ticks);
    let mut seen: HashSet<_> = segments.iter().map(|segment| (segment.device, segment.address)).collect();
    for event in after {
        let ends = matches!(event.action, Action::SegmentFree | Action::SegmentUnmap);
        let begins = matches!(event.action, Action::SegmentAlloc | Action::SegmentMap);
        let is_first = (ends || begins) && seen.insert((event.device, event.address));
        if is_first && ends {
            let is_expandable = event.action == Action::SegmentUnmap;
            let ticks = settings::start_ticks();
            segments.push(Segment { ticks, is_expandable, ..Segment::of_allocation(&event) });
        }
    }
}

/// Returns how the host's small blocks were sampled; `None` if the options allow no sampling.
fn sampling(options: &Options, sums: &[Sums; DEVICE_SLOTS]) -> Option<Sampling> {
    options.samples_host_heap().then(|| {
        let Sampling { unrecorded_blocks, unrecorded_bytes, .. } = sums[0].unrecorded();
        Sampling { unrecorded_blocks, unrecorded_bytes, ..host::sampling_so_far() }
    })
}

/// Returns the counts of a device, or `None` if it has no events.
fn statistics(slot: usize, sums: &Sums, kept: u64, dropped: u64) -> Option<DeviceStatistics> {
    let counts =
        statistics_of(slot, sums, kept, if slot == 0 { super::resident::resident_bytes() } else { 0 })?;
    Some(DeviceStatistics { recorded: kept + dropped, dropped, ..counts })
}

/// Returns the counts of a device slot, or `None` if the device has no events. The recording contains `kept` of its
/// events. The reserved bytes of the host heap are the process's `resident_bytes`.
pub fn statistics_of(slot: usize, sums: &Sums, kept: u64, resident_bytes: u64) -> Option<DeviceStatistics> {
    if *sums == Sums::default() && kept == 0 {
        return None;
    }
    let device = device_of(slot);
    let reserved_bytes = if device.is_host() { resident_bytes } else { sums.reserved().max(0) as u64 };
    let recorded = sums.recorded.max(kept);
    Some(DeviceStatistics {
        device,
        recorded,
        dropped: recorded - kept,
        allocated_bytes: sums.allocated_bytes,
        freed_bytes: sums.freed_bytes,
        allocations: sums.allocations,
        frees: sums.frees,
        reserved_bytes,
        counted: true,
    })
}

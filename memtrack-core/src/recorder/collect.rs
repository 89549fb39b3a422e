//! Makes a [`Snapshot`] of what the recorder holds, also while threads go on recording. The snapshot is exact at one
//! moment `T`: hooks stamped up to `T` are waited for before the live table is read and again before the events are,
//! and what was freed between `T` and the reading is put back from its free event.

use super::threads::{self, DEVICE_SLOTS, device_of, wait_for_hooks};
use super::totals::Sums;
use super::{Options, Recorder, clock, ring, settings};
use crate::event::{Action, Event, EventFlags};
use crate::snapshot::{Clock, DeviceStatistics, EventTable, LiveBlock, Meta, Segment, Snapshot};
use crate::{reentry, scope};
use std::collections::HashSet;
use std::sync::PoisonError;

/// What a session remembers of its beginning.
#[derive(Clone, Copy)]
pub(crate) struct Baseline {
    pub(crate) clock: (u64, u64),
    pub(crate) sums: [Sums; DEVICE_SLOTS],
}

impl Baseline {
    /// The sums and the clock now.
    pub(crate) fn now() -> Self {
        Self { clock: clock::reading(), sums: std::array::from_fn(threads::sums) }
    }
}

/// The head of a recording made with `options`.
pub(crate) fn meta(options: &Options, complete: bool) -> Meta {
    Meta {
        program: std::env::current_exe().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
        pid: std::process::id(),
        memtrack_version: env!("CARGO_PKG_VERSION").to_owned(),
        sample_threshold_bytes: options.sample_threshold_bytes,
        sample_mean_bytes: options.sample_mean_bytes,
        max_entries: options.ring_entries(),
        context: options.context.name().to_owned(),
        complete,
    }
}

impl Recorder {
    /// Everything recorded since `baseline`, as of now.
    pub(crate) fn snapshot(&self, options: &Options, baseline: &Baseline) -> Snapshot {
        let _inside = reentry::enter();
        self.store().held = true;
        let moment = clock::ticks();
        wait_for_hooks();
        let since = settings::start_ticks();
        let sums: [Sums; DEVICE_SLOTS] =
            std::array::from_fn(|slot| threads::sums(slot).since(&baseline.sums[slot]));
        let mut blocks = self.live.blocks();
        wait_for_hooks();
        let mut devices = Vec::new();
        let mut events = Vec::new();
        for (slot, sums) in sums.iter().enumerate() {
            let recorded = self.events_of(slot, since);
            let missing = sums.recorded.saturating_sub(recorded.len() as u64);
            let (before, after): (Vec<_>, Vec<_>) =
                recorded.into_iter().partition(|event| event.ticks <= moment);
            put_back_freed_after(&mut blocks, &before, after);
            let held = before.len();
            let newest = ring::newest(before, options.ring_entries());
            let dropped = missing + (held - newest.len()) as u64;
            devices.extend(statistics(slot, sums, newest.len() as u64, dropped));
            events.extend(newest);
        }
        self.store().held = false;
        // Of different devices: merged as they happened.
        events.sort_by_key(|event| (event.ticks, event.thread));
        let mut table = EventTable::default();
        for event in &events {
            table.push(event);
        }
        blocks.retain(|block| block.ticks >= since && block.ticks <= moment);
        blocks.sort_by_key(|block| block.ticks);
        Snapshot {
            meta: meta(options, true),
            clock: Clock { first: baseline.clock, last: clock::reading() },
            modules: crate::stack::modules::loaded_modules(),
            // These are read last, so that they hold every id the events name.
            stacks: self.stacks.table(),
            scopes: scope::table(),
            threads: threads::threads(),
            events: table,
            blocks,
            segments: self.segments_since(since),
            devices,
            ..Snapshot::default()
        }
    }

    fn segments_since(&self, since: u64) -> Vec<Segment> {
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        let mut segments: Vec<_> =
            segments.values().filter(|segment| segment.ticks >= since).copied().collect();
        segments.sort_by_key(|segment| (segment.device, segment.address));
        segments
    }

    /// All events of a device the ring and the threads' chunks hold.
    #[allow(unsafe_code)]
    fn events_of(&self, slot: usize, since: u64) -> Vec<Event> {
        let store = self.store();
        let full: Vec<_> = store.rings[slot].chunks().collect();
        let mut events: Vec<Event> = Vec::new();
        for state in threads::states() {
            let chunk = state.slots[slot].chunk.load(std::sync::atomic::Ordering::Acquire);
            // SAFETY: a thread takes a chunk out of its slot only under the store's lock, which is held here.
            if let Some(chunk) = unsafe { chunk.as_ref() } {
                events.extend(chunk.iter().filter(|event| event.ticks >= since));
            }
        }
        drop(store);
        for chunk in full {
            events.extend(chunk.iter().filter(|event| event.ticks >= since));
        }
        events
    }
}

/// Puts the blocks back that were live at the snapshot's moment and freed before the live table was read: those whose
/// first event `after` the moment is a free.
fn put_back_freed_after(blocks: &mut Vec<LiveBlock>, before: &[Event], mut after: Vec<Event>) {
    after.sort_by_key(|event| event.ticks);
    let mut seen = HashSet::new();
    for event in after {
        let first = matches!(
            event.action,
            Action::Alloc | Action::Free | Action::FreeCompleted | Action::FreeRequested
        ) && seen.insert(event.address);
        let known = !event.flags.contains(EventFlags::UNKNOWN_BLOCK);
        if !first || event.action == Action::Alloc || !known {
            continue;
        }
        let is_its_alloc = |alloc: &&Event| alloc.address == event.address && alloc.action == Action::Alloc;
        // Its allocation may have left the ring; then the free tells what it knows.
        let alloc = before.iter().rev().find(is_its_alloc);
        let place =
            blocks.iter().position(|block| block.address == event.address && block.device == event.device);
        let block = LiveBlock {
            device: event.device,
            address: event.address,
            size_bytes: event.size_bytes,
            stream: event.stream,
            stack: alloc.unwrap_or(&event).stack,
            scope: alloc.unwrap_or(&event).scope,
            ticks: alloc.map_or(settings::start_ticks(), |alloc| alloc.ticks),
            flags: event.flags,
            pending_free: event.action == Action::FreeCompleted,
        };
        match place {
            Some(place) => blocks[place] = block,
            None => blocks.push(block),
        }
    }
}

/// The counts of a device; none for one that was never heard of.
fn statistics(slot: usize, sums: &Sums, kept: u64, dropped: u64) -> Option<DeviceStatistics> {
    if *sums == Sums::default() && kept == 0 {
        return None;
    }
    let device = device_of(slot);
    let reserved_bytes =
        if device.is_host() { crate::host::resident_bytes() } else { sums.reserved().max(0) as u64 };
    Some(DeviceStatistics {
        device,
        recorded: kept + dropped,
        dropped,
        allocated_bytes: sums.allocated_bytes,
        freed_bytes: sums.freed_bytes,
        allocations: sums.allocations,
        frees: sums.frees,
        reserved_bytes,
    })
}

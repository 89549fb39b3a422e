//! Merges all processes of a run into one snapshot with one clock. Two processes can have different memory at the same
//! address, so the number of the process times 2^48 is added to the addresses of blocks, stacks and binaries. A
//! program's own addresses are smaller than 2^48.

use memtrack_model::event::{Action, DeviceId, Event, ScopeId, StackId, TaskId, ThreadId};
use memtrack_model::snapshot::{
    DeviceStatistics, DriverReading, Marks, ProcessEnd, ProcessRow, ReadingMoment, Sampling, ScopeSums,
    Snapshot, main_process,
};
use std::collections::BTreeMap;

/// Merges the snapshots of processes. A single snapshot is returned unchanged.
///
/// When a process ends, its remaining blocks are freed: for each of them, a free is added to the merged events.
pub fn merge(mut snapshots: Vec<(ProcessRow, Snapshot)>) -> Snapshot {
    if snapshots.len() == 1
        && let Some((_, snapshot)) = snapshots.pop()
    {
        return snapshot;
    }
    let rows: Vec<ProcessRow> = snapshots.iter().map(|(row, _)| row.clone()).collect();
    let main = main_process(&rows);
    let mut all = Merged::default();
    for (row, snapshot) in snapshots {
        all.add(&row, snapshot, Some(row.number) == main);
    }
    all.finish()
}

#[derive(Default)]
struct Merged {
    snapshot: Snapshot,
    is_begun: bool,
    devices: BTreeMap<DeviceId, DeviceStatistics>,
    driver: BTreeMap<(DeviceId, ReadingMoment), DriverReading>,
    /// Whether all processes that were added have sums of their scopes.
    has_scope_sums: bool,
    scope_sums: ScopeSums,
}

/// The numbers that are added to the ids and addresses of a process.
struct Offsets {
    address: u64,
    stack: u32,
    scope: u32,
    thread: u32,
}

impl Offsets {
    fn address(&self, address: &mut u64) {
        *address = address.wrapping_add(self.address);
    }

    fn stack(&self, stack: &mut StackId) {
        if !stack.is_none() {
            stack.0 = stack.0.saturating_add(self.stack);
        }
    }

    fn scope(&self, scope: &mut ScopeId) {
        if !scope.is_none() {
            scope.0 = scope.0.saturating_add(self.scope);
        }
    }

    fn thread(&self, thread: &mut ThreadId) {
        if !thread.is_none() {
            thread.0 = thread.0.saturating_add(self.thread);
        }
    }
}

impl Merged {
    fn add(&mut self, row: &ProcessRow, mut from: Snapshot, is_main: bool) {
        let to = &mut self.snapshot;
        let offsets = Offsets {
            address: u64::from(row.number) << 48,
            stack: (to.stacks.len() - 1) as u32,
            scope: (to.scopes.rows.len() - 1) as u32,
            thread: to.threads.len().saturating_sub(1) as u32,
        };
        if row.end != ProcessEnd::Running {
            free_all(&mut from, row.ended_ticks);
        }
        move_ids(&mut from, &offsets);
        to.clock = if self.is_begun { to.clock.spanning(from.clock) } else { from.clock };
        let complete = from.meta.complete && (to.meta.complete || !self.is_begun);
        let earlier_parts = from.meta.earlier_parts.max(to.meta.earlier_parts);
        if is_main || !self.is_begun {
            to.meta = from.meta;
        }
        (to.meta.complete, to.meta.earlier_parts) = (complete, earlier_parts);
        to.modules.append(&mut from.modules);
        for stack in 1..from.stacks.len() {
            // If the table is full, the remaining stacks are left empty.
            let addresses = from.stacks.get(StackId(stack as u32));
            let fits = to.stacks.addresses.len() + addresses.len() <= u32::MAX as usize;
            to.stacks.push(if fits { addresses } else { &[] });
        }
        let names = std::mem::take(&mut from.names.frames).into_iter();
        to.names
            .frames
            .extend(names.map(|(address, frames)| (address.wrapping_add(offsets.address), frames)));
        to.scopes.rows.extend(from.scopes.rows.drain(1..));
        let skipped = usize::from(!to.threads.is_empty()).min(from.threads.len());
        to.threads.extend(from.threads.drain(skipped..));
        // A run records no tasks; in other files, tasks of different processes could not be told apart.
        from.events.tasks.clear();
        from.blocks.iter_mut().for_each(|block| block.task = TaskId::NONE);
        to.events.append(std::mem::take(&mut from.events));
        to.blocks.append(&mut from.blocks);
        to.segments.append(&mut from.segments);
        add_marks(&mut to.marks, &from.marks);
        add_sampling(&mut to.sampling, from.sampling);
        let (all, one) = (&mut to.folded, from.folded);
        all.stacks = all.stacks.saturating_add(one.stacks);
        all.threads = all.threads.saturating_add(one.threads);
        all.blocks = all.blocks.saturating_add(one.blocks);
        all.driver_allocations = all.driver_allocations.saturating_add(one.driver_allocations);
        all.driver_bytes = all.driver_bytes.saturating_add(one.driver_bytes);
        for counts in &from.devices {
            add_counts(
                self.devices.entry(counts.device).or_insert(DeviceStatistics::of(counts.device)),
                counts,
            );
        }
        for reading in from.driver {
            let newest = self.driver.entry((reading.device, reading.moment)).or_insert(reading);
            if reading.ticks > newest.ticks {
                *newest = reading;
            }
        }
        self.has_scope_sums = from.scope_sums.is_some() && (self.has_scope_sums || !self.is_begun);
        if let Some(sums) = from.scope_sums {
            self.scope_sums.ticks = self.scope_sums.ticks.max(sums.ticks);
            self.scope_sums.folded = self.scope_sums.folded.saturating_add(sums.folded);
            self.scope_sums.rows.extend(sums.rows);
        }
        self.is_begun = true;
    }

    fn finish(self) -> Snapshot {
        let mut snapshot = self.snapshot;
        snapshot.events.sort_by_ticks();
        snapshot.marks.rows.sort_by_key(|mark| mark.ticks);
        snapshot.devices = self.devices.into_values().collect();
        snapshot.driver = self.driver.into_values().collect();
        snapshot.scope_sums = self.has_scope_sums.then(|| {
            let mut sums = self.scope_sums;
            sums.rows.sort_unstable();
            // Allocations outside all scopes have the same scope id in all processes, so their rows are added up.
            sums.rows.dedup_by(|later, kept| {
                let is_same = (later.device, later.scope) == (kept.device, kept.scope);
                if is_same {
                    kept.allocated_bytes = kept.allocated_bytes.saturating_add(later.allocated_bytes);
                    kept.allocations = kept.allocations.saturating_add(later.allocations);
                }
                is_same
            });
            sums
        });
        snapshot
    }
}

/// Frees everything that a process held when it ended.
fn free_all(from: &mut Snapshot, ended_ticks: u64) {
    let last = from.events.ticks.iter().copied().max().unwrap_or(0);
    let ticks = ended_ticks.max(last);
    let free = |action, allocation: Event| Event {
        ticks,
        action,
        stack: StackId::NONE,
        scope: ScopeId::NONE,
        ..allocation
    };
    for block in from.blocks.drain(..) {
        let action = if block.pending_free { Action::FreeCompleted } else { Action::Free };
        from.events.push(&free(action, block.allocation()));
    }
    for segment in from.segments.drain(..) {
        let action = if segment.is_expandable { Action::SegmentUnmap } else { Action::SegmentFree };
        from.events.push(&free(action, segment.allocation()));
    }
    for counts in &mut from.devices {
        counts.reserved_bytes = 0;
        if counts.counted {
            (counts.freed_bytes, counts.frees) = (counts.allocated_bytes, counts.allocations);
        }
    }
}

fn move_ids(from: &mut Snapshot, offsets: &Offsets) {
    for module in &mut from.modules {
        offsets.address(&mut module.bias);
        offsets.address(&mut module.start);
        offsets.address(&mut module.end);
    }
    from.stacks.addresses.iter_mut().for_each(|address| offsets.address(address));
    from.scopes.rows.iter_mut().for_each(|scope| offsets.scope(&mut scope.parent));
    let events = &mut from.events;
    events.address.iter_mut().for_each(|address| offsets.address(address));
    events.stack.iter_mut().for_each(|stack| offsets.stack(stack));
    events.scope.iter_mut().for_each(|scope| offsets.scope(scope));
    events.thread.iter_mut().for_each(|thread| offsets.thread(thread));
    for block in &mut from.blocks {
        offsets.address(&mut block.address);
        offsets.stack(&mut block.stack);
        offsets.scope(&mut block.scope);
    }
    for segment in &mut from.segments {
        offsets.address(&mut segment.address);
        offsets.stack(&mut segment.stack);
    }
    from.marks.rows.iter_mut().for_each(|mark| offsets.thread(&mut mark.thread));
    if let Some(sums) = &mut from.scope_sums {
        sums.rows.iter_mut().for_each(|row| offsets.scope(&mut row.scope));
    }
}

fn add_marks(to: &mut Marks, from: &Marks) {
    to.left_out = to.left_out.saturating_add(from.left_out);
    for mark in &from.rows {
        to.push(mark.ticks, mark.thread, from.name(mark));
    }
}

fn add_sampling(to: &mut Option<Sampling>, from: Option<Sampling>) {
    let (Some(all), Some(one)) = (to.as_mut(), from) else {
        *to = to.or(from);
        return;
    };
    all.unrecorded_blocks = all.unrecorded_blocks.saturating_add(one.unrecorded_blocks);
    all.unrecorded_bytes = all.unrecorded_bytes.saturating_add(one.unrecorded_bytes);
    all.widest_interval_bytes = all.widest_interval_bytes.max(one.widest_interval_bytes);
    all.cpu_seconds += one.cpu_seconds;
    all.exact_seconds += one.exact_seconds;
    all.spent_seconds += one.spent_seconds;
}

fn add_counts(to: &mut DeviceStatistics, from: &DeviceStatistics) {
    to.recorded = to.recorded.saturating_add(from.recorded);
    to.dropped = to.dropped.saturating_add(from.dropped);
    to.allocated_bytes = to.allocated_bytes.wrapping_add(from.allocated_bytes);
    to.freed_bytes = to.freed_bytes.wrapping_add(from.freed_bytes);
    to.allocations = to.allocations.saturating_add(from.allocations);
    to.frees = to.frees.saturating_add(from.frees);
    to.reserved_bytes = to.reserved_bytes.saturating_add(from.reserved_bytes);
    to.counted &= from.counted;
}

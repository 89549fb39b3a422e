//! Records one event: takes the stack (`hook_stacks`) and the scope, updates the live table and the sums, and appends one
//! fixed-size row to the thread's chunk (`filling`). This is the hot path: no symbols, no formatting, and no locks except the
//! lock of the address's shard and, once per chunk, the lock of the ring.
//!
//! **Why are three paths written out instead of sharing a closure?** The data of a hook stays in registers:
//! `HookContext` is `Copy` and passed by value, and the guard around it needs no address to be dropped. When the
//! context went through memory, words that had just been written one by one were read two at a time, which delayed each
//! event: 138 instead of 125 ns.

use super::current_thread::{CurrentThread, InHook};
use super::live::{InsertResult, LiveEntry};
use super::same_memory::is_copy;
use super::threads::slot_of;
use super::{RECORDER, Recorder};
use crate::probes;
use crate::settings;
use crate::stack::capture::Registers;
use crate::stack::separate_stack;
use crate::{reentry, scope, switch};
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

/// A guard for the calling thread inside a hook. While the guard exists, the thread's allocations are not recorded.
pub struct Hook {
    context: HookContext,
    // Dropped in this order: the thread is marked idle before its allocations may be recorded again.
    _thread: InHook,
    _inside: reentry::ReentryGuard,
}

/// The context of a hook's work. It is passed by value: in memory, words that were just written one by one and are then
/// read two at a time would delay every event by about five nanoseconds.
#[derive(Clone, Copy)]
pub struct HookContext {
    pub(crate) thread: CurrentThread,
    /// The recorder.
    pub recorder: &'static Recorder,
    /// The registers of the function that entered the hook. Stacks begin in this function's frame, which exists until the
    /// hook is left.
    pub(super) registers: Registers,
}

impl Deref for Hook {
    type Target = HookContext;

    #[inline(always)]
    fn deref(&self) -> &HookContext {
        &self.context
    }
}

impl Hook {
    /// Enters a hook, unless recording is off or the thread is inside a hook already.
    #[inline(always)]
    pub fn enter() -> Option<Self> {
        if !switch::is_on(switch::EVENTS) || reentry::is_inside() {
            return None;
        }
        // Checked before the thread's state is used, because the system has zeroed the state in a copy.
        if is_copy() {
            return stop_in_copy();
        }
        let hook = Self::enter_unconditionally(Registers::here());
        // Checked again, now that the thread is marked active for collectors: after `stop` no event may begin.
        switch::is_on(switch::EVENTS).then_some(hook)
    }

    /// Enters a hook even if nothing is recorded. The thread must not be inside a hook; `registers` are the caller's.
    #[inline(always)]
    pub(crate) fn enter_unconditionally(registers: Registers) -> Self {
        let inside = reentry::enter();
        let (active, thread) = InHook::enter();
        let recorder = RECORDER.get();
        Self { context: HookContext { thread, recorder, registers }, _thread: active, _inside: inside }
    }
}

/// Turns recording off in a copy of the process for which no fork handler was called: the tables belong to the original
/// process, as do the threads that may have held their locks.
#[cold]
fn stop_in_copy() -> Option<Hook> {
    const STOPPED: u32 = switch::EVENTS | switch::HOST | switch::OPERATORS;
    STOPPED_IN_COPY.fetch_or(switch::all() & STOPPED, Ordering::Relaxed);
    switch::set(STOPPED, false);
    None
}

/// The switches that [`stop_in_copy`] turned off.
static STOPPED_IN_COPY: AtomicU32 = AtomicU32::new(0);

/// Turns recording on again in a forked child if it was turned off because another library's fork handler, called before
/// memtrack's, allocated memory.
pub(super) fn resume_after_fork() {
    switch::set(STOPPED_IN_COPY.swap(0, Ordering::Relaxed), true);
}

impl HookContext {
    /// Runs the work of a hook: on the thread's stack if that has room, otherwise on one of memtrack's separate stacks.
    #[inline(always)]
    pub(crate) fn with_room<R>(self, work: impl FnOnce() -> R) -> R {
        if self.has_room() { work() } else { separate_stack::run(work) }
    }

    /// Returns whether the thread's stack has room for the work of a hook.
    #[inline(always)]
    fn has_room(self) -> bool {
        self.thread.has_room(self.registers.stack_pointer())
    }

    /// Returns whether the thread's stack has this many bytes left.
    pub(super) fn has_stack(self, bytes: u64) -> bool {
        self.thread.local().bounds.has_below(self.registers.stack_pointer(), bytes)
    }

    // The three functions that nearly all events pass through write out their call twice instead of sharing a closure:
    // a closure used in two places would be called, not inlined, in both.

    /// Records an allocation. Returns whether it was recorded: if the live table has no room, small blocks of the
    /// heap are only counted.
    #[inline(always)]
    pub(crate) fn alloc(
        self,
        device: DeviceId,
        stream: StreamId,
        address: u64,
        size_bytes: u64,
        flags: EventFlags,
    ) -> bool {
        if self.has_room() {
            self.alloc_here(device, stream, address, size_bytes, flags)
        } else {
            separate_stack::run(move || self.alloc_here(device, stream, address, size_bytes, flags))
        }
    }

    #[inline(always)]
    fn alloc_here(
        self,
        device: DeviceId,
        stream: StreamId,
        address: u64,
        size_bytes: u64,
        flags: EventFlags,
    ) -> bool {
        let stack = self.stack(settings::blocks_have_stacks());
        self.insert_block(device, stream, address, size_bytes, flags, stack, scope::current_id())
    }

    /// Records an allocation with this stack and scope, instead of the thread's current ones.
    pub(crate) fn alloc_for(
        self,
        device: DeviceId,
        stream: StreamId,
        address: u64,
        size_bytes: u64,
        stack: StackId,
        scope: ScopeId,
    ) {
        let flags = EventFlags::default();
        self.with_room(move || self.insert_block(device, stream, address, size_bytes, flags, stack, scope));
    }

    /// Records that addresses were mapped whose pages become memory on demand, with this stack and scope or with the thread's
    /// current ones. They are in the live table, but are no block: the command finds out which pages are memory.
    pub(crate) fn begin_addresses(
        self,
        device: DeviceId,
        address: u64,
        size_bytes: u64,
        origin: Option<(StackId, ScopeId)>,
    ) {
        self.with_room(move || {
            let Some(slot) = slot_of(device) else { return };
            let current = || (self.stack(settings::blocks_have_stacks()), scope::current_id());
            let (stack, scope) = origin.unwrap_or_else(current);
            let (stream, flags) = (StreamId::default(), EventFlags::default());
            let block = LiveEntry { ticks: 0, size_bytes, stream, stack, scope, flags, pending_free: false };
            let newest = &self.thread.local().newest_ticks;
            let InsertResult { ticks, is_tracked, .. } =
                self.recorder.live.insert(device, address, block, newest);
            if is_tracked {
                let (thread, action) = (self.thread.thread_id(), Action::SegmentMap);
                let event =
                    Event { ticks, address, size_bytes, stream, stack, scope, thread, device, action, flags };
                self.event(slot, event);
            }
        });
    }

    /// Records that addresses of [`Self::begin_addresses`] are about to be unmapped.
    pub(crate) fn end_addresses(self, freed: FreeInProgress) {
        self.with_room(|| {
            let (Some(slot), Some(block)) = (slot_of(freed.device), freed.block) else { return };
            let event = free_event(freed.device, freed.address, freed.ticks, &block, freed.stack);
            self.event(slot, Event { action: Action::SegmentUnmap, ..event });
        });
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "a structure would go through memory, on the hot path")]
    fn insert_block(
        self,
        device: DeviceId,
        stream: StreamId,
        address: u64,
        size_bytes: u64,
        flags: EventFlags,
        stack: StackId,
        scope: ScopeId,
    ) -> bool {
        let Some(slot) = slot_of(device) else {
            self.recorder.note_omitted_device(device);
            return false;
        };
        let block = LiveEntry { ticks: 0, size_bytes, stream, stack, scope, flags, pending_free: false };
        let newest = &self.thread.local().newest_ticks;
        let InsertResult { ticks, replaced, is_tracked } =
            self.recorder.live.insert(device, address, block, newest);
        let totals = self.thread.state.totals(slot);
        if !is_tracked && device.is_host() && size_bytes < settings::sample_threshold_bytes() {
            totals.count_alloc(size_bytes);
            return false;
        }
        if let Some(old) = replaced {
            // The old block must have been freed, since its address was allocated again.
            self.count_end(slot, free_event(device, address, ticks - 1, &old, StackId::NONE), &old);
        }
        totals.count_alloc(size_bytes);
        totals.count_tracked(size_bytes);
        self.thread.state.mark_device_used(slot);
        let stack = if settings::allocations_have_stacks() { stack } else { StackId::NONE };
        let action = Action::Alloc;
        let thread = self.thread.thread_id();
        self.event(
            slot,
            Event { ticks, address, size_bytes, stream, stack, scope, thread, device, action, flags },
        );
        true
    }

    /// Records that a block is about to be freed. Returns the argument for [`Self::finish_free`] or
    /// [`Self::restore_block`].
    #[inline(always)]
    pub(crate) fn begin_free(self, device: DeviceId, address: u64) -> FreeInProgress {
        if self.has_room() {
            self.begin_free_here(device, address)
        } else {
            separate_stack::run(move || self.begin_free_here(device, address))
        }
    }

    #[inline(always)]
    fn begin_free_here(self, device: DeviceId, address: u64) -> FreeInProgress {
        let stack = self.stack(settings::frees_have_separate_stacks());
        let newest = &self.thread.local().newest_ticks;
        let (ticks, block) = self.recorder.live.remove(device, address, newest);
        FreeInProgress { device, address, ticks, stack, block }
    }

    /// Completes the record of a free. The other arguments are used if the live table did not contain the block: the
    /// block's `size_bytes` and `stream` according to the caller, and whether this free `completes` one that was
    /// requested earlier.
    #[inline(always)]
    pub(crate) fn finish_free(
        self,
        freed: FreeInProgress,
        size_bytes: u64,
        stream: StreamId,
        completes: bool,
    ) {
        if self.has_room() {
            self.finish_free_here(&freed, size_bytes, stream, completes);
        } else {
            separate_stack::run(|| self.finish_free_here(&freed, size_bytes, stream, completes));
        }
    }

    #[inline(always)]
    fn finish_free_here(self, freed: &FreeInProgress, size_bytes: u64, stream: StreamId, completes: bool) {
        let Some(slot) = slot_of(freed.device) else { return };
        let known = freed.block.unwrap_or(LiveEntry {
            ticks: 0,
            size_bytes,
            stream,
            stack: StackId::NONE,
            scope: scope::current_id(),
            flags: EventFlags::UNKNOWN_BLOCK,
            pending_free: completes,
        });
        self.count_end(
            slot,
            free_event(freed.device, freed.address, freed.ticks, &known, freed.stack),
            &known,
        );
    }

    /// Counts the end of a block, and writes its event: a free, or the completion of a free that was requested
    /// earlier.
    #[inline(always)]
    pub(super) fn count_end(self, slot: usize, mut event: Event, block: &LiveEntry) {
        let totals = self.thread.state.totals(slot);
        if block.pending_free {
            totals.count_completed(block.size_bytes);
            event.action = Action::FreeCompleted;
        } else {
            totals.count_free(block.size_bytes);
        }
        self.event(slot, event);
    }

    /// Restores a block whose free failed.
    #[cold]
    pub(crate) fn restore_block(self, freed: FreeInProgress) {
        if let Some(block) = freed.block {
            self.recorder.live.restore(freed.device, freed.address, block);
            self.fire_restored(freed.device, freed.address, &block);
        }
    }

    /// Fires the probe of an allocation again for a block whose free has fired and failed.
    pub(super) fn fire_restored(self, device: DeviceId, address: u64, block: &LiveEntry) {
        if probes::are_watched() {
            let event = free_event(device, address, block.ticks, block, StackId::NONE);
            let block_bytes = self.thread.state.countdown.block_bytes();
            probes::fire(&Event { action: Action::Alloc, ..event }, block_bytes);
        }
    }

    /// Records that the client freed the block while other streams may still use it.
    pub(crate) fn free_requested(self, device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
        self.with_room(move || {
            let Some(slot) = slot_of(device) else { return self.recorder.note_omitted_device(device) };
            let stack = self.stack(settings::frees_have_separate_stacks());
            let newest = &self.thread.local().newest_ticks;
            let (ticks, block) =
                self.recorder.live.update(device, address, newest, |block| block.pending_free = true);
            if block.is_some_and(|block| block.pending_free) {
                return;
            }
            let flags = EventFlags::UNKNOWN_BLOCK;
            let scope = scope::current_id();
            let unknown = LiveEntry {
                ticks,
                size_bytes,
                stream,
                stack: StackId::NONE,
                scope,
                flags,
                pending_free: false,
            };
            let known = block.unwrap_or(unknown);
            let totals = self.thread.state.totals(slot);
            totals.count_free(known.size_bytes);
            totals.count_pending(known.size_bytes);
            let event = free_event(device, address, ticks, &known, stack);
            self.event(slot, Event { action: Action::FreeRequested, ..event });
        })
    }

    /// Records an event that changes no block: an event of a segment, or out of memory.
    pub(crate) fn record_without_block(
        self,
        action: Action,
        device: DeviceId,
        stream: StreamId,
        address: u64,
        size_bytes: u64,
    ) {
        self.with_room(move || {
            let Some(slot) = slot_of(device) else { return self.recorder.note_omitted_device(device) };
            if self.is_reported_by_driver(action, device, address, size_bytes) {
                return;
            }
            let stack = self.stack(settings::events_have_stacks());
            let newest = &self.thread.local().newest_ticks;
            // Segments are not in the live table, but its shards also order the events of segments. So this call
            // changes no entry and is made only for the stamp that it returns.
            let (ticks, _) = self.recorder.live.update(device, address, newest, |_| ());
            let totals = self.thread.state.totals(slot);
            match action {
                Action::SegmentAlloc | Action::SegmentMap => totals.count_segment(size_bytes),
                Action::SegmentFree | Action::SegmentUnmap => totals.count_segment_free(size_bytes),
                _ => {}
            }
            let (scope, thread) = (scope::current_id(), self.thread.thread_id());
            let flags = EventFlags::default();
            let event =
                Event { ticks, address, size_bytes, stream, stack, scope, thread, device, action, flags };
            self.recorder.segments.apply(&event);
            self.event(slot, event);
        })
    }
}

/// A free in progress: it has a stamp, and its block was removed from the table, but its event is not written yet.
pub struct FreeInProgress {
    device: DeviceId,
    address: u64,
    ticks: u64,
    stack: StackId,
    block: Option<LiveEntry>,
}

impl FreeInProgress {
    /// Returns whether the block was in the live table.
    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.block.is_some()
    }

    /// Returns the stack and the scope of the block, if it was in the live table.
    pub(crate) fn origin(&self) -> Option<(StackId, ScopeId)> {
        self.block.map(|block| (block.stack, block.scope))
    }

    /// Returns the block's address.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the block's size in the live table, if the block was there.
    #[inline(always)]
    pub(crate) fn known_bytes(&self) -> Option<u64> {
        self.block.map(|block| block.size_bytes)
    }
}

/// Returns the event that records the free of a block. By default the event has the stack of the allocation, as with PyTorch's
/// context `alloc`.
#[inline(always)]
pub(super) fn free_event(
    device: DeviceId,
    address: u64,
    ticks: u64,
    block: &LiveEntry,
    separate_stack: StackId,
) -> Event {
    let stack = if settings::frees_have_separate_stacks() {
        separate_stack
    } else if settings::events_have_stacks() {
        block.stack
    } else {
        StackId::NONE
    };
    Event {
        ticks,
        address,
        size_bytes: block.size_bytes,
        stream: block.stream,
        stack,
        scope: scope::current_id(),
        thread: Default::default(),
        device,
        action: Action::Free,
        flags: block.flags,
    }
}

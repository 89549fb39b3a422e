//! Records one event: stack, scope, live table with its stamp, sums, and one fixed-size row in the thread's chunk.
//! This is the hot path: no symbols, no formatting, no locks except the address's shard and, once a chunk, the
//! ring's.
//!
//! **Why are three paths written out instead of sharing a closure?** The data of a hook stays in registers:
//! `Inside` is `Copy` and passed on by value, and the guard around it needs no address to be dropped. When it
//! went through memory, words that had just been written one by one were read two at a time, which delayed each
//! event: 138 instead of 125 ns.
#![allow(unsafe_code)]

use super::chunk::Chunk;
use super::current_thread::{CurrentThread, InHook};
use super::kits::{self, Kit};
use super::live::{Inserted, Live};
use super::ring::CHUNK_EVENTS;
use super::threads::{Slot, slot_of};
use super::{RECORDER, Recorder, settings};
use crate::signals::CancellationBlocked;
use crate::stack::capture::{Registers, StackBounds, learn_binaries_of, relocate};
use crate::stack::{intern, separate_stack};
use crate::{reentry, scope, switch};
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, StackId, StreamId};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first chunk a thread fills is small; each further one is twice as large, up to [`CHUNK_EVENTS`].
pub(super) const FIRST_CHUNK_EVENTS: u32 = 32;

/// At most so many unknown binaries are learned for one stack.
const MAX_NEW_BINARIES: u32 = 8;

/// The bound on the capacity of all chunks being filled (12 MiB), apart from the first small ones: however many
/// threads have been busy once, the memory of their half-empty chunks stays bounded.
pub(super) const MAX_BEING_FILLED: u64 = 1 << 18;

/// Returns the capacity of the chunk after one of `before` events, given the capacity of all that are `being_filled`.
fn next_capacity(before: u32, being_filled: &AtomicU64) -> u32 {
    let all = being_filled.load(Ordering::Relaxed).saturating_sub(u64::from(before));
    let wanted = (before * 2).clamp(FIRST_CHUNK_EVENTS, CHUNK_EVENTS);
    let next = if all + u64::from(wanted) > MAX_BEING_FILLED { FIRST_CHUNK_EVENTS } else { wanted };
    being_filled.fetch_add(u64::from(next).wrapping_sub(u64::from(before)), Ordering::Relaxed);
    next
}

/// The calling thread inside a hook. While it lives, the thread's own allocations are not recorded.
pub struct Hook {
    inside: Inside,
    // Dropped in this order: the thread is marked idle before it may be recorded again.
    _thread: InHook,
    _inside: reentry::ReentryGuard,
}

/// The context of a hook's work. Passed by value: a value with an address is moved through memory, where words that
/// were just written one by one and are read two at a time delay every event by some five nanoseconds.
#[derive(Clone, Copy)]
pub struct Inside {
    pub(crate) thread: CurrentThread,
    /// The recorder.
    pub recorder: &'static Recorder,
    /// The frame of the function that entered, which lives until the hook is left: stacks begin there.
    registers: Registers,
}

impl Deref for Hook {
    type Target = Inside;

    #[inline(always)]
    fn deref(&self) -> &Inside {
        &self.inside
    }
}

impl Hook {
    /// Enters a hook, unless recording is off or the thread is inside a hook already.
    #[inline(always)]
    pub fn enter() -> Option<Self> {
        if !switch::is_on(switch::EVENTS) || reentry::is_inside() {
            return None;
        }
        let hook = Self::enter_anyway(Registers::here());
        if !hook.recorder.same_memory.is_here() {
            return stop_in_copy();
        }
        // Checked again, now that a collector can see that this thread is active: after `stop` no event may begin.
        switch::is_on(switch::EVENTS).then_some(hook)
    }

    /// Enters a hook, whether anything is recorded or not. The thread is not inside a hook; `registers` are the
    /// caller's.
    #[inline(always)]
    pub(crate) fn enter_anyway(registers: Registers) -> Self {
        let inside = reentry::enter();
        let (active, thread) = InHook::enter();
        let recorder = RECORDER.get();
        Self { inside: Inside { thread, recorder, registers }, _thread: active, _inside: inside }
    }
}

/// Turns recording off in a copy of the process that no fork handler has announced: the tables belong to another
/// process, and so do the threads that may have held their locks.
#[cold]
fn stop_in_copy() -> Option<Hook> {
    switch::set(switch::EVENTS | switch::HOST | switch::OPERATORS, false);
    None
}

impl Inside {
    /// Does the work of a hook: on the thread's stack if it has room, otherwise on a separate stack of memtrack.
    #[inline(always)]
    pub(crate) fn with_room<R>(self, work: impl FnOnce() -> R) -> R {
        if self.has_room() { work() } else { separate_stack::run(work) }
    }

    /// Returns whether the thread's stack has room for the work of a hook.
    #[inline(always)]
    fn has_room(self) -> bool {
        self.thread.has_room(self.registers.stack_pointer())
    }

    /// Returns whether the thread's stack has so many bytes left.
    pub(super) fn has_stack(self, bytes: u64) -> bool {
        self.thread.local().bounds.has_below(self.registers.stack_pointer(), bytes)
    }

    /// Returns the calling thread's stack, interned; none if the mode keeps none.
    #[inline(always)]
    pub(crate) fn stack(self, wanted: bool) -> StackId {
        if !wanted {
            return StackId::NONE;
        }
        let own = self.thread.local();
        match &mut own.kit {
            Some(kit) => self.stack_by(kit, &own.bounds),
            None => self.first_stack(),
        }
    }

    /// Takes the thread's first stack, or a stack of a thread that has no kit of its own.
    #[cold]
    fn first_stack(self) -> StackId {
        let own = self.thread.local();
        if self.thread.is_shared() {
            own.kit = None;
        } else {
            own.kit = kits::take();
        }
        match &mut own.kit {
            Some(kit) => self.stack_by(kit, &own.bounds),
            None => kits::with_shared(self.thread.thread().index(), |kit| self.stack_by(kit, &own.bounds)),
        }
    }

    #[inline(always)]
    fn stack_by(self, kit: &mut Kit, bounds: &StackBounds) -> StackId {
        kit.refresh();
        let addresses = settings::without_internal_code(kit.capture.take(&self.registers, bounds));
        let hash = intern::hash(addresses);
        if let Some(stack) = kit.stacks.get(hash) {
            return stack;
        }
        self.new_stack(kit, bounds)
    }

    /// Interns a stack that the thread has not met lately.
    #[cold]
    fn new_stack(self, kit: &mut Kit, bounds: &StackBounds) -> StackId {
        let _no_cancellation = CancellationBlocked::now();
        let mut take = || settings::without_internal_code(kit.capture.take(&self.registers, bounds)).to_vec();
        let mut addresses = take();
        let mut hash = intern::hash(&addresses);
        let stack = self.recorder.stacks.find(hash).unwrap_or_else(|| {
            // Truncated at unknown code: once that is known, the stack continues to the next unknown code.
            for _ in 0..MAX_NEW_BINARIES {
                if !learn_binaries_of(&addresses) {
                    break;
                }
                addresses = take();
            }
            hash = intern::hash(&addresses);
            relocate(&mut addresses);
            self.recorder.stacks.insert(hash, &addresses)
        });
        kit.stacks.put(hash, stack);
        stack
    }

    // The three functions that nearly all events pass through name their work twice instead of passing a closure: a
    // closure used in two places would be called, not inlined, in both of them.

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
        let Some(slot) = slot_of(device) else {
            self.recorder.too_many_devices(device);
            return false;
        };
        let stack = self.stack(settings::blocks_keep_stacks());
        let scope = scope::current_id();
        let block = Live { ticks: 0, size_bytes, stream, stack, scope, flags, pending_free: false };
        let newest = &self.thread.local().newest_ticks;
        let Inserted { ticks, replaced, is_tracked } =
            self.recorder.live.insert(device, address, block, newest);
        let totals = &self.thread.state.slots[slot].totals;
        if !is_tracked && device.is_host() && size_bytes < settings::sample_threshold_bytes() {
            totals.count_alloc(size_bytes);
            return false;
        }
        if let Some(old) = replaced {
            // The old block is gone, or its address could not have been allocated again.
            self.count_end(slot, free_event(device, address, ticks - 1, &old, StackId::NONE), &old);
        }
        totals.count_alloc(size_bytes);
        totals.count_tracked(size_bytes);
        self.thread.state.mark_device_used(slot);
        let stack = if settings::events_keep_stacks() { stack } else { StackId::NONE };
        let action = Action::Alloc;
        let thread = self.thread.thread();
        self.event(
            slot,
            Event { ticks, address, size_bytes, stream, stack, scope, thread, device, action, flags },
        );
        true
    }

    /// Records that a block is about to be freed. Returns the argument for [`Self::freed`] or [`Self::not_freed`].
    #[inline(always)]
    pub(crate) fn free(self, device: DeviceId, address: u64) -> Freed {
        if self.has_room() {
            self.free_here(device, address)
        } else {
            separate_stack::run(move || self.free_here(device, address))
        }
    }

    #[inline(always)]
    fn free_here(self, device: DeviceId, address: u64) -> Freed {
        let stack = self.stack(settings::frees_keep_own_stacks());
        let newest = &self.thread.local().newest_ticks;
        let (ticks, block) = self.recorder.live.remove(device, address, newest);
        Freed { device, address, ticks, stack, block }
    }

    /// Completes the record of a free. `size_bytes` and `stream` are the caller's knowledge of the block;
    /// `completes`: the free completes one that was requested earlier, for a block that is unknown here.
    #[inline(always)]
    pub(crate) fn freed(self, freed: Freed, size_bytes: u64, stream: StreamId, completes: bool) {
        if self.has_room() {
            self.freed_here(&freed, size_bytes, stream, completes);
        } else {
            separate_stack::run(|| self.freed_here(&freed, size_bytes, stream, completes));
        }
    }

    #[inline(always)]
    fn freed_here(self, freed: &Freed, size_bytes: u64, stream: StreamId, completes: bool) {
        let Some(slot) = slot_of(freed.device) else { return };
        let known = freed.block.unwrap_or(Live {
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
    pub(super) fn count_end(self, slot: usize, mut event: Event, block: &Live) {
        let totals = &self.thread.state.slots[slot].totals;
        if block.pending_free {
            totals.count_completed(block.size_bytes);
            event.action = Action::FreeCompleted;
        } else {
            totals.count_free(block.size_bytes);
        }
        self.event(slot, event);
    }

    /// Restores a block whose free failed: it is still allocated.
    #[cold]
    pub(crate) fn not_freed(self, freed: Freed) {
        if let Some(block) = freed.block {
            self.recorder.live.put_back(freed.device, freed.address, block);
        }
    }

    /// Records that the client freed the block, though other streams may still use it.
    pub(crate) fn free_requested(self, device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
        self.with_room(move || {
            let Some(slot) = slot_of(device) else { return self.recorder.too_many_devices(device) };
            let stack = self.stack(settings::frees_keep_own_stacks());
            let newest = &self.thread.local().newest_ticks;
            let (ticks, block) =
                self.recorder.live.update(device, address, newest, |block| block.pending_free = true);
            if block.is_some_and(|block| block.pending_free) {
                return;
            }
            let flags = EventFlags::UNKNOWN_BLOCK;
            let scope = scope::current_id();
            let unknown =
                Live { ticks, size_bytes, stream, stack: StackId::NONE, scope, flags, pending_free: false };
            let known = block.unwrap_or(unknown);
            let totals = &self.thread.state.slots[slot].totals;
            totals.count_free(known.size_bytes);
            totals.count_pending(known.size_bytes);
            let event = free_event(device, address, ticks, &known, stack);
            self.event(slot, Event { action: Action::FreeRequested, ..event });
        })
    }

    /// Records an event that changes no block: segments, out of memory.
    pub(crate) fn other(
        self,
        action: Action,
        device: DeviceId,
        stream: StreamId,
        address: u64,
        size_bytes: u64,
    ) {
        self.with_room(move || {
            let Some(slot) = slot_of(device) else { return self.recorder.too_many_devices(device) };
            if self.is_claimed(action, device, address, size_bytes) {
                return;
            }
            let stack = self.stack(settings::events_keep_stacks());
            let newest = &self.thread.local().newest_ticks;
            // Segments use the same table's shards only for their order: looking an address up stamps it.
            let (ticks, _) = self.recorder.live.update(device, address, newest, |_| ());
            let totals = &self.thread.state.slots[slot].totals;
            match action {
                Action::SegmentAlloc | Action::SegmentMap => totals.count_segment(size_bytes),
                Action::SegmentFree | Action::SegmentUnmap => totals.count_segment_free(size_bytes),
                _ => {}
            }
            let (scope, thread) = (scope::current_id(), self.thread.thread());
            let flags = EventFlags::default();
            let event =
                Event { ticks, address, size_bytes, stream, stack, scope, thread, device, action, flags };
            self.recorder.segments.apply(&event);
            self.event(slot, event);
        })
    }

    /// Appends an event to the thread's chunk.
    #[inline(always)]
    pub(super) fn event(self, slot: usize, mut event: Event) {
        if settings::skips(event.action) {
            return;
        }
        event.thread = self.thread.thread();
        let slot = &self.thread.state.slots[slot];
        slot.totals.count_recorded();
        let chunk = slot.chunk.load(Ordering::Relaxed);
        // SAFETY: a chunk in the slot is alive, since only this thread takes it out (`replace_chunk`), and this thread is
        // the only one that pushes to it.
        let pushed = unsafe { chunk.as_ref().is_some_and(|chunk| chunk.push(event)) };
        if !pushed {
            self.next_chunk(event, slot);
        }
        // A chunk is handed over as soon as it is full, not one event later.
        // SAFETY: as above, and `next_chunk` leaves a chunk in the slot.
        else if unsafe { (*chunk).is_full() } {
            self.replace_chunk(event.device, slot);
        }
    }

    #[cold]
    fn next_chunk(self, event: Event, slot: &Slot) {
        self.replace_chunk(event.device, slot);
        let chunk = slot.chunk.load(Ordering::Relaxed);
        // SAFETY: `replace_chunk` left a fresh chunk in the slot, and this thread is its only writer.
        unsafe { (*chunk).push(event) };
    }

    /// Passes the full chunk to the ring (and the stream) and puts a new one in its place.
    #[cold]
    fn replace_chunk(self, device: DeviceId, slot: &Slot) {
        let _no_cancellation = CancellationBlocked::now();
        let old = slot.chunk.load(Ordering::Relaxed);
        // SAFETY: a pointer in the slot came from `Arc::into_raw` below and is converted back once, here.
        let full = (!old.is_null()).then(|| unsafe { Arc::from_raw(old.cast_const()) });
        let before = full.as_ref().map_or(0, |full| full.capacity());
        let capacity = next_capacity(before, &self.recorder.being_filled);
        let fresh = Arc::into_raw(Arc::new(Chunk::new(capacity))).cast_mut();
        self.recorder.live.tidy();
        self.recorder.take_over(device, full, || slot.chunk.store(fresh, Ordering::Release));
    }
}

/// A free in progress: its stamp is taken, its block removed from the table, its event not written yet.
pub struct Freed {
    device: DeviceId,
    address: u64,
    ticks: u64,
    stack: StackId,
    block: Option<Live>,
}

impl Freed {
    /// Returns whether the block was in the live table.
    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.block.is_some()
    }

    /// Returns the block's address.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the size with which the block was in the live table.
    #[inline(always)]
    pub(crate) fn known_bytes(&self) -> Option<u64> {
        self.block.map(|block| block.size_bytes)
    }
}

/// Returns the event of a block's free; by default with the stack of its allocation, as PyTorch's context `alloc`
/// does.
#[inline(always)]
pub(super) fn free_event(
    device: DeviceId,
    address: u64,
    ticks: u64,
    block: &Live,
    separate_stack: StackId,
) -> Event {
    let stack = if settings::frees_keep_own_stacks() {
        separate_stack
    } else if settings::events_keep_stacks() {
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

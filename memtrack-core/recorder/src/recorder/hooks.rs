//! What happens for one event: stack, scope, live table with its stamp, sums, and one fixed-size row in the thread's
//! chunk. This is the hot path: no symbol, no formatting, no lock but the address's shard and, once a chunk, the ring's.
//!
//! **Why are three paths written out instead of sharing a closure?** What a hook needs stays in registers: `Inside` is
//! `Copy` and passed on by value, and the guard around it needs no address to be dropped. When it went through memory,
//! words that had just been written one by one were read two at a time, which delayed each event: 138 instead of 125 ns.
#![allow(unsafe_code)]

use super::chunk::Chunk;
use super::kits::{self, Kit};
use super::live::{Inserted, Live};
use super::mine::{InHook, Mine};
use super::ring::CHUNK_EVENTS;
use super::threads::{Slot, slot_of};
use super::{RECORDER, Recorder, settings};
use crate::signals::Uncancelled;
use crate::stack::capture::{Registers, StackBounds, learn_binaries_of, set_apart};
use crate::stack::{intern, own_stack};
use crate::{reentry, scope, switch};
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, StackId, StreamId};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The first chunk a thread fills is small; each further one is twice as large, up to [`CHUNK_EVENTS`].
pub(super) const FIRST_CHUNK_EVENTS: u32 = 32;

/// So many binaries that nobody knew are learned for one stack at most.
const MOST_NEW_BINARIES: u32 = 8;

/// All chunks that are being filled hold about so many events at most (12 MiB), beside the first small ones: however many
/// threads have been busy once, what they left half empty stays bounded.
pub(super) const MOST_BEING_FILLED: u64 = 1 << 18;

/// How many events the chunk after one of `before` events takes, beside all that are `being_filled`.
fn next_capacity(before: u32, being_filled: &AtomicU64) -> u32 {
    let all = being_filled.load(Ordering::Relaxed).saturating_sub(u64::from(before));
    let wanted = (before * 2).clamp(FIRST_CHUNK_EVENTS, CHUNK_EVENTS);
    let next = if all + u64::from(wanted) > MOST_BEING_FILLED { FIRST_CHUNK_EVENTS } else { wanted };
    being_filled.fetch_add(u64::from(next).wrapping_sub(u64::from(before)), Ordering::Relaxed);
    next
}

/// The calling thread on its way through a hook. While it lives, the thread's own allocations are not recorded.
pub struct Hook {
    inside: Inside,
    // Dropped in this order: the thread is marked idle before it may be recorded again.
    _thread: InHook,
    _inside: reentry::ReentryGuard,
}

/// What the work of a hook needs. Passed on by value: whatever has an address is moved through memory, where words that
/// were just written one by one and are read two at a time hold up every event for some five nanoseconds.
#[derive(Clone, Copy)]
pub struct Inside {
    pub(crate) thread: Mine,
    /// The recorder.
    pub recorder: &'static Recorder,
    /// Of the function that entered, which stays until the hook is left: where stacks begin.
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
    /// Enters, unless recording is off or the thread is inside a hook already.
    #[inline(always)]
    pub fn enter() -> Option<Self> {
        if !switch::is_on(switch::EVENTS) || reentry::is_inside() {
            return None;
        }
        let hook = Self::enter_anyway(Registers::here());
        if !hook.recorder.same_memory.is_here() {
            return not_here();
        }
        // Once more, now that a collector can see that this thread is active: after `stop` no event may begin.
        switch::is_on(switch::EVENTS).then_some(hook)
    }

    /// Enters, whether anything is recorded or not. The thread is not inside a hook; `registers` are the caller's.
    #[inline(always)]
    pub(crate) fn enter_anyway(registers: Registers) -> Self {
        let inside = reentry::enter();
        let (thread, mine) = InHook::enter();
        let recorder = RECORDER.get();
        Self { inside: Inside { thread: mine, recorder, registers }, _thread: thread, _inside: inside }
    }
}

/// This is a copy of the process that no handler has told of: the tables are those of another, and so are the threads that
/// may have held their locks. Nothing is recorded here.
#[cold]
fn not_here() -> Option<Hook> {
    switch::set(switch::EVENTS | switch::HOST | switch::OPERATORS, false);
    None
}

impl Inside {
    /// Does the work of a hook: on the thread's stack where there is room, else on one of memtrack's own.
    #[inline(always)]
    pub(crate) fn with_room<R>(self, work: impl FnOnce() -> R) -> R {
        if self.has_room() { work() } else { own_stack::run(work) }
    }

    /// Whether the thread's stack has room for the work of a hook.
    #[inline(always)]
    fn has_room(self) -> bool {
        self.thread.has_room(self.registers.stack_pointer())
    }

    /// Whether the thread's stack has so many bytes left.
    pub(super) fn has_stack(self, bytes: u64) -> bool {
        self.thread.own().bounds.has_below(self.registers.stack_pointer(), bytes)
    }

    /// The stack of the calling thread, interned; none where the mode keeps none.
    #[inline(always)]
    pub(crate) fn stack(self, wanted: bool) -> StackId {
        if !wanted {
            return StackId::NONE;
        }
        let own = self.thread.own();
        match &mut own.kit {
            Some(kit) => self.stack_by(kit, &own.bounds),
            None => self.first_stack(),
        }
    }

    /// The thread's first stack, or one of a thread that has no kit of its own.
    #[cold]
    fn first_stack(self) -> StackId {
        let own = self.thread.own();
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
        kit.keep_up();
        let addresses = settings::without_own_code(kit.capture.take(&self.registers, bounds));
        let hash = intern::hash(addresses);
        if let Some(stack) = kit.stacks.get(hash) {
            return stack;
        }
        self.new_stack(kit, bounds)
    }

    /// A stack that the thread has not met lately.
    #[cold]
    fn new_stack(self, kit: &mut Kit, bounds: &StackBounds) -> StackId {
        let _uncancelled = Uncancelled::now();
        let mut take = || settings::without_own_code(kit.capture.take(&self.registers, bounds)).to_vec();
        let mut addresses = take();
        let mut hash = intern::hash(&addresses);
        let stack = self.recorder.stacks.find(hash).unwrap_or_else(|| {
            // Cut short by code that was unknown: once it is known, the stack goes on to the next that is.
            for _ in 0..MOST_NEW_BINARIES {
                if !learn_binaries_of(&addresses) {
                    break;
                }
                addresses = take();
            }
            hash = intern::hash(&addresses);
            set_apart(&mut addresses);
            self.recorder.stacks.insert(hash, &addresses)
        });
        kit.stacks.put(hash, stack);
        stack
    }

    // The three that nearly all events go through name their work twice instead of passing a closure on: one that two
    // places call is a call in both of them.

    /// A block was handed out. Whether it was recorded: where the live table has no room, small blocks of the heap are only
    /// counted.
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
            own_stack::run(move || self.alloc_here(device, stream, address, size_bytes, flags))
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
        let newest = &self.thread.own().newest_ticks;
        let Inserted { ticks, unseen, is_followed } =
            self.recorder.live.insert(device, address, block, newest);
        let totals = &self.thread.state.slots[slot].totals;
        if !is_followed && device.is_host() && size_bytes < settings::sample_threshold_bytes() {
            totals.count_alloc(size_bytes);
            return false;
        }
        if let Some(old) = unseen {
            // The old block is gone, or its address could not have been handed out again.
            self.ended(slot, free_event(device, address, ticks - 1, &old, StackId::NONE), &old);
        }
        totals.count_alloc(size_bytes);
        totals.count_followed(size_bytes);
        self.thread.state.allocates_from(slot);
        let stack = if settings::events_keep_stacks() { stack } else { StackId::NONE };
        let action = Action::Alloc;
        let thread = self.thread.thread();
        self.event(
            slot,
            Event { ticks, address, size_bytes, stream, stack, scope, thread, device, action, flags },
        );
        true
    }

    /// A block is about to be given back. Returns what [`Self::freed`] or [`Self::not_freed`] needs.
    #[inline(always)]
    pub(crate) fn free(self, device: DeviceId, address: u64) -> Freed {
        if self.has_room() {
            self.free_here(device, address)
        } else {
            own_stack::run(move || self.free_here(device, address))
        }
    }

    #[inline(always)]
    fn free_here(self, device: DeviceId, address: u64) -> Freed {
        let stack = self.stack(settings::frees_keep_own_stacks());
        let newest = &self.thread.own().newest_ticks;
        let (ticks, block) = self.recorder.live.remove(device, address, newest);
        Freed { device, address, ticks, stack, block }
    }

    /// The block was given back. `size_bytes` and `stream` are what the caller knows of it.
    /// `completes` says that it completes a free requested earlier, for a block that is not known here.
    #[inline(always)]
    pub(crate) fn freed(self, freed: Freed, size_bytes: u64, stream: StreamId, completes: bool) {
        if self.has_room() {
            self.freed_here(&freed, size_bytes, stream, completes);
        } else {
            own_stack::run(|| self.freed_here(&freed, size_bytes, stream, completes));
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
        self.ended(slot, free_event(freed.device, freed.address, freed.ticks, &known, freed.stack), &known);
    }

    /// Counts the end of a block, and keeps its event: a free, or what completes the free that was requested earlier.
    #[inline(always)]
    pub(super) fn ended(self, slot: usize, mut event: Event, block: &Live) {
        let totals = &self.thread.state.slots[slot].totals;
        if block.pending_free {
            totals.count_completed(block.size_bytes);
            event.action = Action::FreeCompleted;
        } else {
            totals.count_free(block.size_bytes);
        }
        self.event(slot, event);
    }

    /// Giving the block back failed: it is still there.
    #[cold]
    pub(crate) fn not_freed(self, freed: Freed) {
        if let Some(block) = freed.block {
            self.recorder.live.put_back(freed.device, freed.address, block);
        }
    }

    /// The block was given back by its client, but other streams may still use it.
    pub(crate) fn free_requested(self, device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
        self.with_room(move || {
            let Some(slot) = slot_of(device) else { return self.recorder.too_many_devices(device) };
            let stack = self.stack(settings::frees_keep_own_stacks());
            let newest = &self.thread.own().newest_ticks;
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

    /// An event that touches no block: segments, out of memory.
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
            let newest = &self.thread.own().newest_ticks;
            // Segments lie in the same table's shards for their order alone: looking an address up stamps it.
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
            self.recorder.segments.note(&event);
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
        // SAFETY: a chunk in the slot is alive, since only this thread takes it out (`hand_over`), and this thread is
        // the only one that pushes to it.
        let pushed = unsafe { chunk.as_ref().is_some_and(|chunk| chunk.push(event)) };
        if !pushed {
            self.next_chunk(event, slot);
        }
        // A chunk is handed over as soon as it is full, not one event later.
        // SAFETY: as above, and `next_chunk` leaves a chunk in the slot.
        else if unsafe { (*chunk).is_full() } {
            self.hand_over(event.device, slot);
        }
    }

    #[cold]
    fn next_chunk(self, event: Event, slot: &Slot) {
        self.hand_over(event.device, slot);
        let chunk = slot.chunk.load(Ordering::Relaxed);
        // SAFETY: `hand_over` left a fresh chunk in the slot, and this thread is its only writer.
        unsafe { (*chunk).push(event) };
    }

    /// Gives the full chunk to the ring (and the stream) and puts a fresh one in its place.
    #[cold]
    fn hand_over(self, device: DeviceId, slot: &Slot) {
        let _uncancelled = Uncancelled::now();
        let old = slot.chunk.load(Ordering::Relaxed);
        // SAFETY: a pointer in the slot came from `Arc::into_raw` below and is taken back once, here.
        let full = (!old.is_null()).then(|| unsafe { Arc::from_raw(old.cast_const()) });
        let before = full.as_ref().map_or(0, |full| full.capacity());
        let capacity = next_capacity(before, &self.recorder.being_filled);
        let fresh = Arc::into_raw(Arc::new(Chunk::new(capacity))).cast_mut();
        self.recorder.live.tidy();
        self.recorder.take_over(device, full, || slot.chunk.store(fresh, Ordering::Release));
    }
}

/// A free on its way: its stamp is taken, its block out of the table, its event not written yet.
pub struct Freed {
    device: DeviceId,
    address: u64,
    ticks: u64,
    stack: StackId,
    block: Option<Live>,
}

impl Freed {
    /// Whether the block was in the live table.
    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.block.is_some()
    }

    /// The block's address.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The size at which the block was in the live table.
    #[inline(always)]
    pub(crate) fn known_bytes(&self) -> Option<u64> {
        self.block.map(|block| block.size_bytes)
    }
}

/// The event of a block's free; by default with the stack of its allocation, as PyTorch's context `alloc` has it.
#[inline(always)]
pub(super) fn free_event(
    device: DeviceId,
    address: u64,
    ticks: u64,
    block: &Live,
    own_stack: StackId,
) -> Event {
    let stack = if settings::frees_keep_own_stacks() {
        own_stack
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

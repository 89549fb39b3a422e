//! One [`ThreadState`] per recording thread: its chunks, its sums, and the kit it takes stacks with. The states hang on a
//! list that only grows and needs no lock; a thread that ends leaves its state, events included, to the next new thread
//! (`mine`).
#![allow(unsafe_code)]

use super::chunk::Chunk;
use super::kits::Kit;
use super::living;
use super::mine;
use super::scope_sums;
use super::totals::{Sums, Totals};
use crate::host::{Counting, Sampler, high};
use crate::stack::capture::StackBounds;
use crate::switch;
use memtrack_model::event::{DeviceId, Event, ScopeId, ThreadId};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Devices a recorder tells apart: the host heap, ordinals 0 to 30, and pinned host memory.
pub const DEVICE_SLOTS: usize = 33;
const PINNED_SLOT: usize = DEVICE_SLOTS - 1;

/// The slot of a device, `None` for an ordinal above 30.
#[inline(always)]
pub fn slot_of(device: DeviceId) -> Option<usize> {
    if device.is_host() {
        return Some(0);
    }
    if device.is_pinned() {
        return Some(PINNED_SLOT);
    }
    let slot = usize::from(device.0) + 1;
    (slot < PINNED_SLOT).then_some(slot)
}

/// The device of a slot.
pub fn device_of(slot: usize) -> DeviceId {
    match slot {
        0 => DeviceId::HOST,
        PINNED_SLOT => DeviceId::PINNED,
        _ => DeviceId(slot as u16 - 1),
    }
}

/// What a thread keeps per device.
#[repr(C)]
pub(crate) struct Slot {
    pub(crate) totals: Totals,
    /// The chunk being filled; null before the first event. Replaced only by the owner, under the ring's lock.
    pub(crate) chunk: AtomicPtr<Chunk<Event>>,
}

/// What only the owning thread touches.
pub(crate) struct Own {
    /// Where its stack lies.
    pub(crate) bounds: StackBounds,
    /// Since it first kept a stack, unless too many threads have one.
    pub(crate) kit: Option<Kit>,
    pub(crate) sampler: Sampler,
    pub(crate) newest_ticks: Cell<u64>,
}

/// Everything the recorder keeps for one thread. What counting a small block touches comes first: half a cache line, and the
/// sums of the host, the first slot, are the other half.
#[repr(C, align(64))]
pub(crate) struct ThreadState {
    pub(crate) counting: Counting,
    pub(crate) slots: [Slot; DEVICE_SLOTS],
    next: AtomicPtr<ThreadState>,
    pub(super) id: AtomicU32,
    /// Odd while the thread is inside a hook: a collector waits for it to change.
    pub(super) activity: AtomicU64,
    /// The scope that the thread is in: for collectors, who add what it has allocated there.
    scope: AtomicU32,
    /// A bit for each slot but the host's that the thread has allocated from.
    devices: AtomicU64,
    /// What the thread has allocated that is in no account, while accounts were kept: bytes and blocks. Never set back.
    pub(crate) nobodys: [AtomicU64; 2],
    /// Where [`living`] has it.
    pub(super) place: AtomicUsize,
    pub(super) own: UnsafeCell<Option<Own>>,
}

impl ThreadState {
    /// Whether it is the calling thread's.
    pub(super) fn is_mine(&self) -> bool {
        mine::is(self)
    }

    /// The id of the thread that has it, or had it last.
    pub(crate) fn thread(&self) -> ThreadId {
        ThreadId(self.id.load(Ordering::Relaxed))
    }

    /// The thread allocates from that slot's device.
    #[inline(always)]
    pub(crate) fn allocates_from(&self, slot: usize) {
        let bit = 1 << slot;
        if slot != 0 && self.devices.load(Ordering::Relaxed) & bit == 0 {
            self.devices.store(self.devices.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        }
    }

    /// The slots that the thread has allocated from.
    #[inline(always)]
    fn used_slots(&self) -> impl Iterator<Item = usize> {
        let mut others = self.devices.load(Ordering::Relaxed);
        std::iter::once(0).chain(std::iter::from_fn(move || {
            let slot = others.trailing_zeros() as usize;
            others &= others.wrapping_sub(1);
            (slot < DEVICE_SLOTS).then_some(slot)
        }))
    }

    /// The owner goes into another scope: what it allocated so far belongs to the one before.
    #[inline]
    pub(super) fn change_scope(&self, scope: ScopeId) {
        // As a hook does: whoever starts or ends a session, or collects, waits for it. Inside a hook it is marked already.
        let activity = self.activity.load(Ordering::Relaxed);
        let mark = activity.is_multiple_of(2);
        if mark {
            self.activity.store(activity + 1, Ordering::Relaxed);
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        }
        if switch::is_on(switch::SCOPES) {
            // What was written before the switch was turned is seen: the beginning of the sums.
            std::sync::atomic::fence(Ordering::Acquire);
            let before = ScopeId(self.scope.load(Ordering::Relaxed));
            for slot in self.used_slots() {
                let growth = self.slots[slot].totals.growth();
                if growth != [0, 0] {
                    self.slots[slot].totals.told_too(growth);
                    scope_sums::add(slot, before, growth[0], growth[1]);
                }
            }
        }
        self.scope.store(scope.0, Ordering::Relaxed);
        if mark {
            self.activity.store(activity + 2, Ordering::Release);
        }
    }

    /// What the thread has allocated in the scope that it is in now, in bytes and blocks, and in which. Of another thread
    /// that changes its scope all the time, perhaps not quite.
    pub(super) fn growth_in_open_scope(&self) -> Vec<(usize, ScopeId, [u64; 2])> {
        const TRIES: usize = 100;
        let mut growths = Vec::new();
        for _ in 0..TRIES {
            let seen = self.activity.load(Ordering::Acquire);
            let scope = ScopeId(self.scope.load(Ordering::Relaxed));
            growths.clear();
            growths.extend(self.used_slots().map(|slot| (slot, scope, self.slots[slot].totals.growth())));
            std::sync::atomic::fence(Ordering::Acquire);
            if self.activity.load(Ordering::Relaxed) == seen {
                break;
            }
        }
        growths.retain(|(_, _, growth)| *growth != [0, 0]);
        growths
    }

    /// # Safety
    /// The calling thread must own the state, and must not hold another result of this.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn own(&self) -> &mut Own {
        // SAFETY: nobody else touches it (the caller's promise), and whoever made the state owned has filled it.
        unsafe { (*self.own.get()).as_mut().unwrap_unchecked() }
    }
}

// SAFETY: `own` is used only by the thread that the state belongs to (it took it from those that are free, or holds the
// lock of one that is shared); all else is atomic.
unsafe impl Sync for ThreadState {}

static STATES: AtomicPtr<ThreadState> = AtomicPtr::new(std::ptr::null_mut());

/// A new state, which is in the list from now on.
pub(super) fn make() -> &'static ThreadState {
    crate::own::hold(size_of::<ThreadState>());
    let state: &'static ThreadState = Box::leak(Box::new(ThreadState {
        counting: Counting::default(),
        slots: std::array::from_fn(|_| Slot {
            totals: Totals::default(),
            chunk: AtomicPtr::new(std::ptr::null_mut()),
        }),
        next: AtomicPtr::new(std::ptr::null_mut()),
        id: AtomicU32::new(0),
        activity: AtomicU64::new(0),
        scope: AtomicU32::new(0),
        devices: AtomicU64::new(0),
        nobodys: Default::default(),
        place: AtomicUsize::new(0),
        own: UnsafeCell::new(None),
    }));
    let mut head = STATES.load(Ordering::Relaxed);
    loop {
        state.next.store(head, Ordering::Relaxed);
        let mine = std::ptr::from_ref(state).cast_mut();
        match STATES.compare_exchange_weak(head, mine, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return state,
            Err(other) => head = other,
        }
    }
}

/// All states, of living and of ended threads.
pub(crate) fn states() -> impl Iterator<Item = &'static ThreadState> {
    let mut next = &STATES;
    std::iter::from_fn(move || {
        // SAFETY: the list holds leaked states only.
        let state: &'static ThreadState = unsafe { next.load(Ordering::Acquire).as_ref()? };
        next = &state.next;
        Some(state)
    })
}

/// A session begins, whose number can be read already: no thread counts on as it did in the one before.
pub(crate) fn forget_copied_settings() {
    std::sync::atomic::fence(Ordering::SeqCst);
    states().for_each(|state| state.counting.forget());
}

/// The sums of all threads for a device slot.
pub fn sums(slot: usize) -> Sums {
    living::sums(slot).unwrap_or_else(|| {
        let mut sums = Sums::default();
        states().for_each(|state| state.slots[slot].totals.add_to(&mut sums));
        sums
    })
}

/// The same for who asks again and again, as a tracker does: of a heap whose blocks are only counted, the highest is kept.
pub fn sums_seen(slot: usize) -> Sums {
    if slot_of(DeviceId::HOST) == Some(slot) {
        high::look_now();
    }
    sums(slot)
}

/// In the child of a fork: the states belong to the parent's threads.
pub(super) fn reset_after_fork() {
    STATES.store(std::ptr::null_mut(), Ordering::Release);
    living::forget_all();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn what_counting_a_small_block_touches_is_one_cache_line() {
        assert_eq!(align_of::<ThreadState>(), 64);
        assert_eq!(offset_of!(ThreadState, counting), 0);
        let sums = offset_of!(ThreadState, slots) + offset_of!(Slot, totals);
        assert!(sums + Totals::TOUCHED_BY_EACH_BLOCK <= 64, "{sums}");
    }
}

//! One [`ThreadState`] per recording thread: its chunks, its sums, and the kit that captures its stacks. The states are
//! in a list that only grows and needs no lock. The state of a thread that ends, including its events, is reused by the
//! next new thread (`current_thread`).
#![allow(unsafe_code)]

use super::chunk::Chunk;
use super::counted_peak;
use super::current_thread;
use super::kits::Kit;
use super::scope_sums;
use super::thread_sums;
use super::totals::{Sums, Totals};
use crate::host::{Countdown, Recording, Sampler};
use crate::shared_memory::{
    Counter, PAGE_CONTENT_BYTES, PageKind, Purpose, arena, count, is_connected, page_content,
};
use crate::stack::capture::StackBounds;
use crate::switch;
use memtrack_model::event::{DeviceId, Event, ScopeId, ThreadId};
use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The number of devices that a recorder distinguishes: the host heap, ordinals 0 to 30, pinned host memory, and mapped
/// memory.
pub const DEVICE_SLOTS: usize = 34;
const PINNED_SLOT: usize = DEVICE_SLOTS - 2;
const MAPPED_SLOT: usize = DEVICE_SLOTS - 1;

/// Returns the slot of a device; `None` for an ordinal above 30.
#[inline(always)]
pub fn slot_of(device: DeviceId) -> Option<usize> {
    match device {
        DeviceId::HOST => Some(0),
        DeviceId::PINNED => Some(PINNED_SLOT),
        DeviceId::MAPPED => Some(MAPPED_SLOT),
        DeviceId(ordinal) => Some(usize::from(ordinal) + 1).filter(|&slot| slot < PINNED_SLOT),
    }
}

/// Returns the device of a slot.
pub fn device_of(slot: usize) -> DeviceId {
    match slot {
        0 => DeviceId::HOST,
        PINNED_SLOT => DeviceId::PINNED,
        MAPPED_SLOT => DeviceId::MAPPED,
        _ => DeviceId(slot as u16 - 1),
    }
}

/// The sums of a thread, and its current scope.
#[repr(C)]
pub(super) struct ThreadSums {
    /// The sums by device slot.
    totals: [Totals; DEVICE_SLOTS],
    /// The current scope of the thread. Collectors add what the thread has allocated since it entered the scope to the
    /// scope's sums.
    scope: AtomicU32,
}

/// The part of a state that only the owning thread uses.
pub(crate) struct ThreadLocal {
    /// The bounds of the thread's stack.
    pub(crate) bounds: StackBounds,
    /// The capture kit, which the thread gets when it captures its first stack, unless too many threads have a kit.
    pub(crate) kit: Option<Kit>,
    pub(crate) sampler: Sampler<SharedTables>,
    pub(crate) newest_ticks: Cell<u64>,
}

/// The tables of the recorder, for a thread's sampler.
pub(crate) struct SharedTables;

impl Recording for SharedTables {
    fn live_blocks() -> u64 {
        super::live_blocks()
    }

    fn begin_counting() {
        counted_peak::begin();
    }
}

/// Everything the recorder keeps for one thread. The fields used to count a small block come first and share a cache
/// line: `countdown` and the sums of the host, the first slot.
#[repr(C, align(64))]
pub(crate) struct ThreadState {
    pub(crate) countdown: Countdown,
    /// The thread's sums: either `own_sums`, or sums in shared memory.
    sums: AtomicPtr<ThreadSums>,
    own_sums: ThreadSums,
    /// The chunks being filled, by device slot; null before the first event. Replaced only by the owning thread, under the
    /// store's lock.
    pub(crate) chunks: [AtomicPtr<Chunk<Event>>; DEVICE_SLOTS],
    next: AtomicPtr<ThreadState>,
    pub(super) id: AtomicU32,
    /// Odd while the thread is inside a hook. A collector that reads an odd number waits until the number changes.
    pub(super) activity: AtomicU64,
    /// The devices on which the thread has allocated, one bit per device slot. The host has no bit.
    devices: AtomicU64,
    /// The bytes and blocks that the thread allocated while accounts existed, but while it was in none. Never reset.
    pub(crate) unattributed: [AtomicU64; 2],
    /// The index of this state in [`thread_sums`].
    pub(super) active_index: AtomicUsize,
    pub(super) local: UnsafeCell<Option<ThreadLocal>>,
}

impl ThreadState {
    /// Returns whether the state belongs to the calling thread.
    pub(super) fn is_current(&self) -> bool {
        current_thread::is_current(self)
    }

    /// Returns the id of the thread that owns the state, or owned it last.
    pub(crate) fn thread_id(&self) -> ThreadId {
        ThreadId(self.id.load(Ordering::Relaxed))
    }

    /// Returns the thread's sums for a device slot.
    #[inline(always)]
    pub(crate) fn totals(&self, slot: usize) -> &Totals {
        &self.sums().totals[slot]
    }

    /// Returns the thread's sums, by device slot.
    pub(super) fn all_totals(&self) -> &[Totals; DEVICE_SLOTS] {
        &self.sums().totals
    }

    #[inline(always)]
    fn sums(&self) -> &ThreadSums {
        // SAFETY: the pointer is set when the state is created, to a field of the state or to shared memory, both of which
        // exist for ever. In a copy of the process in which the system has zeroed the state, the pointer is null.
        unsafe { self.sums.load(Ordering::Relaxed).as_ref() }.unwrap_or(&self.own_sums)
    }

    /// Notes that the thread allocates from the slot's device.
    #[inline(always)]
    pub(crate) fn mark_device_used(&self, slot: usize) {
        let bit = 1 << slot;
        if slot != 0 && self.devices.load(Ordering::Relaxed) & bit == 0 {
            self.devices.store(self.devices.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        }
    }

    /// Returns the slots of the devices from which the thread has allocated.
    #[inline(always)]
    fn used_slots(&self) -> impl Iterator<Item = usize> {
        let mut others = self.devices.load(Ordering::Relaxed);
        std::iter::once(0).chain(std::iter::from_fn(move || {
            let slot = others.trailing_zeros() as usize;
            others &= others.wrapping_sub(1);
            (slot < DEVICE_SLOTS).then_some(slot)
        }))
    }

    /// Changes the current scope of the owning thread, and adds its allocations so far to the previous scope.
    #[inline]
    pub(super) fn change_scope(&self, scope: ScopeId) {
        // Marked as active, as in a hook, so that a thread that starts or ends a session, or collects, waits for this
        // change. Inside a hook, the thread is already marked.
        let activity = self.activity.load(Ordering::Relaxed);
        let is_unmarked = activity.is_multiple_of(2);
        if is_unmarked {
            self.activity.store(activity + 1, Ordering::Relaxed);
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        }
        if switch::is_on(switch::SCOPES) {
            // Make the values written before the switch was turned on visible: the sums at the start of the session.
            std::sync::atomic::fence(Ordering::Acquire);
            let before = ScopeId(self.sums().scope.load(Ordering::Relaxed));
            for slot in self.used_slots() {
                let growth = self.totals(slot).growth();
                if growth != [0, 0] {
                    self.totals(slot).report_growth(growth);
                    scope_sums::add(slot, before, growth[0], growth[1]);
                }
            }
        }
        self.sums().scope.store(scope.0, Ordering::Relaxed);
        if is_unmarked {
            self.activity.store(activity + 2, Ordering::Release);
        }
    }

    /// Returns, for each slot, the thread's current scope and the bytes and blocks that the thread has allocated in it.
    /// The result may be slightly off for another thread whose scope changes continually.
    pub(super) fn growth_in_open_scope(&self) -> Vec<(usize, ScopeId, [u64; 2])> {
        const MAX_ATTEMPTS: usize = 100;
        let mut growths = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            let seen = self.activity.load(Ordering::Acquire);
            let scope = ScopeId(self.sums().scope.load(Ordering::Relaxed));
            growths.clear();
            growths.extend(self.used_slots().map(|slot| (slot, scope, self.totals(slot).growth())));
            std::sync::atomic::fence(Ordering::Acquire);
            if self.activity.load(Ordering::Relaxed) == seen {
                break;
            }
        }
        growths.retain(|(_, _, growth)| *growth != [0, 0]);
        growths
    }

    /// Returns the part that only the owning thread uses.
    ///
    /// # Safety
    /// The calling thread must own the state, and must not hold another reference returned by this function.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn local(&self) -> &mut ThreadLocal {
        // SAFETY: the caller guarantees that no other thread or reference uses it, and `claim` has initialized it.
        unsafe { (*self.local.get()).as_mut().unwrap_unchecked() }
    }
}

// SAFETY: `local` is used only by the thread that owns the state (exclusively, or while it holds the lock of a shared
// state); all other fields are atomic.
unsafe impl Sync for ThreadState {}

static STATES: AtomicPtr<ThreadState> = AtomicPtr::new(std::ptr::null_mut());

/// Creates a state and adds it to the list.
pub(super) fn new_state() -> &'static ThreadState {
    crate::internal_bytes::add(size_of::<ThreadState>());
    let state: &'static ThreadState = place(ThreadState {
        countdown: Countdown::default(),
        sums: AtomicPtr::new(std::ptr::null_mut()),
        own_sums: ThreadSums { totals: std::array::from_fn(|_| Totals::default()), scope: AtomicU32::new(0) },
        chunks: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
        next: AtomicPtr::new(std::ptr::null_mut()),
        id: AtomicU32::new(0),
        activity: AtomicU64::new(0),
        devices: AtomicU64::new(0),
        unattributed: Default::default(),
        active_index: AtomicUsize::new(0),
        local: UnsafeCell::new(None),
    });
    let shared = shared_sums();
    let sums = if shared.is_null() { std::ptr::from_ref(&state.own_sums).cast_mut() } else { shared };
    state.sums.store(sums, Ordering::Release);
    let mut head = STATES.load(Ordering::Relaxed);
    loop {
        state.next.store(head, Ordering::Relaxed);
        let new = std::ptr::from_ref(state).cast_mut();
        match STATES.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return state,
            Err(other) => head = other,
        }
    }
}

/// Moves a state to memory where it stays for ever.
fn place(state: ThreadState) -> &'static ThreadState {
    if is_connected()
        && let Some(memory) = wiped::allocate::<ThreadState>()
    {
        // SAFETY: the memory is new, has the size and alignment of a state, and is never freed.
        unsafe {
            memory.write(state);
            return memory.as_ref();
        }
    }
    Box::leak(Box::new(state))
}

/// Returns sums of 0 in shared memory; null if recording does not go to shared memory, or if no page is left.
fn shared_sums() -> *mut ThreadSums {
    if is_connected() {
        const { assert!(size_of::<ThreadSums>() <= PAGE_CONTENT_BYTES) };
        if arena().is_none() {
            // This is a forked child beyond the limit, or without room for separate shared memory. It records nothing.
            switch::set(switch::EVENTS | switch::HOST | switch::OPERATORS, false);
            return std::ptr::null_mut();
        }
        match arena().and_then(|arena| arena.take_page(PageKind::Sums, Purpose::Sums)) {
            Some(page) => return page_content(page.as_ptr()).cast(),
            None => count(Counter::ThreadsWithoutSums, 1),
        }
    }
    std::ptr::null_mut()
}

/// Adds the sums of a thread, in a page of shared memory, to `sums`. Returns the thread's current scope, and the bytes and
/// blocks, by device slot, that it has allocated in that scope.
pub(crate) fn add_shared_sums(content: *const u8, sums: &mut [Sums]) -> (ScopeId, Vec<[u64; 2]>) {
    // SAFETY: the caller passes the content of a page of sums, which are atomic; any bytes are valid.
    let of_thread = unsafe { &*content.cast::<ThreadSums>() };
    of_thread.totals.iter().zip(sums).for_each(|(totals, sums)| totals.add_to(sums));
    let growth = of_thread.totals.iter().map(Totals::growth).collect();
    (ScopeId(of_thread.scope.load(Ordering::Relaxed)), growth)
}

/// Memory that the system zeroes in copies of the process. A child for which no fork handler was called
/// ([`super::same_memory`]) finds its states zeroed, so it counts nothing. Otherwise it would add to its parent's sums in
/// shared memory.
mod wiped {
    use crate::events::ForkCell;
    use crate::zeroed::map_pages;
    use std::ptr::NonNull;
    use std::sync::Mutex;

    /// The size of a mapping, in bytes.
    const MAPPING_BYTES: usize = 64 << 10;

    /// The unused end of the newest mapping: its address and its size.
    static REST: ForkCell<Mutex<(usize, usize)>> = ForkCell::new(|| Mutex::new((0, 0)));

    /// Returns memory for a value; `None` if the system has no memory left.
    pub(super) fn allocate<T>() -> Option<NonNull<T>> {
        let bytes = size_of::<T>().next_multiple_of(64);
        const { assert!(size_of::<T>() <= MAPPING_BYTES && align_of::<T>() <= 64) };
        loop {
            {
                let mut rest = REST.lock();
                let (start, left) = *rest;
                if left >= bytes {
                    *rest = (start + bytes, left - bytes);
                    return NonNull::new(std::ptr::with_exposed_provenance_mut(start));
                }
            }
            // The lock is not held during the call. If two threads map memory at the same time, the end of one mapping
            // stays unused.
            let new = map()?;
            *REST.lock() = (new, MAPPING_BYTES);
        }
    }

    fn map() -> Option<usize> {
        let memory = map_pages(MAPPING_BYTES)?.as_ptr();
        // SAFETY: the call requests that copies of the process find zeros there. If it fails (before Linux 4.14), only
        // copies that call no fork handler are affected.
        unsafe { libc::madvise(memory.cast(), MAPPING_BYTES, libc::MADV_WIPEONFORK) };
        Some(memory.expose_provenance())
    }
}

/// Returns all states, of live and of ended threads.
pub(crate) fn states() -> impl Iterator<Item = &'static ThreadState> {
    let mut next = &STATES;
    std::iter::from_fn(move || {
        // SAFETY: the list contains only leaked states.
        let state: &'static ThreadState = unsafe { next.load(Ordering::Acquire).as_ref()? };
        next = &state.next;
        Some(state)
    })
}

/// Returns the chunk that a thread is filling, in one of the slots of [`ThreadState::chunks`].
///
/// # Safety
/// The store must be locked.
pub(super) unsafe fn chunk_in(slot: &AtomicPtr<Chunk<Event>>) -> Option<Arc<Chunk<Event>>> {
    let chunk = slot.load(Ordering::Acquire).cast_const();
    // SAFETY: the pointer came from `Arc::into_raw`, and a thread removes its chunk from its slot only while the store is
    // locked. So the slot still owns a reference.
    (!chunk.is_null()).then(|| unsafe {
        Arc::increment_strong_count(chunk);
        Arc::from_raw(chunk)
    })
}

/// Makes all threads read the settings again, because a session begins. The session's number must already be set.
pub(crate) fn forget_copied_settings() {
    std::sync::atomic::fence(Ordering::SeqCst);
    states().for_each(|state| state.countdown.invalidate());
}

/// Returns the sums of all threads for a device slot.
pub fn sums(slot: usize) -> Sums {
    thread_sums::sums(slot).unwrap_or_else(|| {
        let mut sums = Sums::default();
        states().for_each(|state| state.totals(slot).add_to(&mut sums));
        sums
    })
}

/// Returns the sums of all threads for a device slot, for a caller that reads them repeatedly, such as a tracker. For
/// the host heap, also updates the counted peak.
pub fn observed_sums(slot: usize) -> Sums {
    if slot_of(DeviceId::HOST) == Some(slot) {
        counted_peak::observe_now();
    }
    sums(slot)
}

/// Resets the list in a forked child: the states belong to the parent's threads.
pub(super) fn reset_after_fork() {
    STATES.store(std::ptr::null_mut(), Ordering::Release);
    thread_sums::reset();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn counting_a_small_block_touches_one_cache_line() {
        assert_eq!(align_of::<ThreadState>(), 64);
        assert_eq!(offset_of!(ThreadState, countdown), 0);
        let sums = offset_of!(ThreadState, own_sums);
        assert!(offset_of!(ThreadState, sums) < sums);
        assert!(sums + Totals::TOUCHED_BY_EACH_BLOCK <= 64, "{sums}");
    }
}

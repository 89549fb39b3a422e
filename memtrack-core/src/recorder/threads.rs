//! One [`ThreadState`] per recording thread: its chunks, sums and room for captures. The states hang on a list that only
//! grows and needs no lock; a thread that ends leaves its state, events included, to the next new thread.
//!
//! The pointer to the own state lies in a `const` thread-local without a destructor, so that a hook can use it at any
//! moment of a thread's life. A second thread-local's destructor gives the state up; allocations in thread-local
//! destructors that run after it go through one state shared under a lock.
#![allow(unsafe_code)]

use super::chunk::Chunk;
use super::fork::ForkCell;
use super::scope_sums;
use super::totals::{Sums, Totals};
use crate::event::{DeviceId, Event, ScopeId, ThreadId};
use crate::host::Sampler;
use crate::snapshot::Thread;
use crate::stack::capture::Capture;
use crate::stack::intern::StackCache;
use crate::{scope, switch};
use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Devices a recorder tells apart: the host heap, ordinals 0 to 30, and pinned host memory.
pub(crate) const DEVICE_SLOTS: usize = 33;
const PINNED_SLOT: usize = DEVICE_SLOTS - 1;

/// The slot of a device, `None` for an ordinal above 30.
#[inline(always)]
pub(crate) fn slot_of(device: DeviceId) -> Option<usize> {
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
pub(crate) fn device_of(slot: usize) -> DeviceId {
    match slot {
        0 => DeviceId::HOST,
        PINNED_SLOT => DeviceId::PINNED,
        _ => DeviceId(slot as u16 - 1),
    }
}

/// What a thread keeps per device.
pub(crate) struct Slot {
    /// The chunk being filled; null before the first event. Replaced only by the owner, under the ring's lock.
    pub(crate) chunk: AtomicPtr<Chunk<Event>>,
    pub(crate) totals: Totals,
}

/// What only the owning thread touches.
pub(crate) struct Own {
    pub(crate) capture: Box<Capture>,
    pub(crate) stacks: StackCache,
    pub(crate) sampler: Sampler,
    pub(crate) newest_ticks: Cell<u64>,
}

/// Everything the recorder keeps for one thread.
pub(crate) struct ThreadState {
    next: AtomicPtr<ThreadState>,
    owned: AtomicBool,
    id: AtomicU32,
    /// Odd while the thread is inside a hook: a collector waits for it to change.
    pub(super) activity: AtomicU64,
    pub(crate) slots: [Slot; DEVICE_SLOTS],
    /// The scope that the thread is in: for collectors, who add what it has allocated there.
    scope: AtomicU32,
    /// A bit for each slot but the host's that the thread has allocated from.
    devices: AtomicU64,
    own: UnsafeCell<Option<Own>>,
}

impl ThreadState {
    /// Whether it is the calling thread's.
    pub(super) fn is_mine(&self) -> bool {
        MINE.get() == std::ptr::from_ref(self)
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
    fn change_scope(&self, scope: ScopeId) {
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
    unsafe fn own(&self) -> &mut Own {
        // SAFETY: nobody else touches it (the caller's promise), and whoever made the state owned has filled it.
        unsafe { (*self.own.get()).as_mut().unwrap_unchecked() }
    }
}

/// The calling thread goes into another scope. Two loads, two stores and a comparison while nothing was allocated.
#[inline]
pub(crate) fn scope_changed(scope: ScopeId) {
    // SAFETY: states are never freed; the thread owns the one in `MINE`.
    if let Some(state) = unsafe { MINE.get().as_ref() } {
        state.change_scope(scope);
    }
}

/// Calls `count` with the calling thread's sums and sampler, without entering a hook: for what makes no event. Nothing
/// happens and `None` is returned for a thread that has no state yet, or none any more.
#[inline(always)]
pub(crate) fn without_hook<R>(slot: usize, count: impl FnOnce(&Totals, &mut Sampler) -> R) -> Option<R> {
    // SAFETY: states are never freed; the thread owns the one in `MINE`. `count` is a few additions: it enters no hook.
    unsafe {
        let state = MINE.get().as_ref()?;
        Some(count(&state.slots[slot].totals, &mut state.own().sampler))
    }
}

// SAFETY: `own` is used only by the thread that owns the state (`owned`, or the orphan lock); all else is atomic.
unsafe impl Sync for ThreadState {}

static STATES: AtomicPtr<ThreadState> = AtomicPtr::new(std::ptr::null_mut());

/// Threads by id, for reports. Locked when a thread first records, and by collectors.
static NAMES: ForkCell<Mutex<Vec<Thread>>> = ForkCell::new(|| Mutex::new(vec![Thread::default()]));

/// Threads beyond this number are recorded as the unknown thread.
const MAX_THREADS: usize = 1 << 20;

/// The state of all threads whose own one is gone: a thread that is ending uses it, one at a time.
static ORPHANS: ForkCell<Mutex<Option<&'static ThreadState>>> = ForkCell::new(|| Mutex::new(None));

thread_local! {
    static MINE: Cell<*const ThreadState> = const { Cell::new(std::ptr::null()) };
    static GONE: Cell<bool> = const { Cell::new(false) };
    static LEAVE: Leave = const { Leave };
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        GONE.set(true);
        let mine = MINE.replace(std::ptr::null());
        // SAFETY: states are never freed.
        if let Some(state) = unsafe { mine.as_ref() } {
            state.change_scope(ScopeId::NONE);
            state.owned.store(false, Ordering::Release);
        }
    }
}

/// The calling thread inside a hook: its state, marked active.
pub(crate) struct InHook {
    pub(crate) state: &'static ThreadState,
    /// Boxed so that a hook consists of whole words: copied about with a one-byte discriminant among them, it stalls each
    /// time on the store that is narrower than the load (some 10 ns per event).
    _orphans: Option<Box<OrphansLocked>>,
}

type OrphansLocked = MutexGuard<'static, Option<&'static ThreadState>>;

impl InHook {
    /// Enters a hook: finds or makes the thread's state and marks it active. Allocates at a thread's first event.
    #[inline(always)]
    pub(crate) fn enter() -> Self {
        let mine = MINE.get();
        // SAFETY: states are never freed.
        let hook = match unsafe { mine.as_ref() } {
            Some(state) => Self { state, _orphans: None },
            None => Self::first(),
        };
        let activity = &hook.state.activity;
        activity.store(activity.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Pairs with the collector's heavy barrier: the compiler must not move the hook's reads before the mark.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        hook
    }

    #[cold]
    fn first() -> Self {
        if GONE.get() || LEAVE.try_with(|_| ()).is_err() {
            let mut orphans = ORPHANS.get().lock().unwrap_or_else(PoisonError::into_inner);
            let state = *orphans.get_or_insert_with(|| adopt(ThreadId::NONE));
            // Perhaps another thread than last time, on another stack.
            // SAFETY: whoever holds the lock owns the state.
            unsafe { state.own() }.capture.adopt();
            state.change_scope(scope::current_id());
            return Self { state, _orphans: Some(Box::new(orphans)) };
        }
        let state = adopt(name_this_thread());
        state.change_scope(scope::current_id());
        MINE.set(state);
        Self { state, _orphans: None }
    }

    /// The parts that only the owning thread touches.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn own(&self) -> &mut Own {
        // SAFETY: this thread owns the state (or holds the orphan lock), the re-entry guard keeps a second hook of
        // this thread out, and no caller holds the result across another call of `own`. `adopt` has filled it.
        unsafe { self.state.own() }
    }

    /// The thread's id.
    #[inline(always)]
    pub(crate) fn thread(&self) -> ThreadId {
        ThreadId(self.state.id.load(Ordering::Relaxed))
    }
}

impl Drop for InHook {
    #[inline(always)]
    fn drop(&mut self) {
        let activity = &self.state.activity;
        activity.store(activity.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// Takes over a state nobody owns, or makes one, for the thread with that id.
fn adopt(thread: ThreadId) -> &'static ThreadState {
    let free = states().find(|state| {
        !state.owned.load(Ordering::Relaxed)
            && state.owned.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
    let state = free.unwrap_or_else(make);
    state.id.store(thread.0, Ordering::Relaxed);
    // SAFETY: `owned` was just won, so nobody else touches `own`.
    match unsafe { &mut *state.own.get() } {
        Some(own) => own.capture.adopt(),
        empty => {
            *empty = Some(Own {
                capture: Capture::for_this_thread(),
                stacks: StackCache::new(),
                sampler: Sampler::new(),
                newest_ticks: Cell::new(0),
            });
        }
    }
    state
}

fn make() -> &'static ThreadState {
    let state: &'static ThreadState = Box::leak(Box::new(ThreadState {
        next: AtomicPtr::new(std::ptr::null_mut()),
        owned: AtomicBool::new(true),
        id: AtomicU32::new(0),
        activity: AtomicU64::new(0),
        slots: std::array::from_fn(|_| Slot {
            chunk: AtomicPtr::new(std::ptr::null_mut()),
            totals: Totals::default(),
        }),
        scope: AtomicU32::new(0),
        devices: AtomicU64::new(0),
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

/// All threads that have recorded, by id.
pub(crate) fn threads() -> Vec<Thread> {
    NAMES.get().lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Gives the calling thread an id. The name comes from the system: `std::thread::current` must not be asked in a
/// thread that is ending.
fn name_this_thread() -> ThreadId {
    #[cfg(target_os = "linux")]
    let (name, os_id) = {
        let mut name = [0_u8; 32];
        // SAFETY: the buffer is ours and longer than the 16 bytes a name takes, and gettid has no arguments.
        let os_id = unsafe {
            libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), name.len());
            libc::syscall(libc::SYS_gettid) as u64
        };
        let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        (String::from_utf8_lossy(&name[..len]).into_owned(), os_id)
    };
    #[cfg(not(target_os = "linux"))]
    let (name, os_id) = (String::new(), 0);
    let mut names = NAMES.get().lock().unwrap_or_else(PoisonError::into_inner);
    if names.len() > MAX_THREADS {
        return ThreadId::NONE;
    }
    names.push(Thread { name, os_id });
    ThreadId((names.len() - 1) as u32)
}

/// The sums of all threads for a device slot.
pub(crate) fn sums(slot: usize) -> Sums {
    let mut sums = Sums::default();
    for state in states() {
        state.slots[slot].totals.add_to(&mut sums);
    }
    sums
}

/// In the child of a fork: the states belong to the parent's threads, and a lock may be held by one that is gone.
pub(crate) fn reset_after_fork() {
    MINE.set(std::ptr::null());
    STATES.store(std::ptr::null_mut(), Ordering::Release);
    NAMES.forget();
    ORPHANS.forget();
}

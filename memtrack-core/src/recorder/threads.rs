//! One [`ThreadState`] per recording thread: its chunks, its sums, and the kit it takes stacks with. The states hang on a
//! list that only grows and needs no lock; a thread that ends leaves its state, events included, to the next new thread.
//!
//! The pointer to the own state lies in a `const` thread-local without a destructor, so that a hook can use it at any
//! moment of a thread's life. That a thread ends is told by a key of the C library's threads, not by a thread-local's
//! destructor: to register one takes the dynamic linker's lock, for which a thread that allocates while a library is
//! being loaded would wait for ever. What a thread allocates after that, and what threads beyond [`MAX_STATES`] do, goes
//! through a few states that are shared under a lock.
#![allow(unsafe_code)]

use super::chunk::Chunk;
use super::fork::ForkCell;
use super::kits::{self, Kit};
use super::scope_sums;
use super::totals::{Sums, Totals};
use crate::event::{DeviceId, Event, ScopeId, ThreadId};
use crate::host::Sampler;
use crate::reentry;
use crate::snapshot::Thread;
use crate::stack::capture::StackBounds;
use crate::stack::own_stack;
use crate::{scope, switch};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
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
    /// Where its stack lies.
    pub(crate) bounds: StackBounds,
    /// Since it first kept a stack, unless too many threads have one.
    pub(crate) kit: Option<Kit>,
    pub(crate) sampler: Sampler,
    pub(crate) newest_ticks: Cell<u64>,
}

/// Everything the recorder keeps for one thread.
pub(crate) struct ThreadState {
    next: AtomicPtr<ThreadState>,
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

// SAFETY: `own` is used only by the thread that the state belongs to (it took it from those that are free, or holds the
// lock of one that is shared); all else is atomic.
unsafe impl Sync for ThreadState {}

static STATES: AtomicPtr<ThreadState> = AtomicPtr::new(std::ptr::null_mut());

/// Threads by id, for reports. Locked when a thread first records, and by collectors.
static NAMES: ForkCell<Mutex<Vec<Thread>>> = ForkCell::new(|| Mutex::new(vec![Thread::default()]));

/// Threads beyond this number are recorded as the unknown thread: their names would take more than 5 MB.
const MAX_THREADS: usize = 1 << 16;
static WITHOUT_NAME: AtomicU64 = AtomicU64::new(0);

/// How many threads are recorded as the unknown one because there were so many.
pub(super) fn without_name() -> u64 {
    WITHOUT_NAME.load(Ordering::Relaxed)
}

/// States that belong to one thread at a time, and how many there are of them. They take 3 KB each, and a small chunk
/// per device.
pub(super) const MAX_STATES: usize = 1 << 12;
static STATES_MADE: AtomicUsize = AtomicUsize::new(0);

/// What states and names may take.
#[cfg(test)]
pub(super) const MOST_BYTES: usize = (MAX_STATES + SHARED) * size_of::<ThreadState>()
    + 2 * MAX_THREADS * size_of::<Thread>()
    + MAX_THREADS * 32;

/// States of threads that have ended.
static FREE: ForkCell<Mutex<Vec<&'static ThreadState>>> = ForkCell::new(Mutex::default);

/// The states of threads that have none of their own: they are ending, or too many.
const SHARED: usize = 8;
type SharedStates = [Mutex<Option<&'static ThreadState>>; SHARED];
static SHARED_STATES: ForkCell<SharedStates> = ForkCell::new(|| std::array::from_fn(|_| Mutex::default()));

thread_local! {
    static MINE: Cell<*const ThreadState> = const { Cell::new(std::ptr::null()) };
    /// What [`InHook::first`] does for the thread, and how often its end was put off.
    static STAGE: Cell<u8> = const { Cell::new(NEW) };
}

/// Has no state yet.
const NEW: u8 = 0;
/// Was told of its end so many times.
const ENDING: u8 = 3;
/// Has no state of its own, and gets none.
const SHARES: u8 = 255;

/// The key whose value tells the C library whom to call when a thread ends, plus one; 0 before it was made. Making and
/// setting it takes no lock.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Has [`thread_ends`] called with `state` when the calling thread ends. Where the C library has no key left, states are
/// not used again, and those that there may be are soon shared.
fn tell_when_the_thread_ends(state: &'static ThreadState) {
    let mut key = KEY.load(Ordering::Acquire);
    // SAFETY: the functions touch the key that they are given, and the one that was just made by this call alone.
    unsafe {
        if key == 0 {
            let mut made: libc::pthread_key_t = 0;
            if libc::pthread_key_create(&mut made, Some(thread_ends)) != 0 {
                return;
            }
            match KEY.compare_exchange(0, made + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => key = made + 1,
                Err(other) => {
                    libc::pthread_key_delete(made);
                    key = other;
                }
            }
        }
        libc::pthread_setspecific(key - 1, std::ptr::from_ref(state).cast());
    }
}

/// Called by the C library in a thread that ends, after all destructors of thread-locals.
extern "C" fn thread_ends(state: *mut c_void) {
    let _inside = reentry::enter();
    // SAFETY: the value was set by `tell_when_the_thread_ends`; states are never freed.
    let state = unsafe { &*state.cast::<ThreadState>() };
    if MINE.get() != std::ptr::from_ref(state) {
        // The child of a fork has begun anew.
        return;
    }
    let told = STAGE.get() + 1;
    if told < ENDING {
        // Other keys' values end in the same round: what they free is better known while the thread has its state. The C
        // library makes four rounds at least.
        STAGE.set(told);
        return tell_when_the_thread_ends(state);
    }
    STAGE.set(SHARES);
    state.change_scope(ScopeId::NONE);
    MINE.set(std::ptr::null());
    // SAFETY: the calling thread owns the state until it is in the list of free ones.
    let kit = unsafe { state.own() }.kit.take();
    if let Some(kit) = kit {
        kits::give_back(kit);
    }
    FREE.get().lock().unwrap_or_else(PoisonError::into_inner).push(state);
}

/// The calling thread inside a hook: its state is marked active until this is dropped.
pub(crate) struct InHook {
    state: &'static ThreadState,
    /// From `Box::into_raw`. A word without drop glue, so that a hook has no address and stays in registers: in memory,
    /// the words it is written in and those it is copied in stall each other (5 to 10 ns per event).
    shared: Option<NonNull<SharedLocked>>,
}

type SharedLocked = MutexGuard<'static, Option<&'static ThreadState>>;

/// The state of the calling thread, which is inside a hook as long as this is used.
#[derive(Clone, Copy)]
pub(crate) struct Mine {
    pub(crate) state: &'static ThreadState,
}

impl InHook {
    /// Enters a hook: finds or makes the thread's state and marks it active. Allocates at a thread's first event.
    #[inline(always)]
    pub(crate) fn enter() -> (Self, Mine) {
        let mine = MINE.get();
        // SAFETY: states are never freed.
        let hook = match unsafe { mine.as_ref() } {
            Some(state) => Self { state, shared: None },
            None => Self::first(),
        };
        let state = hook.state;
        state.activity.store(state.activity.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Pairs with the collector's heavy barrier: the compiler must not move the hook's reads before the mark.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        (hook, Mine { state })
    }

    /// Nobody knows yet how much of the thread's stack is left.
    #[cold]
    fn first() -> Self {
        own_stack::run(Self::first_with_room)
    }

    fn first_with_room() -> Self {
        if STAGE.get() != SHARES {
            if let Some(state) = take_state() {
                own(state, name_this_thread());
                state.change_scope(scope::current_id());
                MINE.set(state);
                tell_when_the_thread_ends(state);
                return Self { state, shared: None };
            }
            STAGE.set(SHARES);
        }
        // Each thread has thread-locals of its own: their address tells the threads apart.
        let mut shared =
            one_of(SHARED_STATES.get(), STAGE.with(|stage| std::ptr::from_ref(stage).addr() >> 12));
        let state = *shared.get_or_insert_with(make);
        // Another thread than last time, on another stack.
        own(state, ThreadId::NONE);
        state.change_scope(scope::current_id());
        Self { state, shared: NonNull::new(Box::into_raw(Box::new(shared))) }
    }
}

impl Drop for InHook {
    #[inline(always)]
    fn drop(&mut self) {
        let activity = &self.state.activity;
        activity.store(activity.load(Ordering::Relaxed) + 1, Ordering::Release);
        if let Some(shared) = self.shared {
            unlock(shared);
        }
    }
}

#[cold]
fn unlock(shared: NonNull<SharedLocked>) {
    // SAFETY: it comes from `Box::into_raw`, and only the drop of the hook that holds it calls this.
    drop(unsafe { Box::from_raw(shared.as_ptr()) });
}

impl Mine {
    /// Whether the part of the thread's stack below `sp` has room for what a hook may do.
    #[inline(always)]
    pub(super) fn has_room(self, sp: u64) -> bool {
        self.own().bounds.has_below(sp, own_stack::ROOM_BYTES)
    }

    /// The parts that only the owning thread touches.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn own(&self) -> &mut Own {
        // SAFETY: this thread owns the state (or holds the lock of a shared one), the re-entry guard keeps a second hook
        // of this thread out, and no caller holds the result across another call of `own`. `own` has filled it.
        unsafe { self.state.own() }
    }

    /// Whether the state is one that threads share.
    pub(super) fn is_shared(self) -> bool {
        !self.state.is_mine()
    }

    /// The thread's id.
    #[inline(always)]
    pub(crate) fn thread(self) -> ThreadId {
        ThreadId(self.state.id.load(Ordering::Relaxed))
    }
}

/// Locks the first of `all` that is free, from one on that `number` says, and waits for that one where none is.
pub(super) fn one_of<T>(all: &'static [Mutex<T>], number: usize) -> MutexGuard<'static, T> {
    let free = (0..all.len()).find_map(|next| all[(number + next) % all.len()].try_lock().ok());
    free.unwrap_or_else(|| all[number % all.len()].lock().unwrap_or_else(PoisonError::into_inner))
}

/// A state that is free, or a new one; `None` when there are as many as there may be.
fn take_state() -> Option<&'static ThreadState> {
    let free = FREE.get().lock().unwrap_or_else(PoisonError::into_inner).pop();
    free.or_else(|| {
        let more = |made| (made < MAX_STATES).then_some(made + 1);
        STATES_MADE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| make())
    })
}

/// Makes a state the calling thread's, which has that id.
fn own(state: &'static ThreadState, thread: ThreadId) {
    state.id.store(thread.0, Ordering::Relaxed);
    let bounds = StackBounds::of_this_thread();
    // SAFETY: the state is the calling thread's: it is new, was taken from those that are free, or its lock is held.
    match unsafe { &mut *state.own.get() } {
        Some(own) => own.bounds = bounds,
        empty => {
            *empty = Some(Own { bounds, kit: None, sampler: Sampler::new(), newest_ticks: Cell::new(0) });
        }
    }
}

fn make() -> &'static ThreadState {
    crate::own::hold(size_of::<ThreadState>());
    let state: &'static ThreadState = Box::leak(Box::new(ThreadState {
        next: AtomicPtr::new(std::ptr::null_mut()),
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

/// Bytes that the names take.
pub(super) fn names_bytes() -> usize {
    let names = NAMES.get().lock().unwrap_or_else(PoisonError::into_inner);
    // A name has at most 15 bytes, and the least that an allocator gives.
    names.capacity() * size_of::<Thread>() + names.len() * 32
}

/// The threads with ids from `first` on: how many there were before does not matter.
pub(crate) fn threads_since(first: usize) -> Vec<Thread> {
    let names = NAMES.get().lock().unwrap_or_else(PoisonError::into_inner);
    names.get(first..).unwrap_or_default().to_vec()
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
        WITHOUT_NAME.fetch_add(1, Ordering::Relaxed);
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
    STAGE.set(NEW);
    STATES.store(std::ptr::null_mut(), Ordering::Release);
    STATES_MADE.store(0, Ordering::Relaxed);
    WITHOUT_NAME.store(0, Ordering::Relaxed);
    NAMES.forget();
    FREE.forget();
    SHARED_STATES.forget();
}

//! The calling thread's state: how a hook finds the state, how a thread gets one, and how the state is released when the
//! thread ends.
//!
//! The pointer to the state lies in a `const` thread-local ([`reentry`]) without a destructor, so that a hook can use
//! it at any moment of a thread's life. The end of a thread is detected by a pthread key, not by a thread-local's
//! destructor: registering a destructor takes the dynamic linker's lock, so a thread that allocates while a library is
//! being loaded would deadlock. Events that a thread makes after its state was released, and events of threads beyond
//! [`MAX_STATES`], go through a few states that are shared under a lock.
#![allow(unsafe_code)]

use super::RECORDER;
use super::fork::ForkCell;
use super::kits;
use super::order::stamp;
use super::same_memory::is_copy;
use super::thread_names::register_this_thread;
use super::thread_sums;
use super::threads::{ThreadLocal, ThreadState, new_state};
use crate::clock::ticks_after;
use crate::host::Sampler;
use crate::signals::CancellationBlocked;
use crate::stack::capture::{Registers, StackBounds};
use crate::stack::separate_stack;
use crate::{reentry, scope, settings};
use memtrack_model::event::{ScopeId, ThreadId};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of exclusive states, each of which belongs to a single thread at any time. A state takes 3 KB,
/// and a small chunk per device.
pub(super) const MAX_STATES: usize = 1 << 12;

/// The maximum memory of all states.
#[cfg(test)]
pub(super) const MAX_BYTES: usize = (MAX_STATES + SHARED_STATE_COUNT) * size_of::<ThreadState>();

/// The exclusive states, each of which belongs to a single thread at any time.
struct ExclusiveStates {
    made: usize,
    /// The states of threads that have ended. It has capacity for all states, so that it never grows under the lock.
    free: Vec<&'static ThreadState>,
}

impl ExclusiveStates {
    fn new() -> Mutex<Self> {
        Mutex::new(Self { made: 0, free: Vec::with_capacity(MAX_STATES) })
    }
}

/// Locked when a thread begins to record, and when it ends.
static EXCLUSIVE_STATES: ForkCell<Mutex<ExclusiveStates>> = ForkCell::new(ExclusiveStates::new);

/// The number of states for threads that have no exclusive one, because they are ending or there are too many.
pub(super) const SHARED_STATE_COUNT: usize = 8;
type SharedStates = [Mutex<Option<&'static ThreadState>>; SHARED_STATE_COUNT];
static SHARED_STATES: ForkCell<SharedStates> = ForkCell::new(|| std::array::from_fn(|_| Mutex::default()));

thread_local! {
    /// [`STAGE_NEW`], [`STAGE_SHARED`], or the number of times that the release of the thread's state was postponed.
    static STAGE: Cell<u8> = const { Cell::new(STAGE_NEW) };
}

/// The thread has no state yet.
const STAGE_NEW: u8 = 0;
/// [`on_thread_end`] has been called this many times for the thread, so the thread's state is released.
const STAGE_ENDING: u8 = 3;
/// The thread has no exclusive state and will not get one.
const STAGE_SHARED: u8 = 255;

/// Returns whether `state` belongs to the calling thread.
pub(super) fn is_current(state: &ThreadState) -> bool {
    std::ptr::eq(reentry::state(), state)
}

/// Notes that the calling thread's current scope has changed. Costs two loads, two stores and a comparison if nothing
/// was allocated in the previous scope.
#[inline]
pub fn note_scope_change(scope: ScopeId) {
    // SAFETY: states are never freed.
    if let Some(state) = unsafe { reentry::state().as_ref() } {
        state.change_scope(scope);
    }
}

/// Returns the calling thread's state, for code that records no event and enters no hook; `None` inside memtrack, and
/// for a thread that has no state yet or whose state was released.
#[inline(always)]
pub(crate) fn thread_outside_hooks() -> Option<CurrentThread> {
    // SAFETY: states are never freed; the thread owns this one.
    unsafe { reentry::state_outside().as_ref() }.map(|state| CurrentThread { state })
}

/// Runs work that needs up to 128 KiB of stack, either on the thread's stack, if that is known to have so much left, or on
/// one of memtrack's separate stacks. Takes no lock; can be called in a signal handler.
pub fn with_room<R>(work: impl FnOnce() -> R) -> R {
    let sp = Registers::here().stack_pointer();
    // Inside a hook, the hook uses the state, so the bounds are not read and a separate stack is used.
    let has_room = thread_outside_hooks()
        .is_some_and(|thread| thread.local().bounds.has_below(sp, separate_stack::ROOM_BYTES));
    if has_room { work() } else { separate_stack::run(work) }
}

/// A guard for the calling thread inside a hook: the thread's state is marked active until the guard is dropped.
pub(crate) struct InHook {
    state: &'static ThreadState,
    /// The lock of a shared state, from `Box::into_raw`. It is a word without drop glue, so that the guard needs no
    /// address and stays in registers: in memory, the stores that write it and the loads that copy it would stall each
    /// other (5 to 10 ns per event).
    shared: Option<NonNull<SharedLocked>>,
}

type SharedLocked = MutexGuard<'static, Option<&'static ThreadState>>;

/// The state of the calling thread. While this value is used, the thread must be inside a hook, or in code that enters
/// no hook ([`thread_outside_hooks`]).
#[derive(Clone, Copy)]
pub(crate) struct CurrentThread {
    pub(crate) state: &'static ThreadState,
}

impl InHook {
    /// Enters a hook: finds or creates the thread's state and marks it active. Allocates at a thread's first event.
    #[inline(always)]
    pub(crate) fn enter() -> (Self, CurrentThread) {
        let state = reentry::state();
        // SAFETY: states are never freed.
        let hook = match unsafe { state.as_ref() } {
            Some(state) => Self { state, shared: None },
            None => Self::first(),
        };
        let state = hook.state;
        state.activity.store(state.activity.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Pairs with the collector's heavy barrier: the compiler must not move the hook's reads before the store to
        // `activity`.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        (hook, CurrentThread { state })
    }

    /// Finds or creates the state, on a separate stack because the bounds of the thread's stack are still unknown.
    #[cold]
    fn first() -> Self {
        separate_stack::run(Self::first_with_room)
    }

    fn first_with_room() -> Self {
        let _no_cancellation = CancellationBlocked::now();
        // In a forked child this creates the recorder, while there is enough stack for it.
        RECORDER.get();
        if STAGE.get() != STAGE_SHARED {
            if let Some(state) = acquire_state() {
                claim(state, register_this_thread());
                state.change_scope(scope::current_id());
                reentry::set_state(state);
                register_thread_end(state);
                return Self { state, shared: None };
            }
            STAGE.set(STAGE_SHARED);
        }
        // The address of a thread-local differs between threads, so it spreads them over the states.
        let mut shared =
            lock_any(SHARED_STATES.get(), STAGE.with(|stage| std::ptr::from_ref(stage).addr() >> 12));
        let state = *shared.get_or_insert_with(new_shared_state);
        // The previous user of the state may have been a different thread, with a different stack.
        claim(state, ThreadId::NONE);
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
    // SAFETY: the pointer comes from `Box::into_raw`, and only the drop of the `InHook` that owns it calls this.
    drop(unsafe { Box::from_raw(shared.as_ptr()) });
}

impl CurrentThread {
    /// Returns whether the part of the thread's stack below `sp` has room for the work of a hook.
    #[inline(always)]
    pub(super) fn has_room(self, sp: u64) -> bool {
        self.local().bounds.has_below(sp, separate_stack::ROOM_BYTES)
    }

    /// Returns the part of the state that only the owning thread uses.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn local(&self) -> &mut ThreadLocal {
        // SAFETY: this thread owns the state (or holds the lock of a shared one), the re-entry guard prevents a nested
        // hook in this thread, and no caller holds the result across another call of `local`. `claim` has initialized
        // it.
        unsafe { self.state.local() }
    }

    /// Returns a new stamp for something that has no address, and stores it as the thread's newest.
    #[inline]
    pub(crate) fn stamp(self) -> u64 {
        let newest = &self.local().newest_ticks;
        let ticks = stamp(ticks_after(newest.get()), 0, newest.get());
        newest.set(ticks);
        ticks
    }

    /// Returns whether several threads share the state.
    pub(super) fn is_shared(self) -> bool {
        !self.state.is_current()
    }

    /// Returns the thread's id.
    #[inline(always)]
    pub(crate) fn thread_id(self) -> ThreadId {
        ThreadId(self.state.id.load(Ordering::Relaxed))
    }
}

/// Locks the first of `mutexes` that is free, searching from index `number`; if none is free, waits for the one at that
/// index.
pub(super) fn lock_any<T>(mutexes: &'static [Mutex<T>], number: usize) -> MutexGuard<'static, T> {
    let free = (0..mutexes.len()).find_map(|next| mutexes[(number + next) % mutexes.len()].try_lock().ok());
    free.unwrap_or_else(|| mutexes[number % mutexes.len()].lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns a free state, or a new one; `None` when the maximum number is in use.
fn acquire_state() -> Option<&'static ThreadState> {
    let mut states = EXCLUSIVE_STATES.lock();
    if let Some(state) = states.free.pop() {
        thread_sums::add_thread(state);
        return Some(state);
    }
    if states.made >= settings::eighth_if_small(MAX_STATES) {
        return None;
    }
    states.made += 1;
    // The state is created while no lock is held.
    drop(states);
    let state = new_state();
    let _alone = EXCLUSIVE_STATES.lock();
    thread_sums::add_thread(state);
    Some(state)
}

/// Creates a state that threads share and that lives as long as the process.
fn new_shared_state() -> &'static ThreadState {
    let state = new_state();
    let _alone = EXCLUSIVE_STATES.lock();
    thread_sums::add_thread(state);
    state
}

/// Makes the calling thread, whose id is `thread`, the owner of a state.
fn claim(state: &'static ThreadState, thread: ThreadId) {
    state.id.store(thread.0, Ordering::Relaxed);
    let bounds = StackBounds::of_this_thread();
    // SAFETY: the state belongs to the calling thread: it is new, or was in the list of free states, or its lock is
    // held.
    match unsafe { &mut *state.local.get() } {
        Some(local) => local.bounds = bounds,
        empty => {
            *empty =
                Some(ThreadLocal { bounds, kit: None, sampler: Sampler::new(), newest_ticks: Cell::new(0) });
        }
    }
}

/// The pthread key plus one, or 0 before the key is created. The C library calls [`on_thread_end`] for the key when a
/// thread ends. Creating and setting the key takes no lock.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Registers [`on_thread_end`] to be called with `state` when the calling thread ends. If no pthread key is left,
/// states are not reused, and eventually threads have to share them.
fn register_thread_end(state: &'static ThreadState) {
    if let Some(key) = key_of_thread_end() {
        // SAFETY: the key was created here.
        unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(state).cast()) };
    }
}

/// Returns the pthread key, which the first call creates; `None` if none is left. Called early, because the C library needs
/// no memory for the values of the first keys of a process.
pub fn key_of_thread_end() -> Option<libc::pthread_key_t> {
    let key = KEY.load(Ordering::Acquire);
    if key != 0 {
        return Some(key - 1);
    }
    // SAFETY: the functions access only the key that was just created.
    unsafe {
        let mut new: libc::pthread_key_t = 0;
        if libc::pthread_key_create(&mut new, Some(on_thread_end)) != 0 {
            return None;
        }
        match KEY.compare_exchange(0, new + 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(new),
            Err(other) => {
                libc::pthread_key_delete(new);
                Some(other - 1)
            }
        }
    }
}

/// Releases the state. Called by the C library in a thread that ends, after all destructors of thread-locals.
extern "C" fn on_thread_end(state: *mut c_void) {
    if is_copy() {
        return;
    }
    let _inside = reentry::enter();
    // SAFETY: the value was set by `register_thread_end`; states are never freed.
    let state = unsafe { &*state.cast::<ThreadState>() };
    if !std::ptr::eq(reentry::state(), state) {
        // This is a forked child, where the state was reset.
        return;
    }
    let rounds = STAGE.get() + 1;
    if rounds < STAGE_ENDING {
        // Destructors of other keys run in the same round, and their frees are attributed better while the thread still
        // has its state. The C library makes at least four rounds.
        STAGE.set(rounds);
        return register_thread_end(state);
    }
    STAGE.set(STAGE_SHARED);
    state.change_scope(ScopeId::NONE);
    reentry::set_state(std::ptr::null());
    // SAFETY: the calling thread owns the state until it is in the list of free states.
    let kit = unsafe { state.local() }.kit.take();
    if let Some(kit) = kit {
        kits::release(kit);
    }
    let mut states = EXCLUSIVE_STATES.lock();
    thread_sums::remove_thread(state);
    states.free.push(state);
}

/// Resets the calling thread's state in a forked child: the states belong to the parent's threads. The thread that
/// forked is the only one in the child, so no other thread-locals need a reset.
pub(super) fn reset_after_fork() {
    reentry::set_state(std::ptr::null());
    STAGE.set(STAGE_NEW);
}

//! The calling thread's state: how a hook finds it, how a thread gets one, and how it is released when the thread
//! ends.
//!
//! The pointer to the state lies in a `const` thread-local ([`reentry`]) without a destructor, so that a hook can use
//! it at any moment of a thread's life. The end of a thread is noticed by a key of the C library's threads, not by a
//! thread-local's destructor: registering one takes the dynamic linker's lock, for which a thread that allocates
//! while a library is being loaded would wait for ever. Events of a thread after its end, and of threads beyond
//! [`MAX_STATES`], go through a few states that are shared under a lock.
#![allow(unsafe_code)]

use super::RECORDER;
use super::fork::ForkCell;
use super::kits;
use super::thread_names::name_this_thread;
use super::thread_sums;
use super::threads::{ThreadLocal, ThreadState, make};
use crate::host::Sampler;
use crate::signals::CancellationBlocked;
use crate::stack::capture::{Registers, StackBounds};
use crate::stack::separate_stack;
use crate::{reentry, scope};
use memtrack_model::event::{ScopeId, ThreadId};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The largest number of states that belong to one thread at a time. They take 3 KB each, and a small chunk per
/// device.
pub(super) const MAX_STATES: usize = 1 << 12;

/// The most memory that all states can take.
#[cfg(test)]
pub(super) const MAX_BYTES: usize = (MAX_STATES + SHARED) * size_of::<ThreadState>();

/// The states that belong to one thread at a time.
struct ExclusiveStates {
    made: usize,
    /// The states of threads that have ended. Has room for all, so that it never grows under the lock.
    free: Vec<&'static ThreadState>,
}

impl ExclusiveStates {
    fn new() -> Mutex<Self> {
        Mutex::new(Self { made: 0, free: Vec::with_capacity(MAX_STATES) })
    }
}

/// Locked when a thread begins to record, and when it ends.
static EXCLUSIVE_STATES: ForkCell<Mutex<ExclusiveStates>> = ForkCell::new(ExclusiveStates::new);

fn exclusive_states() -> MutexGuard<'static, ExclusiveStates> {
    EXCLUSIVE_STATES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The states for threads that have none of their own: they are ending, or there are too many.
pub(super) const SHARED: usize = 8;
type SharedStates = [Mutex<Option<&'static ThreadState>>; SHARED];
static SHARED_STATES: ForkCell<SharedStates> = ForkCell::new(|| std::array::from_fn(|_| Mutex::default()));

thread_local! {
    /// The work of [`InHook::first`] for the thread, and the number of times that its end was postponed.
    static STAGE: Cell<u8> = const { Cell::new(NEW) };
}

/// The thread has no state yet.
const NEW: u8 = 0;
/// The thread's destructor ran so many times.
const ENDING: u8 = 3;
/// The thread has no state of its own, and gets none.
const SHARES: u8 = 255;

/// Returns whether `state` belongs to the calling thread.
pub(super) fn is_current(state: &ThreadState) -> bool {
    std::ptr::eq(reentry::state(), state)
}

/// Notes that the calling thread enters another scope. Two loads, two stores and a comparison while nothing was
/// allocated.
#[inline]
pub fn scope_changed(scope: ScopeId) {
    // SAFETY: states are never freed.
    if let Some(state) = unsafe { reentry::state().as_ref() } {
        state.change_scope(scope);
    }
}

/// Returns the calling thread's state, for code that makes no event and enters no hook; `None` inside memtrack, and
/// for a thread that has no state yet, or no longer.
#[inline(always)]
pub(crate) fn without_hook() -> Option<CurrentThread> {
    // SAFETY: states are never freed; the thread owns this one.
    unsafe { reentry::state_outside().as_ref() }.map(|state| CurrentThread { state })
}

/// Does work that needs up to 128 KiB of stack: in place if the calling thread is known to have them, otherwise on a
/// separate stack of memtrack. Takes no lock; may be called in a signal handler.
pub fn with_room<R>(work: impl FnOnce() -> R) -> R {
    let sp = Registers::here().stack_pointer();
    // Inside a hook the state is in use.
    let has_room =
        without_hook().is_some_and(|thread| thread.local().bounds.has_below(sp, separate_stack::ROOM_BYTES));
    if has_room { work() } else { separate_stack::run(work) }
}

/// The calling thread inside a hook: its state is marked active until this is dropped.
pub(crate) struct InHook {
    state: &'static ThreadState,
    /// From `Box::into_raw`. A word without drop glue, so that a hook needs no address and stays in registers: in
    /// memory, the stores that write it and the loads that copy it would stall each other (5 to 10 ns per event).
    shared: Option<NonNull<SharedLocked>>,
}

type SharedLocked = MutexGuard<'static, Option<&'static ThreadState>>;

/// The state of the calling thread, which is inside a hook as long as this is used.
#[derive(Clone, Copy)]
pub(crate) struct CurrentThread {
    pub(crate) state: &'static ThreadState,
}

impl InHook {
    /// Enters a hook: finds or makes the thread's state and marks it active. Allocates at a thread's first event.
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
        // Pairs with the collector's heavy barrier: the compiler must not move the hook's reads before the mark.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        (hook, CurrentThread { state })
    }

    /// Finds or makes the state on a separate stack: how much of the thread's stack is left is still unknown.
    #[cold]
    fn first() -> Self {
        separate_stack::run(Self::first_with_room)
    }

    fn first_with_room() -> Self {
        let _no_cancellation = CancellationBlocked::now();
        // In the child of a fork it is made now: here there is enough stack for it.
        RECORDER.get();
        if STAGE.get() != SHARES {
            if let Some(state) = take_state() {
                claim(state, name_this_thread());
                state.change_scope(scope::current_id());
                reentry::set_state(state);
                register_thread_end(state);
                return Self { state, shared: None };
            }
            STAGE.set(SHARES);
        }
        // Each thread has thread-locals of its own: their address distinguishes the threads.
        let mut shared =
            lock_any(SHARED_STATES.get(), STAGE.with(|stage| std::ptr::from_ref(stage).addr() >> 12));
        let state = *shared.get_or_insert_with(make_shared);
        // Another thread than last time, on another stack.
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
    // SAFETY: it comes from `Box::into_raw`, and only the drop of the hook that holds it calls this.
    drop(unsafe { Box::from_raw(shared.as_ptr()) });
}

impl CurrentThread {
    /// Returns whether the part of the thread's stack below `sp` has room for the work of a hook.
    #[inline(always)]
    pub(super) fn has_room(self, sp: u64) -> bool {
        self.local().bounds.has_below(sp, separate_stack::ROOM_BYTES)
    }

    /// Returns the parts that only the owning thread uses.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn local(&self) -> &mut ThreadLocal {
        // SAFETY: this thread owns the state (or holds the lock of a shared one), the re-entry guard keeps a second
        // hook of this thread out, and no caller holds the result across another call of `local`. `claim` has filled
        // it.
        unsafe { self.state.local() }
    }

    /// Returns whether the state is shared by threads.
    pub(super) fn is_shared(self) -> bool {
        !self.state.is_current()
    }

    /// Returns the thread's id.
    #[inline(always)]
    pub(crate) fn thread(self) -> ThreadId {
        ThreadId(self.state.id.load(Ordering::Relaxed))
    }
}

/// Locks the first free one of `all`, searching from index `number`; if none is free, waits for that one.
pub(super) fn lock_any<T>(all: &'static [Mutex<T>], number: usize) -> MutexGuard<'static, T> {
    let free = (0..all.len()).find_map(|next| all[(number + next) % all.len()].try_lock().ok());
    free.unwrap_or_else(|| all[number % all.len()].lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns a free state, or a new one; `None` when there are as many as allowed.
fn take_state() -> Option<&'static ThreadState> {
    let mut states = exclusive_states();
    if let Some(state) = states.free.pop() {
        thread_sums::add_thread(state);
        return Some(state);
    }
    if states.made == MAX_STATES {
        return None;
    }
    states.made += 1;
    // Made without a lock held.
    drop(states);
    let state = make();
    let _alone = exclusive_states();
    thread_sums::add_thread(state);
    Some(state)
}

/// Makes a state that threads share; it lives as long as the process.
fn make_shared() -> &'static ThreadState {
    let state = make();
    let _alone = exclusive_states();
    thread_sums::add_thread(state);
    state
}

/// Makes the calling thread, with its id, the owner of a state.
fn claim(state: &'static ThreadState, thread: ThreadId) {
    state.id.store(thread.0, Ordering::Relaxed);
    let bounds = StackBounds::of_this_thread();
    // SAFETY: the state is the calling thread's: it is new, was taken from the free ones, or its lock is held.
    match unsafe { &mut *state.local.get() } {
        Some(own) => own.bounds = bounds,
        empty => {
            *empty =
                Some(ThreadLocal { bounds, kit: None, sampler: Sampler::new(), newest_ticks: Cell::new(0) });
        }
    }
}

/// The key for which the C library calls [`thread_ends`] when a thread ends, plus one; 0 before it was made. Making
/// and setting it takes no lock.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Registers [`thread_ends`] to be called with `state` when the calling thread ends. If the C library has no key
/// left, states are not reused, and soon threads have to share them.
fn register_thread_end(state: &'static ThreadState) {
    let mut key = KEY.load(Ordering::Acquire);
    // SAFETY: the functions access only the key that they are given, or the one that this call has just made.
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
    // SAFETY: the value was set by `register_thread_end`; states are never freed.
    let state = unsafe { &*state.cast::<ThreadState>() };
    if !std::ptr::eq(reentry::state(), state) {
        // The child of a fork has started anew.
        return;
    }
    let rounds = STAGE.get() + 1;
    if rounds < ENDING {
        // Other keys' values end in the same round: their frees are attributed better while the thread has its state.
        // The C library makes at least four rounds.
        STAGE.set(rounds);
        return register_thread_end(state);
    }
    STAGE.set(SHARES);
    state.change_scope(ScopeId::NONE);
    reentry::set_state(std::ptr::null());
    // SAFETY: the calling thread owns the state until it is in the list of free ones.
    let kit = unsafe { state.local() }.kit.take();
    if let Some(kit) = kit {
        kits::put_back(kit);
    }
    let mut states = exclusive_states();
    thread_sums::remove_thread(state);
    states.free.push(state);
}

/// Resets the state in the child of a fork: the states belong to the parent's threads. Thread-locals need a reset
/// only in the thread that forked, the only one here.
pub(super) fn reset_after_fork() {
    reentry::set_state(std::ptr::null());
    STAGE.set(NEW);
}

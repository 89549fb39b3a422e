//! The calling thread's own state: how it finds it in a hook, how it gets one, and how it gives it back when it ends.
//!
//! The pointer to the own state lies in a `const` thread-local ([`reentry`]) without a destructor, so that a hook can use it at any
//! moment of a thread's life. That a thread ends is told by a key of the C library's threads, not by a thread-local's
//! destructor: to register one takes the dynamic linker's lock, for which a thread that allocates while a library is
//! being loaded would wait for ever. What a thread allocates after that, and what threads beyond [`MAX_STATES`] do, goes
//! through a few states that are shared under a lock.
#![allow(unsafe_code)]

use super::RECORDER;
use super::fork::ForkCell;
use super::kits;
use super::living;
use super::thread_names::name_this_thread;
use super::threads::{Own, ThreadState, make};
use crate::host::Sampler;
use crate::signals::Uncancelled;
use crate::stack::capture::{Registers, StackBounds};
use crate::stack::own_stack;
use crate::{reentry, scope};
use memtrack_model::event::{ScopeId, ThreadId};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many states there are at most that belong to one thread at a time. They take 3 KB each, and a small chunk per
/// device.
pub(super) const MAX_STATES: usize = 1 << 12;

/// What all states may take.
#[cfg(test)]
pub(super) const MOST_BYTES: usize = (MAX_STATES + SHARED) * size_of::<ThreadState>();

/// The states that belong to one thread at a time.
struct OwnStates {
    made: usize,
    /// Those of threads that have ended. Has room for all, so that it never grows under the lock.
    free: Vec<&'static ThreadState>,
}

impl OwnStates {
    fn new() -> Mutex<Self> {
        Mutex::new(Self { made: 0, free: Vec::with_capacity(MAX_STATES) })
    }
}

/// Locked when a thread begins to record, and when it ends.
static OWN_STATES: ForkCell<Mutex<OwnStates>> = ForkCell::new(OwnStates::new);

fn own_states() -> MutexGuard<'static, OwnStates> {
    OWN_STATES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The states of threads that have none of their own: they are ending, or too many.
pub(super) const SHARED: usize = 8;
type SharedStates = [Mutex<Option<&'static ThreadState>>; SHARED];
static SHARED_STATES: ForkCell<SharedStates> = ForkCell::new(|| std::array::from_fn(|_| Mutex::default()));

thread_local! {
    /// What [`InHook::first`] does for the thread, and how often its end was put off.
    static STAGE: Cell<u8> = const { Cell::new(NEW) };
}

/// Has no state yet.
const NEW: u8 = 0;
/// Was told of its end so many times.
const ENDING: u8 = 3;
/// Has no state of its own, and gets none.
const SHARES: u8 = 255;

/// Whether `state` is the calling thread's.
pub(super) fn is(state: &ThreadState) -> bool {
    std::ptr::eq(reentry::state(), state)
}

/// The calling thread goes into another scope. Two loads, two stores and a comparison while nothing was allocated.
#[inline]
pub fn scope_changed(scope: ScopeId) {
    // SAFETY: states are never freed.
    if let Some(state) = unsafe { reentry::state().as_ref() } {
        state.change_scope(scope);
    }
}

/// The calling thread's state, for what makes no event and enters no hook; `None` inside memtrack, and for a thread that has
/// none yet, or none any more.
#[inline(always)]
pub(crate) fn without_hook() -> Option<Mine> {
    // SAFETY: states are never freed; the thread owns this one.
    unsafe { reentry::state_outside().as_ref() }.map(|state| Mine { state })
}

/// Does work that needs up to 128 KiB of stack: here where the calling thread is known to have them, else on a
/// stack of memtrack's own. Takes no lock; may be called in a signal's handler.
pub fn with_room<R>(work: impl FnOnce() -> R) -> R {
    let sp = Registers::here().stack_pointer();
    // Inside a hook the state is in use.
    let has_room = without_hook().is_some_and(|mine| mine.own().bounds.has_below(sp, own_stack::ROOM_BYTES));
    if has_room { work() } else { own_stack::run(work) }
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
        let mine = reentry::state();
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
        let _uncancelled = Uncancelled::now();
        // In the child of a fork it is made now: here there is room for it.
        RECORDER.get();
        if STAGE.get() != SHARES {
            if let Some(state) = take_state() {
                own(state, name_this_thread());
                state.change_scope(scope::current_id());
                reentry::set_state(state);
                tell_when_the_thread_ends(state);
                return Self { state, shared: None };
            }
            STAGE.set(SHARES);
        }
        // Each thread has thread-locals of its own: their address tells the threads apart.
        let mut shared =
            one_of(SHARED_STATES.get(), STAGE.with(|stage| std::ptr::from_ref(stage).addr() >> 12));
        let state = *shared.get_or_insert_with(make_shared);
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
    let mut states = own_states();
    if let Some(state) = states.free.pop() {
        living::begins(state);
        return Some(state);
    }
    if states.made == MAX_STATES {
        return None;
    }
    states.made += 1;
    // Made while nothing is locked.
    drop(states);
    let state = make();
    let _alone = own_states();
    living::begins(state);
    Some(state)
}

/// A state that threads share; it lives as long as the process.
fn make_shared() -> &'static ThreadState {
    let state = make();
    let _alone = own_states();
    living::begins(state);
    state
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
    if !std::ptr::eq(reentry::state(), state) {
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
    reentry::set_state(std::ptr::null());
    // SAFETY: the calling thread owns the state until it is in the list of free ones.
    let kit = unsafe { state.own() }.kit.take();
    if let Some(kit) = kit {
        kits::give_back(kit);
    }
    let mut states = own_states();
    living::ends(state);
    states.free.push(state);
}

/// In the child of a fork: the states belong to the parent's threads. Of what each thread has for itself only the one
/// that forked has any here.
pub(super) fn reset_after_fork() {
    reentry::set_state(std::ptr::null());
    STAGE.set(NEW);
}

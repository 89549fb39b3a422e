//! Keeps memtrack out of its own statistics. Allocations that memtrack itself makes on a user's thread happen inside a
//! [`ReentryGuard`]; the hooks check [`is_inside`] first and, if it is true, record nothing. The thread-local counter
//! has a constant initializer and no destructor, so that an allocator can read it at any moment of a thread's life.

use crate::events::ThreadState;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

/// The data of a thread that a hook reads first. It is in a single thread-local, because each thread-local costs a
/// look-up, and a call in a shared library.
struct ThreadData {
    depth: Cell<u32>,
    /// Whether the thread is in a call that an allocator may make while it holds its locks.
    is_mapping: Cell<bool>,
    /// The id of the task that the thread polls; 0 outside all tasks. It is here and not with the scope because only events of
    /// the heap read it, which read the other fields, too.
    task: Cell<u64>,
    /// The state that [`current_thread`](crate::events) keeps for the thread; null if there is none.
    state: Cell<*const ThreadState>,
    /// Equal to `state` while the depth is 0, otherwise null, so that blocks that are only counted need one load.
    state_outside: Cell<*const ThreadState>,
}

thread_local! {
    static THREAD: ThreadData = const {
        ThreadData {
            depth: Cell::new(0),
            is_mapping: Cell::new(false),
            task: Cell::new(0),
            state: Cell::new(ptr::null()),
            state_outside: Cell::new(ptr::null()),
        }
    };
}

impl ThreadData {
    #[inline(always)]
    fn set_depth(&self, depth: u32) {
        self.depth.set(depth);
        self.state_outside.set(if depth == 0 { self.state.get() } else { ptr::null() });
    }
}

/// Returns the calling thread's state; null if the thread has no state.
#[inline(always)]
pub(crate) fn state() -> *const ThreadState {
    THREAD.with(|thread| thread.state.get())
}

/// Returns the calling thread's state; null while the thread is inside memtrack, or if it has no state.
#[inline(always)]
pub(crate) fn state_outside() -> *const ThreadState {
    THREAD.with(|thread| thread.state_outside.get())
}

/// Returns the id of the task that the calling thread polls; 0 outside all tasks.
#[inline(always)]
pub(crate) fn task() -> u64 {
    THREAD.with(|thread| thread.task.get())
}

/// Sets the id of the task that the calling thread polls, and returns the previous one.
#[inline(always)]
pub(crate) fn replace_task(task: u64) -> u64 {
    THREAD.with(|thread| thread.task.replace(task))
}

/// Sets the calling thread's state, or removes it if `state` is null.
pub(crate) fn set_state(state: *const ThreadState) {
    THREAD.with(|thread| {
        thread.state.set(state);
        thread.set_depth(thread.depth.get());
    });
}

/// Runs `act` in a call that an allocator may make while it holds its locks, such as `mmap`.
#[inline]
pub(crate) fn in_mapping<R>(act: impl FnOnce() -> R) -> R {
    THREAD.with(|thread| thread.is_mapping.set(true));
    let result = act();
    THREAD.with(|thread| thread.is_mapping.set(false));
    result
}

/// Returns whether the program's allocator must not be called, because the calling thread may hold its locks.
pub(crate) fn is_mapping() -> bool {
    THREAD.with(|thread| thread.is_mapping.get())
}

/// A guard that marks the thread as inside memtrack: its allocations are not recorded.
#[must_use = "the thread counts as inside memtrack only while the guard lives"]
pub struct ReentryGuard {
    /// Keeps the guard on this thread, because the depth that it restores belongs to this thread.
    not_send: PhantomData<*const ()>,
}

#[inline(always)]
fn change_depth(by: i32) {
    THREAD.with(|thread| thread.set_depth(thread.depth.get().wrapping_add_signed(by)));
}

/// Marks the thread as inside memtrack until the guard is dropped. Guards nest.
#[inline]
pub fn enter() -> ReentryGuard {
    change_depth(1);
    ReentryGuard { not_send: PhantomData }
}

/// Runs `act` as if the thread were not inside memtrack: the allocations of `act` count as the program's.
pub fn outside<R>(act: impl FnOnce() -> R) -> R {
    struct RestoreDepth(u32);
    impl Drop for RestoreDepth {
        fn drop(&mut self) {
            THREAD.with(|thread| thread.set_depth(self.0));
        }
    }
    let _restore = RestoreDepth(THREAD.with(|thread| thread.depth.get()));
    THREAD.with(|thread| thread.set_depth(0));
    act()
}

/// Returns whether the thread is inside memtrack.
#[inline]
pub fn is_inside() -> bool {
    THREAD.with(|thread| thread.depth.get() != 0)
}

/// Creates a value inside memtrack and returns a clone that belongs to the program. The allocations and frees of the
/// clone are recorded, wherever it is dropped; the allocations and frees of the original are not.
pub fn clone_for_program<T: Clone>(make: impl FnOnce() -> T) -> T {
    let internal = {
        let _inside = enter();
        make()
    };
    let copy = internal.clone();
    let _inside = enter();
    drop(internal);
    copy
}

impl Drop for ReentryGuard {
    #[inline]
    fn drop(&mut self) {
        change_depth(-1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_nest() {
        assert!(!is_inside());
        let outer = enter();
        let inner = enter();
        drop(inner);
        assert!(is_inside());
        drop(outer);
        assert!(!is_inside());
    }
}

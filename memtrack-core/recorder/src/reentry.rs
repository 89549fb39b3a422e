//! Keeps memtrack out of its own statistics. Allocations that memtrack itself makes on a user's thread happen inside
//! a [`ReentryGuard`]; the hooks check [`is_inside`] first and record nothing then. The counter has a constant
//! initialiser and no destructor, so that it can be read inside an allocator at any moment of a thread's life.

use crate::events::ThreadState;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

/// The data of a thread that a hook reads first. One thread-local: each takes a look-up, in a library a call.
struct Here {
    depth: Cell<u32>,
    /// The thread's state, for [`current_thread`](crate::events); null if it has none.
    state: Cell<*const ThreadState>,
    /// The same while the depth is 0, and null otherwise: one load for blocks that are only counted.
    state_outside: Cell<*const ThreadState>,
}

thread_local! {
    static HERE: Here = const {
        Here { depth: Cell::new(0), state: Cell::new(ptr::null()), state_outside: Cell::new(ptr::null()) }
    };
}

impl Here {
    #[inline(always)]
    fn set_depth(&self, depth: u32) {
        self.depth.set(depth);
        self.state_outside.set(if depth == 0 { self.state.get() } else { ptr::null() });
    }
}

/// Returns the calling thread's state; null if it has none.
#[inline(always)]
pub(crate) fn state() -> *const ThreadState {
    HERE.with(|here| here.state.get())
}

/// Returns the calling thread's state; null while it is inside memtrack, or if it has none.
#[inline(always)]
pub(crate) fn state_outside() -> *const ThreadState {
    HERE.with(|here| here.state_outside.get())
}

/// Sets the calling thread's state; null: it has none.
pub(crate) fn set_state(state: *const ThreadState) {
    HERE.with(|here| {
        here.state.set(state);
        here.set_depth(here.depth.get());
    });
}

/// While it exists, the thread's allocations are memtrack's own.
#[must_use = "the thread counts as inside memtrack only while the guard lives"]
pub struct ReentryGuard {
    /// The depth belongs to this thread.
    not_send: PhantomData<*const ()>,
}

#[inline(always)]
fn deeper(by: i32) {
    HERE.with(|here| here.set_depth(here.depth.get().wrapping_add_signed(by)));
}

/// Marks the thread as being inside memtrack until the guard is dropped; nests.
#[inline]
pub fn enter() -> ReentryGuard {
    deeper(1);
    ReentryGuard { not_send: PhantomData }
}

/// Runs `act` as if the thread were not inside memtrack: its allocations belong to the program.
pub fn outside<R>(act: impl FnOnce() -> R) -> R {
    struct Back(u32);
    impl Drop for Back {
        fn drop(&mut self) {
            HERE.with(|here| here.set_depth(self.0));
        }
    }
    let _back = Back(HERE.with(|here| here.depth.get()));
    HERE.with(|here| here.set_depth(0));
    act()
}

/// Returns whether the thread is inside memtrack.
#[inline]
pub fn is_inside() -> bool {
    HERE.with(|here| here.depth.get() != 0)
}

/// Makes a value inside memtrack and returns a copy that belongs to the program: the copy's allocations are recorded
/// when it is made and when it is dropped, wherever that is, while those of the original are in no statistics.
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
        deeper(-1);
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

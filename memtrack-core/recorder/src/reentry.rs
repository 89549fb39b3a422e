//! Keeps memtrack out of its own books. Whatever memtrack itself allocates on a user's thread happens inside a
//! [`ReentryGuard`]; the hooks look at [`is_inside`] first and record nothing then. The counter has a constant
//! initialiser and no destructor, so that it can be read inside an allocator at any moment of a thread's life.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, the thread's allocations are memtrack's own.
#[must_use = "the thread counts as inside memtrack only while the guard lives"]
pub struct ReentryGuard {
    /// The depth belongs to this thread.
    not_send: PhantomData<*const ()>,
}

/// Marks the thread as being inside memtrack until the guard is dropped; nests.
#[inline]
pub fn enter() -> ReentryGuard {
    DEPTH.set(DEPTH.get() + 1);
    ReentryGuard { not_send: PhantomData }
}

/// Runs `act` as if the thread were not inside memtrack: what it makes belongs to the program.
pub fn outside<R>(act: impl FnOnce() -> R) -> R {
    struct Back(u32);
    impl Drop for Back {
        fn drop(&mut self) {
            DEPTH.set(self.0);
        }
    }
    let _back = Back(DEPTH.replace(0));
    act()
}

/// Whether the thread is inside memtrack.
#[inline]
pub fn is_inside() -> bool {
    DEPTH.get() != 0
}

/// Marks the thread as being inside memtrack until [`end`]; for what cannot hold a guard.
pub fn begin() {
    DEPTH.set(DEPTH.get() + 1);
}

/// Takes one [`begin`] back.
pub fn end() {
    DEPTH.set(DEPTH.get() - 1);
}

/// Makes a value of memtrack's own and hands the program a copy, which is the program's: it is recorded when it is made
/// and when it is dropped, wherever that is, while what it was made from is in no book.
pub fn hand_over<T: Clone>(make: impl FnOnce() -> T) -> T {
    let ours = {
        let _inside = enter();
        make()
    };
    let theirs = ours.clone();
    let _inside = enter();
    drop(ours);
    theirs
}

impl Drop for ReentryGuard {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
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

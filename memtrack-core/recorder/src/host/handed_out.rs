//! Blocks of memtrack's own that the program was given: the tables of a snapshot. They were not recorded when they were allocated,
//! and so must not be recorded when they are freed, whichever thread frees which part of them, and whenever. They are known
//! by their addresses.
//!
//! Allocating and freeing other blocks costs nothing for that: a small block of these is followed as if it were in the live
//! table, so that its free takes the path of recorded blocks, and only what is not found in that table is searched here.

use super::followed;
use crate::recorder::{ForkCell, sample_threshold_bytes};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The blocks' addresses, and whether each is followed.
static BLOCKS: ForkCell<Mutex<HashSet<(u64, bool), foldhash::fast::FixedState>>> =
    ForkCell::new(Mutex::default);

/// How many there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// What the thread does with blocks that are allocated inside memtrack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Nothing.
    Nothing,
    /// It notes them: they will be the program's to free.
    Collecting,
    /// It changes the set, whose own memory is no part of it.
    Changing,
}

thread_local! {
    static DOING: Cell<Doing> = const { Cell::new(Doing::Nothing) };
}

/// Sets what the thread does until it is dropped.
struct While(Doing);

impl While {
    fn is(doing: Doing) -> Self {
        Self(DOING.replace(doing))
    }
}

impl Drop for While {
    fn drop(&mut self) {
        DOING.set(self.0);
    }
}

/// Makes a value that the program is given, and whose parts it may drop anywhere: what is allocated for it inside memtrack by
/// this thread, and is still there when it is returned, is known by its addresses until it is freed.
pub fn handing_out<R>(make: impl FnOnce() -> R) -> R {
    let _collecting = While::is(Doing::Collecting);
    make()
}

/// Takes note of a block that was allocated inside memtrack, if it is one of those.
#[inline]
pub(super) fn allocated(address: u64, size_bytes: u64) {
    if DOING.get() == Doing::Collecting {
        add(address, size_bytes);
    }
}

#[cold]
fn add(address: u64, size_bytes: u64) {
    let _changing = While::is(Doing::Changing);
    let is_followed = size_bytes < sample_threshold_bytes();
    if BLOCKS.get().lock().unwrap_or_else(PoisonError::into_inner).insert((address, is_followed)) {
        COUNT.fetch_add(1, Ordering::Relaxed);
        if is_followed {
            followed::add(address);
        }
    }
}

/// Whether a block that is about to be freed is one of them. Then it is none from now on.
#[inline]
pub(super) fn takes(address: u64) -> bool {
    COUNT.load(Ordering::Relaxed) > 0 && remove(address)
}

#[cold]
fn remove(address: u64) -> bool {
    if DOING.get() == Doing::Changing {
        return false;
    }
    let _changing = While::is(Doing::Changing);
    let mut blocks = BLOCKS.get().lock().unwrap_or_else(PoisonError::into_inner);
    let found = [true, false].into_iter().find(|&is_followed| blocks.remove(&(address, is_followed)));
    drop(blocks);
    if let Some(is_followed) = found {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        if is_followed {
            followed::remove(address);
        }
    }
    found.is_some()
}

/// A block was reallocated inside memtrack.
pub(super) fn reallocated(old: u64, new: u64, new_size: u64) {
    if takes(old) {
        add(new, new_size);
    } else {
        allocated(new, new_size);
    }
}

/// Forgets them: another session begins, in which blocks from before are as unknown as the program's.
pub(super) fn clear() {
    if COUNT.swap(0, Ordering::Relaxed) > 0 {
        let _changing = While::is(Doing::Changing);
        BLOCKS.get().lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// In the child of a fork.
pub(super) fn leave_behind() {
    COUNT.store(0, Ordering::Relaxed);
}

//! A reserve for when memory runs out. A program that handles a failed allocation must be able to continue even though
//! memtrack needs memory too, and Rust's collections abort the process if an allocation fails. A range of memory is
//! therefore reserved. When one of memtrack's own requests fails, recording ends, and this request and all others are
//! served from the range until the threads have left memtrack. Blocks are never returned to the range. Until it is
//! used, it takes up only address space.

use crate::zeroed::{map_pages, unmap_pages};
use crate::{internal_bytes, reentry, switch};
use std::alloc::Layout;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The size of the reserve in bytes, which is more than all threads inside memtrack can need until they have left it.
pub(crate) const RESERVE_BYTES: usize = 8 << 20;

/// The start address of the reserve, or the largest address while there is none.
static START: AtomicUsize = AtomicUsize::new(usize::MAX);
static USED: AtomicUsize = AtomicUsize::new(0);
static RAN_OUT: AtomicBool = AtomicBool::new(false);

/// Maps the reserve for a session that is starting, unless it is already mapped. If there is no memory for it,
/// recording works without it.
pub(crate) fn prepare() {
    RAN_OUT.store(false, Ordering::Release);
    if START.load(Ordering::Acquire) == usize::MAX {
        let Some(start) = map_pages(RESERVE_BYTES) else { return };
        let address = start.as_ptr().expose_provenance();
        match START.compare_exchange(usize::MAX, address, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => internal_bytes::add_inherited(RESERVE_BYTES),
            // SAFETY: the pages were mapped above, and their address was not published.
            Err(_) => unsafe {
                unmap_pages(start, RESERVE_BYTES);
            },
        }
    }
}

/// Returns whether memory ran out inside memtrack, so that recording has ended.
pub(crate) fn ran_out() -> bool {
    RAN_OUT.load(Ordering::Acquire)
}

/// Returns whether this much memory is available, as far as mapping and unmapping it can show.
pub(crate) fn is_available(bytes: usize) -> bool {
    let bytes = bytes.max(1);
    map_pages(bytes).is_some_and(|start| {
        // SAFETY: the pages were just mapped, and nothing refers to them.
        unsafe { unmap_pages(start, bytes) };
        true
    })
}

/// Allocates from the reserve after the program's allocator has failed. For memtrack itself, returns a zeroed block, or
/// null if the reserve is used up. For the program, always returns null.
#[cold]
pub(crate) fn allocate(layout: Layout) -> *mut u8 {
    if !reentry::is_inside() {
        return null_mut();
    }
    let start = START.load(Ordering::Acquire);
    if start == usize::MAX {
        return null_mut();
    }
    // From here on, frees check whether a block is from the reserve, and nothing is recorded.
    switch::set(switch::RESERVE, true);
    switch::set(switch::EVENTS | switch::SCOPES | switch::HOST | switch::OPERATORS, false);
    RAN_OUT.store(true, Ordering::Release);
    let place = |used: usize| -> Option<(usize, usize)> {
        let from = (start + used).checked_next_multiple_of(layout.align())? - start;
        let to = from.checked_add(layout.size())?;
        (to <= RESERVE_BYTES).then_some((from, to))
    };
    let claimed =
        USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| place(used).map(|(_, to)| to));
    match claimed.ok().and_then(place) {
        Some((from, _)) => std::ptr::with_exposed_provenance_mut(start + from),
        None => null_mut(),
    }
}

/// Returns whether a block is from the reserve and must therefore not be passed to the program's allocator.
#[inline(always)]
pub(crate) fn contains(block: *mut u8) -> bool {
    switch::is_on(switch::RESERVE) && block.addr().wrapping_sub(START.load(Ordering::Relaxed)) < RESERVE_BYTES
}

//! Memory for the moment when there is none. A program that handles a failed allocation must go on although memtrack
//! needs memory too, and Rust's collections abort the process when they get none. So a range of memory waits for the
//! first of memtrack's own requests that fails: it, and the other requests under way, are served from the range, and
//! recording ends. Nothing is freed back to it, and until then it costs address space only.

use crate::{internal_bytes, reentry, switch};
use std::alloc::Layout;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// More than all threads that are inside memtrack at a time can need before they have left it.
pub(crate) const RESERVE_BYTES: usize = 8 << 20;

/// The start address; the largest address while there is none.
static START: AtomicUsize = AtomicUsize::new(usize::MAX);
static USED: AtomicUsize = AtomicUsize::new(0);
static RAN_OUT: AtomicBool = AtomicBool::new(false);

/// Maps the reserve for a session that begins, unless that was done before. If there is no memory for it, recording
/// works without.
pub(crate) fn prepare() {
    RAN_OUT.store(false, Ordering::Release);
    #[cfg(unix)]
    if START.load(Ordering::Acquire) == usize::MAX {
        let (flags, protection) =
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: fresh pages at an address of the kernel's choice.
        let start = unsafe { libc::mmap(null_mut(), RESERVE_BYTES, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return;
        }
        match START.compare_exchange(usize::MAX, start.addr(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => internal_bytes::add_inherited(RESERVE_BYTES),
            // SAFETY: mapped above, and the address was not published.
            Err(_) => unsafe {
                libc::munmap(start, RESERVE_BYTES);
            },
        }
    }
}

/// Returns whether memory ran out inside memtrack, so that recording has ended.
pub(crate) fn ran_out() -> bool {
    RAN_OUT.load(Ordering::Acquire)
}

/// Returns whether so much memory is available, as far as that can be known without keeping it.
pub(crate) fn is_available(bytes: usize) -> bool {
    #[cfg(unix)]
    {
        let (flags, protection) =
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: fresh pages, unmapped untouched.
        unsafe {
            let start = libc::mmap(null_mut(), bytes.max(1), protection, flags, -1, 0);
            start != libc::MAP_FAILED && libc::munmap(start, bytes.max(1)) == 0
        }
    }
    #[cfg(not(unix))]
    {
        let _ = bytes;
        true
    }
}

/// Returns the block to use when the program's allocator has none for `layout`: null for the program, and for
/// memtrack itself a zeroed piece of the reserve, or null when that is used up.
#[cold]
pub(super) fn allocate(layout: Layout) -> *mut u8 {
    if !reentry::is_inside() {
        return null_mut();
    }
    let start = START.load(Ordering::Acquire);
    if start == usize::MAX {
        return null_mut();
    }
    // From here on frees check whether a block is from the reserve; recording ends.
    switch::set(switch::RESERVE, true);
    switch::set(switch::EVENTS | switch::SCOPES | switch::HOST | switch::OPERATORS, false);
    RAN_OUT.store(true, Ordering::Release);
    let place = |used: usize| -> Option<(usize, usize)> {
        let from = (start + used).checked_next_multiple_of(layout.align())? - start;
        let to = from.checked_add(layout.size())?;
        (to <= RESERVE_BYTES).then_some((from, to))
    };
    let taken = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| place(used).map(|(_, to)| to));
    match taken.ok().and_then(place) {
        Some((from, _)) => std::ptr::with_exposed_provenance_mut(start + from),
        None => null_mut(),
    }
}

/// Returns whether a block is from the reserve, and must not go to the program's allocator.
#[inline(always)]
pub(super) fn contains(block: *mut u8) -> bool {
    switch::is_on(switch::RESERVE) && block.addr().wrapping_sub(START.load(Ordering::Relaxed)) < RESERVE_BYTES
}

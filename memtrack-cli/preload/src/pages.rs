//! The pages of the recorder's own heap. They come from one range of addresses, which is reserved when the first page is
//! needed, and then made accessible from its beginning.
//!
//! **Why a range?** A program may have as many mappings as the system allows (65,530), so that no further one can be made. Pages
//! that are next to accessible ones extend a mapping and need no other one. Beyond the range, or if it cannot be
//! reserved, pages are mapped anywhere.

use dlmalloc::Allocator;
use memtrack_recorder::environment;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The size of the range in bytes. It is address space only, until it is used.
const RANGE_BYTES: usize = 64 << 20;
/// The pages become accessible in steps of this many bytes, at least.
const STEP_BYTES: usize = 64 << 10;

/// The value of [`Pages::start`] if there is no range, because it could not be reserved.
const NONE: usize = usize::MAX;

/// The source of pages. Only the thread that holds the heap's lock uses it.
pub(super) struct Pages {
    /// The first address of the range; 0 before the first call, or [`NONE`].
    start: AtomicUsize,
    /// The number of bytes at the beginning of the range that are accessible.
    used: AtomicUsize,
}

impl Pages {
    pub(super) const fn new() -> Self {
        Self { start: AtomicUsize::new(0), used: AtomicUsize::new(0) }
    }

    /// Returns the first address of the range, which the first call reserves.
    fn start(&self) -> Option<usize> {
        let mut start = self.start.load(Ordering::Relaxed);
        if start == 0 {
            // Where the address space is limited, none of it is spent in advance.
            let is_limited = environment::address_space_limit().is_some();
            start = if is_limited {
                NONE
            } else {
                map(RANGE_BYTES, libc::PROT_NONE).map_or(NONE, |range| range.addr())
            };
            self.start.store(start, Ordering::Relaxed);
        }
        (start != NONE).then_some(start)
    }

    /// Makes more of the range accessible, and returns it.
    fn extend(&self, bytes: usize) -> Option<*mut u8> {
        let (start, used) = (self.start()?, self.used.load(Ordering::Relaxed));
        let next: *mut c_void = std::ptr::with_exposed_provenance_mut(start + used);
        // SAFETY: the pages belong to the range, and nothing uses them yet.
        let is_accessible = used + bytes <= RANGE_BYTES
            && unsafe { libc::mprotect(next, bytes, libc::PROT_READ | libc::PROT_WRITE) } == 0;
        is_accessible.then(|| {
            self.used.store(used + bytes, Ordering::Relaxed);
            next.cast()
        })
    }
}

/// Maps new pages anywhere.
fn map(bytes: usize, protection: i32) -> Option<*mut c_void> {
    let no_memory = if protection == libc::PROT_NONE { libc::MAP_NORESERVE } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | no_memory;
    // SAFETY: the call maps new pages at an address that the kernel chooses.
    let pages = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    (pages != libc::MAP_FAILED).then(|| {
        memtrack_recorder::internal_pages::mark(pages.addr(), bytes);
        pages.expose_provenance();
        pages
    })
}

// SAFETY: the returned pages are new, zeroed and accessible, and are never unmapped.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let bytes = size.next_multiple_of(STEP_BYTES);
        let mapped = || map(bytes, libc::PROT_READ | libc::PROT_WRITE).map(<*mut c_void>::cast);
        (self.extend(bytes).or_else(mapped).unwrap_or(null_mut()), bytes, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

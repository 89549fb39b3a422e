//! The sizes of blocks: what jemalloc makes of a request, and the size of a block that is freed. jemalloc offers a function for
//! that, which the linker leaves out of a program that does not call it.
//!
//! All blocks that begin in a page have the same size, because a page belongs to one large block or to a slab of small blocks. So
//! a byte for each page of 4 KiB has the size of the blocks that begin there now. A page gets another size only after its blocks
//! were freed, and the next block there sets it. No lock is needed: if two threads set it at the same time, it is the same.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// The size of jemalloc's pages on x86-64, in bytes.
pub(super) const PAGE_BYTES: usize = 4096;

/// jemalloc's sizes: 8; multiples of 16 up to 128; and from there on four per doubling.
const SMALLEST: usize = 8;
const SPACING: usize = 16;
const LAST_EVENLY_SPACED: usize = 128;
/// The smallest size of a block that has pages of its own.
const SMALLEST_LARGE: usize = 16 << 10;

/// Returns the size of the block that jemalloc returns for a request.
pub(super) fn usable(requested: usize) -> usize {
    if requested <= SMALLEST {
        return SMALLEST;
    }
    let step = match requested {
        ..=LAST_EVENLY_SPACED => SPACING,
        _ => 1 << ((requested - 1).ilog2() - 2),
    };
    requested.checked_next_multiple_of(step).unwrap_or(requested)
}

/// Returns the size of the block for a request with an alignment, which is a power of two.
pub(super) fn usable_aligned(requested: usize, alignment: usize) -> usize {
    let aligned = requested.max(1).checked_next_multiple_of(alignment.max(1)).unwrap_or(requested);
    match usable(aligned) {
        small if small < SMALLEST_LARGE && alignment <= PAGE_BYTES => small,
        _ => usable(requested).max(SMALLEST_LARGE),
    }
}

/// Returns a size as the number of its class, from 1 on.
fn class_of(size: usize) -> u8 {
    if size <= SMALLEST {
        return 1;
    }
    if size <= LAST_EVENLY_SPACED {
        return (size / SPACING) as u8 + 1;
    }
    let doubling = (size - 1).ilog2();
    let step = ((size - 1) >> (doubling - 2)) & 3;
    // At most 10 + 4 * 56 + 3.
    (10 + 4 * (doubling - 7)) as u8 + step as u8
}

/// Returns the size of a class.
fn size_of_class(class: u8) -> usize {
    match usize::from(class) {
        0 | 1 => SMALLEST,
        class @ 2..=9 => (class - 1) * SPACING,
        class => {
            let (doubling, step) = (7 + (class - 10) / 4, (class - 10) % 4);
            (1 << doubling) + ((step + 1) << (doubling - 2))
        }
    }
}

/// A branch is an aligned range of 2 GiB; its bytes are half a MiB of address space, touched where there are blocks.
const BRANCH_BYTES: usize = 1 << 31;
const BRANCH_PAGES: usize = BRANCH_BYTES / PAGE_BYTES;
/// The addresses of programs have at most 48 bits.
const BRANCHES: usize = (1 << 48) / BRANCH_BYTES;

type Branch = [AtomicU8; BRANCH_PAGES];

/// The branches; null until a block begins there. They are never freed.
static ROOT: [AtomicPtr<Branch>; BRANCHES] = [const { AtomicPtr::new(null_mut()) }; BRANCHES];

fn branch_of(block: usize) -> &'static AtomicPtr<Branch> {
    &ROOT[block / BRANCH_BYTES % BRANCHES]
}

fn page_of(block: usize) -> usize {
    block % BRANCH_BYTES / PAGE_BYTES
}

/// Stores the size of a new block, which must be one of [`usable`].
pub(super) fn insert(block: usize, size: usize) {
    let place = branch_of(block);
    let branch = match place.load(Ordering::Acquire) {
        branch if branch.is_null() => new_branch(place),
        branch => branch,
    };
    // SAFETY: the pointer is null, or from `new_branch`, whose memory is zeroed and never unmapped.
    if let Some(branch) = unsafe { branch.as_ref() } {
        let (page, class) = (&branch[page_of(block)], class_of(size));
        if page.load(Ordering::Relaxed) != class {
            page.store(class, Ordering::Relaxed);
        }
    }
}

/// Returns the size of a block that exists; `None` if it is older than the hooks.
pub(super) fn size_of(block: usize) -> Option<usize> {
    // SAFETY: as in `insert`.
    let branch = unsafe { branch_of(block).load(Ordering::Acquire).as_ref() }?;
    let class = branch[page_of(block)].load(Ordering::Relaxed);
    (class != 0).then(|| size_of_class(class))
}

/// Maps a branch; null if there is no memory.
#[cold]
fn new_branch(place: &AtomicPtr<Branch>) -> *mut Branch {
    let bytes = std::mem::size_of::<Branch>();
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping.
    let new = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if new == libc::MAP_FAILED {
        return null_mut();
    }
    memtrack_recorder::internal_pages::mark(new.addr(), bytes);
    match place.compare_exchange(null_mut(), new.cast(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new.cast(),
        Err(other) => {
            // SAFETY: the mapping was just made, and nothing refers to it.
            unsafe { libc::munmap(new, bytes) };
            other
        }
    }
}

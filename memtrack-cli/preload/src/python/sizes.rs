//! The requested size of each recorded block of pymalloc, by address: one byte per 16 bytes of arena, the smallest distance
//! of two blocks. `tracemalloc` counts requested sizes too, so reports agree with it.
//!
//! A byte holds the difference between the size and a base that the blocks of a page share. The blocks of a page are nearly of
//! the same size, because pymalloc fills a page (its *pool*) with blocks of one class; with `PYTHONMALLOC=debug` their sizes
//! still differ by less than 16. pymalloc's own headers, which contain the class, are not read: their layout changes.
//!
//! Lookups take no lock, and need none: CPython calls its allocators under its lock (GIL), and interpreters with separate
//! locks have separate arenas. Tables are never freed, so that they need no lock either, but the pages of a freed arena's
//! bytes are returned to the system. Hence the memory is at most 1/16 of the arenas, and half a KiB per MiB of address space
//! that ever contained a part of one.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicUsize, Ordering::Relaxed};

const PAGE_BYTES: usize = 4096;
const SLOT_BYTES: usize = 16;
const SLOTS_PER_PAGE: usize = PAGE_BYTES / SLOT_BYTES;

/// A granule is an aligned MiB of address space, which may contain several arenas, or parts of them.
const GRANULE_BYTES: usize = 1 << 20;
const GRANULE_PAGES: usize = GRANULE_BYTES / PAGE_BYTES;
/// A branch is an aligned range of 32 GiB.
const BRANCH_GRANULES: usize = 1 << 15;
const BRANCH_BYTES: usize = BRANCH_GRANULES * GRANULE_BYTES;
/// The addresses of programs have 47 bits on x86-64, and 48 on aarch64. Blocks elsewhere are not recorded.
const BRANCHES: usize = (1 << 48) / BRANCH_BYTES;

/// The sizes of the blocks in a granule.
#[repr(C)]
struct Sizes {
    /// For each slot, 0 if no recorded block begins there. Otherwise, the block's size is the page's base plus this code
    /// minus 1, where the code is without [`TRACKED`].
    codes: [AtomicU8; GRANULE_BYTES / SLOT_BYTES],
    /// For each page in an arena, its base plus [`IN_ARENA`]. For other pages, 0, which differs from each size by more than
    /// [`MAX_DIFFERENCE`], so that one comparison checks both whether the page is in an arena and whether a size fits its base.
    bases: [AtomicU16; GRANULE_PAGES],
}

const IN_ARENA: u16 = 1 << 15;
/// Sizes above this limit, which pymalloc never allocates, are recorded as this size.
const MAX_SIZE: usize = IN_ARENA as usize - 1;
/// The bit of a code that marks a block that may be in the recorder's table of live blocks, because it was not only counted.
const TRACKED: u8 = 1 << 7;
/// The largest difference between a size and its base.
const MAX_DIFFERENCE: u16 = TRACKED as u16 - 2;

/// The sizes of a granule; null until it first contains a part of an arena.
type Granule = AtomicPtr<Sizes>;
type Branch = [Granule; BRANCH_GRANULES];

static ROOT: [AtomicPtr<Branch>; BRANCHES] = [const { AtomicPtr::new(null_mut()) }; BRANCHES];

const fn page_of(address: usize) -> usize {
    address % GRANULE_BYTES / PAGE_BYTES
}

const fn slot_of(address: usize) -> usize {
    address % GRANULE_BYTES / SLOT_BYTES
}

/// An entry of [`NEAR`].
struct Near {
    /// The number of the granule; 0 if the entry is unused.
    granule: AtomicUsize,
    sizes: AtomicPtr<Sizes>,
}

/// A copy of the first granules that were used, by their number, for a lookup with one branch. Entries are never replaced: all
/// arenas within 4 GiB have different entries.
static NEAR: [Near; 4096] =
    [const { Near { granule: AtomicUsize::new(0), sizes: AtomicPtr::new(null_mut()) } }; 4096];

/// Returns the sizes of the granule that contains an address; `None` if it never contained a part of an arena.
#[inline(always)]
fn sizes_at(address: usize) -> Option<&'static Sizes> {
    let number = address / GRANULE_BYTES;
    let near = &NEAR[number % NEAR.len()];
    if near.granule.load(Acquire) == number {
        // SAFETY: the pointer was stored before the number, and is from `map`, whose memory is never unmapped.
        return unsafe { near.sizes.load(Relaxed).as_ref() };
    }
    far_sizes_at(address)
}

/// Sets a granule's entry in [`NEAR`], if it is unused. If two threads use it at the same time, for different granules, the number
/// could belong to the other pointer, so only one of them may set it.
fn set_near(address: usize, sizes: &'static Sizes) {
    let number = address / GRANULE_BYTES;
    let near = &NEAR[number % NEAR.len()];
    let new = std::ptr::from_ref(sizes).cast_mut();
    if near.sizes.compare_exchange(null_mut(), new, Relaxed, Relaxed).is_ok() {
        near.granule.store(number, Release);
    }
}

/// Returns the sizes of a granule that has no entry in [`NEAR`].
#[cold]
#[inline(never)]
fn far_sizes_at(address: usize) -> Option<&'static Sizes> {
    let branch = ROOT[address / BRANCH_BYTES % BRANCHES].load(Acquire);
    // SAFETY: the pointer is null, or from `map`, whose memory is never unmapped.
    let granule = &unsafe { branch.as_ref() }?[address % BRANCH_BYTES / GRANULE_BYTES];
    // SAFETY: as above.
    unsafe { granule.load(Acquire).as_ref() }
}

/// The result of [`insert`].
pub(super) enum Inserted {
    /// The block is not in an arena, so it is not recorded here.
    Elsewhere,
    /// The size was inserted.
    New,
    /// The size was inserted. A block of the contained size was still known at this address, because its free bypassed the
    /// hooks.
    Replaced(usize),
}

/// Inserts the size of a new block.
#[inline(always)]
pub(super) fn insert(block: usize, size: usize) -> Inserted {
    let Some(sizes) = sizes_at(block) else { return Inserted::Elsewhere };
    let size = size.min(MAX_SIZE) as u16;
    let difference = (size + IN_ARENA).wrapping_sub(sizes.bases[page_of(block)].load(Relaxed));
    let code = &sizes.codes[slot_of(block)];
    if difference > MAX_DIFFERENCE || code.load(Relaxed) != 0 {
        return sizes.insert_slowly(page_of(block), code, size);
    }
    code.store(difference as u8 + 1, Relaxed);
    Inserted::New
}

/// A block that was removed.
pub(super) struct Removed {
    pub(super) size: usize,
    /// Whether it may be in the recorder's table of live blocks.
    pub(super) is_tracked: bool,
}

/// Removes and returns the block at an address; `None` if no recorded block begins there.
#[inline(always)]
pub(super) fn remove(block: usize) -> Option<Removed> {
    let sizes = sizes_at(block)?;
    let code = &sizes.codes[slot_of(block)];
    let value = code.load(Relaxed);
    if value == 0 {
        return None;
    }
    code.store(0, Relaxed);
    Some(Removed { size: sizes.size(page_of(block), value), is_tracked: value & TRACKED != 0 })
}

/// Marks a block, whose size was inserted, as one that may be in the recorder's table of live blocks.
pub(super) fn mark_tracked(block: usize) {
    if let Some(sizes) = sizes_at(block) {
        let code = &sizes.codes[slot_of(block)];
        code.store(code.load(Relaxed) | TRACKED, Relaxed);
    }
}

impl Sizes {
    /// Returns whether a page is in an arena.
    fn is_in_arena(&self, page: usize) -> bool {
        self.bases[page].load(Relaxed) != 0
    }

    /// Returns the base of a page in an arena.
    #[inline(always)]
    fn base(&self, page: usize) -> u16 {
        self.bases[page].load(Relaxed) % IN_ARENA
    }

    /// Returns the size that a code other than 0 means.
    #[inline(always)]
    fn size(&self, page: usize, code: u8) -> usize {
        usize::from(self.base(page)) + usize::from(code % TRACKED) - 1
    }

    /// Returns the codes of a page.
    fn codes_of(&self, page: usize) -> &[AtomicU8] {
        &self.codes[page * SLOTS_PER_PAGE..][..SLOTS_PER_PAGE]
    }

    /// Inserts a size into a slot that has one, or a size that does not fit the page's base.
    #[cold]
    fn insert_slowly(&self, page: usize, code: &AtomicU8, size: u16) -> Inserted {
        if !self.is_in_arena(page) {
            return Inserted::Elsewhere;
        }
        let inserted = match code.swap(0, Relaxed) {
            0 => Inserted::New,
            value => Inserted::Replaced(self.size(page, value)),
        };
        if size.wrapping_sub(self.base(page)) > MAX_DIFFERENCE {
            self.set_base_for(page, size);
        }
        code.store((size - self.base(page)) as u8 + 1, Relaxed);
        inserted
    }

    /// Changes a page's base so that `size` and the sizes of the page's blocks fit. If they differ too much, the blocks
    /// become unknown. Blocks that pymalloc has allocated do not differ so much, so they must be gone.
    fn set_base_for(&self, page: usize, size: u16) {
        let known = || self.codes_of(page).iter().filter(|code| code.load(Relaxed) != 0);
        let size_of = |code: &AtomicU8| self.size(page, code.load(Relaxed)) as u16;
        let lowest = known().map(size_of).fold(size, u16::min);
        let highest = known().map(size_of).fold(size, u16::max);
        let room = MAX_DIFFERENCE.checked_sub(highest - lowest);
        let base = room.map_or(size, |room| lowest.saturating_sub(room / 2));
        for code in known() {
            let tracked = code.load(Relaxed) & TRACKED;
            let value = room.map_or(0, |_| ((size_of(code) - base) as u8 + 1) | tracked);
            code.store(value, Relaxed);
        }
        self.bases[page].store(base + IN_ARENA, Relaxed);
    }
}

/// Maps pages of zeros; null if there are none.
fn map(bytes: usize) -> *mut libc::c_void {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the call maps new pages at an address that the kernel chooses.
    let start = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return null_mut();
    }
    memtrack_recorder::internal_pages::mark(start.addr(), bytes);
    start
}

/// Returns what `place` points to. If it is null, sets it to new zeros.
fn get_or_map<T>(place: &AtomicPtr<T>) -> Option<&'static T> {
    let mut found = place.load(Acquire);
    if found.is_null() {
        let new = map(size_of::<T>()).cast::<T>();
        match place.compare_exchange(null_mut(), new, AcqRel, Acquire) {
            Ok(_) => found = new,
            Err(other) => {
                found = other;
                if !new.is_null() {
                    // SAFETY: `map` mapped this many bytes there, and there is no reference to them.
                    unsafe { libc::munmap(new.cast(), size_of::<T>()) };
                }
            }
        }
    }
    // SAFETY: the pointer is null, or to zeroed atomics that are never unmapped. Zeros are a valid value of each type here.
    unsafe { found.as_ref() }
}

/// Returns the address of each page that lies completely in a range. pymalloc uses no other page of an arena.
fn pages_in(start: usize, bytes: usize) -> impl Iterator<Item = usize> {
    let end = start.saturating_add(bytes) / PAGE_BYTES * PAGE_BYTES;
    (start.next_multiple_of(PAGE_BYTES)..end).step_by(PAGE_BYTES)
}

/// Adds an arena. Returns the number of bytes of the sizes that its blocks can have. If there is no memory for sizes, the
/// blocks are not recorded.
pub(super) fn add_arena(start: usize, bytes: usize) -> usize {
    let mut added = 0;
    for address in pages_in(start, bytes) {
        let Some(branch) = get_or_map(&ROOT[address / BRANCH_BYTES % BRANCHES]) else { continue };
        let Some(sizes) = get_or_map(&branch[address % BRANCH_BYTES / GRANULE_BYTES]) else { continue };
        sizes.bases[page_of(address)].store(IN_ARENA, Relaxed);
        set_near(address, sizes);
        added += SLOTS_PER_PAGE;
    }
    added
}

/// Removes an arena, which is about to be freed. Calls `freed` with the address and size of each block that is still known
/// in it: with an arena, its blocks are freed. Returns the same number as [`add_arena`].
pub(super) fn remove_arena(start: usize, bytes: usize, mut freed: impl FnMut(usize, usize)) -> usize {
    let mut removed = 0;
    for address in pages_in(start, bytes) {
        let page = page_of(address);
        let Some(sizes) = sizes_at(address).filter(|sizes| sizes.is_in_arena(page)) else { continue };
        for (slot, code) in sizes.codes_of(page).iter().enumerate() {
            let value = code.load(Relaxed);
            if value != 0 {
                code.store(0, Relaxed);
                freed(address + slot * SLOT_BYTES, sizes.size(page, value));
            }
        }
        sizes.bases[page].store(0, Relaxed);
        removed += SLOTS_PER_PAGE;
    }
    return_pages(start, bytes);
    removed
}

/// Returns the pages of codes to the system that belong only to this arena.
fn return_pages(start: usize, bytes: usize) {
    /// The bytes of an arena whose codes fill a page.
    const ARENA_BYTES_PER_PAGE: usize = PAGE_BYTES * SLOT_BYTES;
    let end = start.saturating_add(bytes) / ARENA_BYTES_PER_PAGE * ARENA_BYTES_PER_PAGE;
    for address in (start.next_multiple_of(ARENA_BYTES_PER_PAGE)..end).step_by(ARENA_BYTES_PER_PAGE) {
        let Some(sizes) = sizes_at(address) else { continue };
        let codes = &sizes.codes[slot_of(address)..][..PAGE_BYTES];
        // SAFETY: the page contains only zeros, and still does after the call; there are only shared references to it.
        unsafe { libc::madvise(codes.as_ptr().cast_mut().cast(), PAGE_BYTES, libc::MADV_DONTNEED) };
    }
}

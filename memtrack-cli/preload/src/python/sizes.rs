//! The requested size of each recorded block of pymalloc, by address: one byte per 16 bytes of arena, the smallest distance
//! of two blocks. `tracemalloc` counts requested sizes too, so reports agree with it.
//!
//! A byte holds the difference between the size and a base that the blocks of a page share. The blocks of a page are nearly of
//! the same size, because pymalloc fills a page (its *pool*) with blocks of one class; with `PYTHONMALLOC=debug` their sizes
//! still differ by less than 16. pymalloc's own headers, which contain the class, are not read: their layout changes.
//!
//! Lookups take no lock, and need none: CPython calls its allocators under its lock (GIL), and interpreters with separate
//! locks have separate arenas. Tables are never freed, so that they need no lock either, but the pages of a freed arena's
//! bytes are returned to the system. Hence the memory is at most 1/16 of the arenas, and 40 bytes per MiB of address space
//! with an arena.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU64, Ordering::Relaxed};

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
    /// minus 1.
    codes: [AtomicU8; GRANULE_BYTES / SLOT_BYTES],
    bases: [AtomicU16; GRANULE_PAGES],
}

struct Granule {
    /// Null until the granule first contains a part of an arena.
    sizes: AtomicPtr<Sizes>,
    /// A bit for each page: whether it is inside an arena.
    pages: [AtomicU64; GRANULE_PAGES / 64],
}

type Branch = [Granule; BRANCH_GRANULES];

static ROOT: [AtomicPtr<Branch>; BRANCHES] = [const { AtomicPtr::new(null_mut()) }; BRANCHES];

/// Sizes above this limit, which pymalloc never allocates, are recorded as this size.
const MAX_SIZE: usize = u16::MAX as usize;
/// The largest difference between a size and its base.
const MAX_DIFFERENCE: u16 = u8::MAX as u16 - 1;

impl Granule {
    fn has_page(&self, page: usize) -> bool {
        self.pages[page / 64].load(Relaxed) & (1 << (page % 64)) != 0
    }

    /// Returns the sizes of the granule's blocks; `None` if it never contained an arena.
    fn sizes(&self) -> Option<&'static Sizes> {
        // SAFETY: the pointer is null, or from `map`, whose memory is never unmapped.
        unsafe { self.sizes.load(Acquire).as_ref() }
    }
}

const fn page_of(address: usize) -> usize {
    address % GRANULE_BYTES / PAGE_BYTES
}

const fn slot_of(address: usize) -> usize {
    address % GRANULE_BYTES / SLOT_BYTES
}

/// Returns the granule that contains an address; `None` if no arena was ever near it.
#[inline(always)]
fn granule_at(address: usize) -> Option<&'static Granule> {
    let branch = ROOT.get(address / BRANCH_BYTES)?.load(Acquire);
    // SAFETY: the pointer is null, or from `map`, whose memory is never unmapped.
    let branch = unsafe { branch.as_ref() }?;
    Some(&branch[address % BRANCH_BYTES / GRANULE_BYTES])
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
    let page = page_of(block);
    let Some(granule) = granule_at(block).filter(|granule| granule.has_page(page)) else {
        return Inserted::Elsewhere;
    };
    let Some(sizes) = granule.sizes() else { return Inserted::Elsewhere };
    let size = size.min(MAX_SIZE) as u16;
    let difference = size.wrapping_sub(sizes.bases[page].load(Relaxed));
    let code = &sizes.codes[slot_of(block)];
    if difference > MAX_DIFFERENCE || code.load(Relaxed) != 0 {
        return sizes.insert_slowly(page, code, size);
    }
    code.store(difference as u8 + 1, Relaxed);
    Inserted::New
}

/// Removes the block at an address and returns its size; `None` if no recorded block begins there.
#[inline(always)]
pub(super) fn remove(block: usize) -> Option<usize> {
    let sizes = granule_at(block)?.sizes()?;
    let code = &sizes.codes[slot_of(block)];
    let value = code.load(Relaxed);
    if value == 0 {
        return None;
    }
    code.store(0, Relaxed);
    Some(sizes.size(page_of(block), value))
}

impl Sizes {
    /// Returns the size that a code other than 0 means.
    fn size(&self, page: usize, code: u8) -> usize {
        usize::from(self.bases[page].load(Relaxed)) + usize::from(code) - 1
    }

    /// Returns the codes of a page.
    fn codes_of(&self, page: usize) -> &[AtomicU8] {
        &self.codes[page * SLOTS_PER_PAGE..][..SLOTS_PER_PAGE]
    }

    /// Inserts a size into a slot that has one, or a size that does not fit the page's base.
    #[cold]
    fn insert_slowly(&self, page: usize, code: &AtomicU8, size: u16) -> Inserted {
        let replaced = match code.swap(0, Relaxed) {
            0 => Inserted::New,
            value => Inserted::Replaced(self.size(page, value)),
        };
        if size.wrapping_sub(self.bases[page].load(Relaxed)) > MAX_DIFFERENCE {
            self.set_base_for(page, size);
        }
        code.store((size - self.bases[page].load(Relaxed)) as u8 + 1, Relaxed);
        replaced
    }

    /// Changes a page's base so that `size` and the sizes of the page's blocks fit. If they differ too much, the blocks
    /// become unknown. Blocks that pymalloc has allocated do not differ so much, so they must be gone.
    fn set_base_for(&self, page: usize, size: u16) {
        let known = || self.codes_of(page).iter().filter(|code| code.load(Relaxed) != 0);
        let of_code = |code: &AtomicU8| self.size(page, code.load(Relaxed)) as u16;
        let lowest = known().map(of_code).fold(size, u16::min);
        let highest = known().map(of_code).fold(size, u16::max);
        let room = MAX_DIFFERENCE.checked_sub(highest - lowest);
        let base = lowest.saturating_sub(room.unwrap_or(0) / 2);
        let base = if room.is_some() { base } else { size };
        for code in known() {
            let value = room.map_or(0, |_| (of_code(code) - base) as u8 + 1);
            code.store(value, Relaxed);
        }
        self.bases[page].store(base, Relaxed);
    }
}

/// Maps pages of zeros; null if there are none.
fn map(bytes: usize) -> *mut libc::c_void {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the call maps new pages at an address that the kernel chooses.
    let start = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED { null_mut() } else { start }
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
        let Some(branch) = ROOT.get(address / BRANCH_BYTES).and_then(get_or_map) else { continue };
        let granule = &branch[address % BRANCH_BYTES / GRANULE_BYTES];
        if get_or_map(&granule.sizes).is_none() {
            continue;
        }
        let page = page_of(address);
        granule.pages[page / 64].fetch_or(1 << (page % 64), Relaxed);
        added += SLOTS_PER_PAGE;
    }
    added
}

/// Removes an arena, which is about to be freed. Calls `freed` with the address and size of each block that is still known
/// in it: with an arena, its blocks are freed. Returns the same number as [`add_arena`].
pub(super) fn remove_arena(start: usize, bytes: usize, mut freed: impl FnMut(usize, usize)) -> usize {
    let mut removed = 0;
    for address in pages_in(start, bytes) {
        let (Some(granule), page) = (granule_at(address), page_of(address)) else { continue };
        let Some(sizes) = granule.sizes().filter(|_| granule.has_page(page)) else { continue };
        granule.pages[page / 64].fetch_and(!(1 << (page % 64)), Relaxed);
        for (slot, code) in sizes.codes_of(page).iter().enumerate() {
            let value = code.load(Relaxed);
            if value != 0 {
                code.store(0, Relaxed);
                freed(address + slot * SLOT_BYTES, sizes.size(page, value));
            }
        }
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
        let Some(sizes) = granule_at(address).and_then(Granule::sizes) else { continue };
        let codes = &sizes.codes[slot_of(address)..][..PAGE_BYTES];
        // SAFETY: the page contains only zeros, and still does after the call; there are only shared references to it.
        unsafe { libc::madvise(codes.as_ptr().cast_mut().cast(), PAGE_BYTES, libc::MADV_DONTNEED) };
    }
}

//! A counting filter that cheaply determines that a small block is not in the live table. It counts the blocks in the
//! table by address. If the count for a block's page is 0, the block was not sampled, and most frees in a sampled
//! program need no further check. A sampled block that lives long (such as a weight) marks its page for just as long,
//! so a second, finer count distinguishes individual blocks. It is read only for marked pages.
//!
//! Nearly all of the cost of a look-up is cache misses, so there are few page counts. A heap of ten megabytes has
//! 2,500, which stay in a core's L1 cache together with the program's data.
//!
//! **Why two tables of counts?** The page counts in use (one byte per 4 KiB of heap) mostly fit into the core's L1
//! cache. With one count per 512 bytes instead, half the time of a counted free was spent on that cache miss. One bit
//! per 16 bytes of address space would be exact, but would reserve a terabyte of addresses, which is more than limits
//! on address space allow.

use crate::reentry;
use crate::zeroed::Zeroed;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

/// The number of page counts, which is enough for a heap of 2 GiB. In a larger heap, pages whose addresses differ by a
/// multiple of 2 GiB share a count. Addresses are not hashed, because that would be a third of the cost of freeing a
/// block that was only counted.
const PAGES: usize = 1 << 19;
const PAGE_SHIFT: u32 = 12;
/// The number of finer counts, which gives each block in a range of 16 MiB its own. They distinguish blocks within a
/// page, so different pages may share them.
const BLOCKS: usize = 1 << 20;
const BLOCK_SHIFT: u32 = 4;
/// The total number of counts, which take one byte each. The page counts come first.
pub(super) const BYTES: usize = PAGES + BLOCKS;
/// The number of fallback counts, which are used if there is not enough memory for all counts.
const FALLBACK_SLOTS: usize = 1 << 13;

/// Which groups of counts have been written to. Only these are cleared for the next session, because most pages of the
/// counts are never touched.
static TOUCHED: [AtomicBool; BYTES / SLOTS_PER_TOUCHED] =
    [const { AtomicBool::new(false) }; BYTES / SLOTS_PER_TOUCHED];
const SLOTS_PER_TOUCHED: usize = 4096;

/// A pointer to [`BYTES`] counts, which are allocated with the first small block and never freed, or to [`FALLBACK`].
/// It is null before the first small block.
static COUNTS: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());
static FALLBACK: [AtomicU8; FALLBACK_SLOTS] = [const { AtomicU8::new(0) }; FALLBACK_SLOTS];

/// Returns the slot of a block's page count.
#[inline(always)]
fn page_of(address: u64) -> usize {
    (address >> PAGE_SHIFT) as usize % PAGES
}

/// Returns the slot of a block's finer count.
#[inline(always)]
fn block_of(address: u64) -> usize {
    PAGES + (address >> BLOCK_SHIFT) as usize % BLOCKS
}

/// Returns the count in `slot`, which must be less than [`BYTES`].
///
/// # Safety
/// `counts` must be the value of [`COUNTS`], and neither null nor [`FALLBACK`].
#[inline(always)]
unsafe fn count_at(counts: *mut AtomicU8, slot: usize) -> &'static AtomicU8 {
    // SAFETY: `counts` points to `BYTES` counts that are never freed.
    unsafe { &*counts.add(slot) }
}

fn fallback() -> *mut AtomicU8 {
    FALLBACK.as_ptr().cast_mut()
}

fn fallback_count(address: u64) -> &'static AtomicU8 {
    &FALLBACK[page_of(address) % FALLBACK_SLOTS]
}

/// Returns whether the block at `address` may be in the live table.
#[inline(always)]
pub(crate) fn may_contain(address: u64) -> bool {
    let counts = COUNTS.load(Ordering::Acquire);
    if counts.is_null() {
        return false;
    }
    if std::ptr::eq(counts, fallback()) {
        return fallback_count(address).load(Ordering::Relaxed) != 0;
    }
    // SAFETY: the pointer is neither null nor `FALLBACK`.
    unsafe { may_be_in(counts, address) }
}

/// Returns the counts for a thread to keep, or null if only the fallback counts are used.
pub(crate) fn shared() -> *mut AtomicU8 {
    let counts = counts_or_allocate();
    if std::ptr::eq(counts, fallback()) { std::ptr::null_mut() } else { counts }
}

/// Returns the counts, which the first call allocates.
#[inline(always)]
fn counts_or_allocate() -> *mut AtomicU8 {
    let counts = COUNTS.load(Ordering::Acquire);
    if counts.is_null() { allocate() } else { counts }
}

/// Does the same as [`may_contain`], for a thread that keeps a pointer to the counts.
///
/// # Safety
/// `counts` must be a non-null result of [`shared`].
#[inline(always)]
pub(crate) unsafe fn may_be_in(counts: *mut AtomicU8, address: u64) -> bool {
    // SAFETY: the caller guarantees that `counts` is a non-null result of `shared`.
    let is_counted = |slot| unsafe { count_at(counts, slot) }.load(Ordering::Relaxed) != 0;
    is_counted(page_of(address)) && is_counted(block_of(address))
}

/// Adds a block that is about to be inserted into the live table. This is called before the allocator returns the
/// block's address, so that the block's free finds it here.
#[inline(always)]
pub(crate) fn add(address: u64) {
    let counts = counts_or_allocate();
    // A saturated count stays saturated. Every block in its slot is then looked up in the live table, which is slower
    // but still correct.
    let more = |count: u8| Some(count.saturating_add(1));
    for slot in [page_of(address), block_of(address)] {
        let touched = &TOUCHED[slot / SLOTS_PER_TOUCHED];
        if !touched.load(Ordering::Relaxed) {
            touched.store(true, Ordering::Relaxed);
        }
    }
    change(counts, address, more);
}

/// Removes a block that is being freed.
#[inline(always)]
pub(crate) fn remove(address: u64) {
    let counts = COUNTS.load(Ordering::Acquire);
    if counts.is_null() {
        return;
    }
    let less = |count| match count {
        0 | u8::MAX => None,
        count => Some(count - 1),
    };
    change(counts, address, less);
}

/// Changes both counts of a block.
#[inline(always)]
fn change(counts: *mut AtomicU8, address: u64, change: impl Fn(u8) -> Option<u8>) {
    let change = |count: &AtomicU8| {
        let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, &change);
    };
    if std::ptr::eq(counts, fallback()) {
        return change(fallback_count(address));
    }
    for slot in [page_of(address), block_of(address)] {
        // SAFETY: `counts` is neither null, as the callers ensure, nor `FALLBACK`.
        change(unsafe { count_at(counts, slot) });
    }
}

#[cold]
fn allocate() -> *mut AtomicU8 {
    // If no pages can be mapped, the counts are allocated on the heap.
    let _inside = reentry::enter();
    // SAFETY: counts are integers, for which zero is a valid value.
    let table = unsafe { Zeroed::<AtomicU8>::try_new(BYTES) };
    let counts = table.as_ref().map_or_else(fallback, |table| table.as_ptr().cast_mut());
    match COUNTS.compare_exchange(std::ptr::null_mut(), counts, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if let Some(table) = table {
                // The table is never freed.
                std::mem::forget(table);
                crate::internal_bytes::add(BYTES);
            }
            counts
        }
        Err(first) => first,
    }
}

/// Clears the filter after the live table has been cleared.
pub(crate) fn clear() {
    let counts = COUNTS.load(Ordering::Acquire);
    if counts.is_null() {
        return;
    }
    let is_fallback = std::ptr::eq(counts, fallback());
    FALLBACK.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    for (page, touched) in TOUCHED.iter().enumerate() {
        if !touched.swap(false, Ordering::Relaxed) || is_fallback {
            continue;
        }
        for slot in page * SLOTS_PER_TOUCHED..(page + 1) * SLOTS_PER_TOUCHED {
            // SAFETY: the pointer is neither null nor `FALLBACK`.
            unsafe { count_at(counts, slot) }.store(0, Ordering::Relaxed);
        }
    }
}

/// Resets the filter in a forked child, where the live table is empty. The counts are the parent's, and writing to them
/// would copy their pages.
pub(crate) fn reset_after_fork() {
    COUNTS.store(std::ptr::null_mut(), Ordering::Release);
    FALLBACK.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    TOUCHED.iter().for_each(|touched| touched.store(false, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Locked by each test, so that no other test adds blocks to the filter at the same time.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn neighbours_of_a_tracked_block_are_not_looked_up() {
        let _alone = ALONE.lock();
        let address = 0x7e5a_4321_0040;
        let page = address & !0xfff;
        let neighbours = (0..256).map(|index| page + 16 * index).filter(|&other| other != address);
        add(address);
        assert!(may_contain(address));
        for other in neighbours {
            assert_eq!(page_of(other), page_of(address), "they share the first count");
            assert!(!may_contain(other), "{other:#x}");
        }
        // This is the nearest address with the same finer count.
        let alike = address + ((BLOCKS as u64) << BLOCK_SHIFT);
        assert_eq!(block_of(alike), block_of(address));
        assert!(!may_contain(alike), "its page has none");
        add(address);
        remove(address);
        assert!(may_contain(address), "added twice, removed once");
        remove(address);
        assert!(!may_contain(address));
    }

    #[test]
    fn clearing_the_filter_visits_only_touched_pages() {
        let _alone = ALONE.lock();
        clear();
        let address = 0x7e5a_0123_4560;
        add(address);
        let counts = COUNTS.load(Ordering::Acquire);
        let pages = || TOUCHED.iter().filter(|touched| touched.load(Ordering::Relaxed)).count();
        assert_eq!(pages(), 2, "one for each of its two counts");
        clear();
        assert!(!may_contain(address) && pages() == 0);
        // SAFETY: `counts` points to `BYTES` counts that are never freed.
        assert!((0..BYTES).all(|slot| unsafe { &*counts.add(slot) }.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn a_saturated_count_stays_saturated() {
        let _alone = ALONE.lock();
        let address = 0x7e5a_8765_0080;
        (0..300).for_each(|_| add(address));
        (0..300).for_each(|_| remove(address));
        assert!(may_contain(address), "what is not known to be out must be looked up");
    }
}

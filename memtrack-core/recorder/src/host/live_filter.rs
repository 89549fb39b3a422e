//! A counting filter that answers cheaply that a small block is not in the live table: it counts the blocks that are,
//! by their address. A block whose page has a count of 0 was not sampled, and most frees of a sampled program end
//! there. A sampled block that stays (a weight) marks its page for as long, so a second count, finer and read for
//! marked pages only, distinguishes single blocks.
//!
//! Nearly all of a look-up's cost is cache misses. So the first counts are few: a heap of ten megabytes has two and a
//! half thousand, which stay in a core's first-level cache beside the program's own data.
//!
//! **Why two tables of counts?** The counts of pages (4 KiB each; 512 KiB for 2 GiB of heap) fit into the core's L1
//! cache. With one count for each 512 bytes in their place, half of a counted free's time was the wait for that cache
//! line. One bit for each 16 bytes of all addresses would be exact, but would reserve a terabyte of addresses, more than
//! limits on address space allow.

use crate::reentry;
use crate::zeroed::Zeroed;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

/// Enough for a heap of 2 GiB; in a larger heap pages share counts with others whose addresses differ by a multiple
/// of that. No hash separates them: it would be a third of the cost of freeing a block that was only counted.
const PAGES: usize = 1 << 19;
const PAGE_SHIFT: u32 = 12;
/// The finer counts: each block in a range of 16 MiB has its own. They distinguish blocks of one page, so it does no
/// harm that pages share them.
const BLOCKS: usize = 1 << 20;
const BLOCK_SHIFT: u32 = 4;
/// All counts, those of [`PAGES`] first.
pub(super) const BYTES: usize = PAGES + BLOCKS;
/// The number of counts if there was no memory for more.
const FEW_SLOTS: usize = 1 << 13;

/// Which pages of the counts were ever written to: the end of a session clears only these. Most pages stay as the
/// system mapped them.
static TOUCHED: [AtomicBool; BYTES / TOUCHED_TOGETHER] =
    [const { AtomicBool::new(false) }; BYTES / TOUCHED_TOGETHER];
const TOUCHED_TOGETHER: usize = 4096;

/// [`BYTES`] counts, allocated with the first small block and then kept; null before.
static COUNTS: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());
static FEW: [AtomicU8; FEW_SLOTS] = [const { AtomicU8::new(0) }; FEW_SLOTS];

/// Returns the slot of the count of a block's page.
#[inline(always)]
fn page_of(address: u64) -> usize {
    (address >> PAGE_SHIFT) as usize % PAGES
}

/// Returns the slot of the finer count of a block.
#[inline(always)]
fn block_of(address: u64) -> usize {
    PAGES + (address >> BLOCK_SHIFT) as usize % BLOCKS
}

/// Returns the count in `slot`, which is below [`BYTES`].
///
/// # Safety
/// `counts` must be those of [`COUNTS`], neither null nor [`FEW`].
#[inline(always)]
unsafe fn count_at(counts: *mut AtomicU8, slot: usize) -> &'static AtomicU8 {
    // SAFETY: they are `BYTES` counts that are never freed.
    unsafe { &*counts.add(slot) }
}

fn few() -> *mut AtomicU8 {
    FEW.as_ptr().cast_mut()
}

fn few_of(address: u64) -> &'static AtomicU8 {
    &FEW[page_of(address) % FEW_SLOTS]
}

/// Returns whether the block at `address` may be in the live table.
#[inline(always)]
pub(super) fn may_contain(address: u64) -> bool {
    let counts = COUNTS.load(Ordering::Acquire);
    if counts.is_null() {
        return false;
    }
    if std::ptr::eq(counts, few()) {
        return few_of(address).load(Ordering::Relaxed) != 0;
    }
    // SAFETY: neither null nor `FEW`.
    unsafe { may_be_in(counts, address) }
}

/// Returns the counts, for a thread to keep; null if there was memory for few only.
pub(super) fn shared() -> *mut AtomicU8 {
    let counts = all();
    if std::ptr::eq(counts, few()) { std::ptr::null_mut() } else { counts }
}

/// Returns the counts; the first call allocates them.
#[inline(always)]
fn all() -> *mut AtomicU8 {
    let counts = COUNTS.load(Ordering::Acquire);
    if counts.is_null() { make() } else { counts }
}

/// As [`may_contain`], for a thread that keeps the counts.
///
/// # Safety
/// `counts` must be what [`shared`] returned, and not null.
#[inline(always)]
pub(super) unsafe fn may_be_in(counts: *mut AtomicU8, address: u64) -> bool {
    // SAFETY: the caller's promise.
    let is_counted = |slot| unsafe { count_at(counts, slot) }.load(Ordering::Relaxed) != 0;
    is_counted(page_of(address)) && is_counted(block_of(address))
}

/// Adds a block that is about to enter the live table. Called before its address leaves the allocator, so that its
/// free finds it.
#[inline(always)]
pub(super) fn add(address: u64) {
    let counts = all();
    // A saturated count stays saturated: then every block of the slot is looked up, which is slower and still
    // correct.
    let more = |count: u8| Some(count.saturating_add(1));
    for slot in [page_of(address), block_of(address)] {
        let touched = &TOUCHED[slot / TOUCHED_TOGETHER];
        if !touched.load(Ordering::Relaxed) {
            touched.store(true, Ordering::Relaxed);
        }
    }
    change(counts, address, more);
}

/// Removes a block that is freed.
#[inline(always)]
pub(super) fn remove(address: u64) {
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
    if std::ptr::eq(counts, few()) {
        return change(few_of(address));
    }
    for slot in [page_of(address), block_of(address)] {
        // SAFETY: neither null, as the callers see to, nor `FEW`.
        change(unsafe { count_at(counts, slot) });
    }
}

#[cold]
fn make() -> *mut AtomicU8 {
    // If no pages can be mapped, they come from the heap.
    let _inside = reentry::enter();
    // SAFETY: a count of 0 is a valid one.
    let made = unsafe { Zeroed::<AtomicU8>::try_new(BYTES) };
    let counts = made.as_ref().map_or_else(few, |made| made.as_ptr().cast_mut());
    match COUNTS.compare_exchange(std::ptr::null_mut(), counts, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if let Some(made) = made {
                // Never freed.
                std::mem::forget(made);
                crate::internal_bytes::add(BYTES);
            }
            counts
        }
        Err(first) => first,
    }
}

/// Clears the filter: no block is in the live table any more.
pub(super) fn clear() {
    let counts = COUNTS.load(Ordering::Acquire);
    if counts.is_null() {
        return;
    }
    let is_few = std::ptr::eq(counts, few());
    FEW.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    for (page, touched) in TOUCHED.iter().enumerate() {
        if !touched.swap(false, Ordering::Relaxed) || is_few {
            continue;
        }
        for slot in page * TOUCHED_TOGETHER..(page + 1) * TOUCHED_TOGETHER {
            // SAFETY: neither null nor `FEW`.
            unsafe { count_at(counts, slot) }.store(0, Ordering::Relaxed);
        }
    }
}

/// Resets the filter in the child of a fork, where no block is in the live table: the counts are the parent's, and
/// writing to them would copy them.
pub(super) fn reset_after_fork() {
    COUNTS.store(std::ptr::null_mut(), Ordering::Release);
    FEW.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    TOUCHED.iter().for_each(|touched| touched.store(false, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// No other test adds blocks to the filter.
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
        // The nearest address with the same finer count.
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
        // SAFETY: they are `BYTES` counts that are never freed.
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

//! Blocks that were allocated inside memtrack and now belong to the program, namely the tables of a snapshot. Their
//! allocations were not recorded, so their frees must not be either, whenever and on whichever thread they happen. The
//! blocks are recognized by their addresses.
//!
//! This costs nothing for other blocks. A small transferred block is added to the live filter as if it were in the live
//! table, so that its free takes the path for recorded blocks. Only blocks that are not in that table are then looked
//! up here. Nothing here locks, waits or allocates.

use super::live_filter;
use crate::settings::sample_threshold_bytes;
use crate::zeroed::Zeroed;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The number of slots. A snapshot has a few hundred blocks, or more if scopes and modules have many names. Blocks
/// beyond this bound are freed like blocks that existed before the session.
const SLOTS: usize = 1 << 17;
pub(super) const BYTES: usize = SLOTS * size_of::<AtomicU64>();
/// The maximum number of slots that are searched for an address.
const MAX_STEPS: usize = 64;

/// The value of a slot that has never been used.
const UNUSED: u64 = 0;
/// The value of a slot whose address has been removed.
const REMOVED: u64 = u64::MAX;

/// A pointer to [`SLOTS`] addresses, which are allocated with the first block and never freed. It is null before then.
static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// The number of addresses in the table, so that an empty table is not searched.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether the thread's current allocations inside memtrack are for a value that will belong to the program.
    static IS_TRANSFERRING: Cell<bool> = const { Cell::new(false) };
}

/// Creates a value that will belong to the program, which may drop its parts anywhere. The blocks that this thread
/// allocates for the value inside memtrack, and has not freed when the value is returned, are recognized by their
/// addresses until they are freed.
pub fn allocate_for_program<R>(make: impl FnOnce() -> R) -> R {
    struct RestoreFlag(bool);
    impl Drop for RestoreFlag {
        fn drop(&mut self) {
            IS_TRANSFERRING.set(self.0);
        }
    }
    let _restore = RestoreFlag(IS_TRANSFERRING.replace(true));
    make()
}

/// Adds a block that was allocated inside memtrack, if it will belong to the program.
#[inline]
pub(crate) fn allocated(address: u64, size_bytes: u64) {
    if IS_TRANSFERRING.get() {
        add(address, size_bytes);
    }
}

/// Removes a block that is about to be freed, and returns whether it was a transferred block.
#[inline]
pub(crate) fn remove_if_known(address: u64, size_bytes: u64) -> bool {
    COUNT.load(Ordering::Relaxed) > 0 && remove(address, size_bytes)
}

/// Adds a block that the program will free.
#[cold]
pub(crate) fn add(address: u64, size_bytes: u64) {
    let Some(table) = table().or_else(allocate) else { return };
    for slot in slots_of(table, address) {
        let seen = slot.load(Ordering::Relaxed);
        let is_free = seen == UNUSED || seen == REMOVED;
        if is_free && slot.compare_exchange(seen, address, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            COUNT.fetch_add(1, Ordering::Relaxed);
            if size_bytes < sample_threshold_bytes() {
                live_filter::add(address);
            }
            return;
        }
    }
}

#[cold]
fn remove(address: u64, size_bytes: u64) -> bool {
    let Some(table) = table() else { return false };
    for slot in slots_of(table, address) {
        let seen = slot.load(Ordering::Relaxed);
        if seen == UNUSED {
            return false;
        }
        if seen == address {
            slot.store(REMOVED, Ordering::Relaxed);
            COUNT.fetch_sub(1, Ordering::Relaxed);
            if size_bytes < sample_threshold_bytes() {
                live_filter::remove(address);
            }
            return true;
        }
    }
    false
}

/// Removes all blocks when another session begins. In that session, their frees count like those of blocks that the
/// program allocated before it.
pub(crate) fn clear() {
    if COUNT.swap(0, Ordering::Relaxed) > 0
        && let Some(table) = table()
    {
        table.iter().for_each(|slot| slot.store(UNUSED, Ordering::Relaxed));
    }
}

/// Resets the table in a forked child. It is the parent's, and writing to it would copy its pages.
pub(crate) fn reset_after_fork() {
    COUNT.store(0, Ordering::Relaxed);
    TABLE.store(ptr::null_mut(), Ordering::Release);
}

/// Returns the slots that may contain an address. Addresses are hashed, because they end in zeros and are close
/// together.
fn slots_of(table: &[AtomicU64], address: u64) -> impl Iterator<Item = &AtomicU64> {
    let first = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    (0..MAX_STEPS).map(move |step| &table[(first + step) % SLOTS])
}

fn table() -> Option<&'static [AtomicU64]> {
    let slots = TABLE.load(Ordering::Acquire);
    // SAFETY: a non-null pointer points to `SLOTS` addresses that are never freed.
    (!slots.is_null()).then(|| unsafe { std::slice::from_raw_parts(slots, SLOTS) })
}

#[cold]
fn allocate() -> Option<&'static [AtomicU64]> {
    // SAFETY: slots are integers, for which zero is a valid value.
    let new = unsafe { Zeroed::<AtomicU64>::try_new(SLOTS) }?;
    let slots = new.as_ptr().cast_mut();
    // If threads race, the first thread's table is used and the others are dropped.
    if TABLE.compare_exchange(ptr::null_mut(), slots, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        std::mem::forget(new);
        crate::internal_bytes::add(BYTES);
    }
    table()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Locked by each test, because the whole process shares the table.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_transferred_block_is_found_once_and_others_are_not() {
        let _alone = ALONE.lock();
        let blocks = (1..=20_000_u64).map(|place| 0x7f00_0000_0000 + 48 * place);
        for block in blocks.clone() {
            add(block, 1 << 20);
        }
        assert!(!remove_if_known(0x7f00_0000_0010, 1 << 20));
        assert!(blocks.clone().all(|block| remove_if_known(block, 1 << 20)));
        assert!(!blocks.clone().any(|block| remove_if_known(block, 1 << 20)));
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn slots_of_removed_blocks_are_reused() {
        let _alone = ALONE.lock();
        for round in 0..200_u64 {
            let blocks = (0..2000).map(|place| 0x7e00_0000_0000 + 32 * (2000 * round + place));
            blocks.clone().for_each(|block| add(block, 1 << 20));
            assert!(blocks.clone().all(|block| remove_if_known(block, 1 << 20)), "round {round}");
        }
    }

    #[test]
    fn blocks_beyond_the_bound_are_unknown() {
        let _alone = ALONE.lock();
        let blocks = (0..2 * SLOTS as u64).map(|place| 0x7d00_0000_0000 + 16 * place);
        blocks.clone().for_each(|block| add(block, 1 << 20));
        let known = blocks.filter(|&block| remove_if_known(block, 1 << 20)).count();
        assert!((SLOTS / 2..=SLOTS).contains(&known), "{known}");
        clear();
    }
}

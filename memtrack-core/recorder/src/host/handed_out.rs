//! Blocks of memtrack's own that the program was given: the tables of a snapshot. They were not recorded when they were
//! allocated, so their frees must not be either, whichever thread frees which part of them, and whenever. They are known by
//! their addresses.
//!
//! Other blocks pay nothing for that. A small block of these is followed as if it were in the live table, so that its free takes
//! the path of recorded blocks, and only what is not found in that table is searched here. Nothing locks, waits or allocates.

use super::followed;
use crate::recorder::sample_threshold_bytes;
use crate::zeroed::Zeroed;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// A snapshot has a few hundred blocks, and more where scopes and modules have many names. Those beyond the bound are freed as
/// blocks that were there before the session.
const SLOTS: usize = 1 << 17;
const BYTES: usize = SLOTS * size_of::<AtomicU64>();
/// How far from its first slot an address may be.
const MOST_STEPS: usize = 64;

/// No address was ever here.
const NEVER: u64 = 0;
/// The address that was here is gone.
const GONE: u64 = u64::MAX;

/// [`SLOTS`] addresses, made with the first block and never given back; null before.
static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// How many addresses there are, so that nobody looks where there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether what the thread allocates inside memtrack will be the program's to free.
    static IS_HANDING_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Makes a value that the program is given, and whose parts it may drop anywhere: what this thread allocates for it inside
/// memtrack, and has not freed when it is returned, is known by its addresses until then.
pub fn handing_out<R>(make: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            IS_HANDING_OUT.set(self.0);
        }
    }
    let _back = Back(IS_HANDING_OUT.replace(true));
    make()
}

/// A block was allocated inside memtrack.
#[inline]
pub(super) fn allocated(address: u64, size_bytes: u64) {
    if IS_HANDING_OUT.get() {
        add(address, size_bytes);
    }
}

/// Whether a block that is about to be freed is one of them. Then it is none from now on.
#[inline]
pub(super) fn takes(address: u64, size_bytes: u64) -> bool {
    COUNT.load(Ordering::Relaxed) > 0 && remove(address, size_bytes)
}

/// A block is the program's to free.
#[cold]
pub(super) fn add(address: u64, size_bytes: u64) {
    let Some(table) = table().or_else(make) else { return };
    for slot in slots_of(table, address) {
        let seen = slot.load(Ordering::Relaxed);
        let is_free = seen == NEVER || seen == GONE;
        if is_free && slot.compare_exchange(seen, address, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            COUNT.fetch_add(1, Ordering::Relaxed);
            if size_bytes < sample_threshold_bytes() {
                followed::add(address);
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
        if seen == NEVER {
            return false;
        }
        if seen == address {
            slot.store(GONE, Ordering::Relaxed);
            COUNT.fetch_sub(1, Ordering::Relaxed);
            if size_bytes < sample_threshold_bytes() {
                followed::remove(address);
            }
            return true;
        }
    }
    false
}

/// Another session begins, in which these blocks are as unknown as the program's of before.
pub(super) fn clear() {
    if COUNT.swap(0, Ordering::Relaxed) > 0
        && let Some(table) = table()
    {
        table.iter().for_each(|slot| slot.store(NEVER, Ordering::Relaxed));
    }
}

/// In the child of a fork: the table is the parent's, and to write to it would copy it.
pub(super) fn leave_behind() {
    COUNT.store(0, Ordering::Relaxed);
    TABLE.store(ptr::null_mut(), Ordering::Release);
}

/// Where an address may be. A block's address has zeros at its end and is near others, so it is spread first.
fn slots_of(table: &[AtomicU64], address: u64) -> impl Iterator<Item = &AtomicU64> {
    let first = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    (0..MOST_STEPS).map(move |step| &table[(first + step) % SLOTS])
}

fn table() -> Option<&'static [AtomicU64]> {
    let slots = TABLE.load(Ordering::Acquire);
    // SAFETY: not null, it points to `SLOTS` addresses that are never given back.
    (!slots.is_null()).then(|| unsafe { std::slice::from_raw_parts(slots, SLOTS) })
}

#[cold]
fn make() -> Option<&'static [AtomicU64]> {
    // SAFETY: an address of 0 is a valid one.
    let made = unsafe { Zeroed::<AtomicU64>::try_new(SLOTS) }?;
    let slots = made.as_ptr().cast_mut();
    // Of threads that race, the first one's is used, and the others' are dropped.
    if TABLE.compare_exchange(ptr::null_mut(), slots, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        std::mem::forget(made);
        crate::own::hold(BYTES);
    }
    table()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The table is the process's.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_block_is_found_once_and_others_are_not() {
        let _alone = ALONE.lock();
        let blocks = (1..=20_000_u64).map(|place| 0x7f00_0000_0000 + 48 * place);
        for block in blocks.clone() {
            add(block, 1 << 20);
        }
        assert!(!takes(0x7f00_0000_0010, 1 << 20));
        assert!(blocks.clone().all(|block| takes(block, 1 << 20)));
        assert!(!blocks.clone().any(|block| takes(block, 1 << 20)));
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn places_of_blocks_that_are_gone_are_used_again() {
        let _alone = ALONE.lock();
        for round in 0..200_u64 {
            let blocks = (0..2000).map(|place| 0x7e00_0000_0000 + 32 * (2000 * round + place));
            blocks.clone().for_each(|block| add(block, 1 << 20));
            assert!(blocks.clone().all(|block| takes(block, 1 << 20)), "round {round}");
        }
    }

    #[test]
    fn what_is_beyond_the_bound_is_unknown() {
        let _alone = ALONE.lock();
        let blocks = (0..2 * SLOTS as u64).map(|place| 0x7d00_0000_0000 + 16 * place);
        blocks.clone().for_each(|block| add(block, 1 << 20));
        let known = blocks.filter(|&block| takes(block, 1 << 20)).count();
        assert!((SLOTS / 2..=SLOTS).contains(&known), "{known}");
        clear();
    }
}

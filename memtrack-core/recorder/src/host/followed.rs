//! Tells cheaply that a small block is not in the live table: counts of those that are, by their address. A
//! block whose count is 0 was not picked, and most frees of a sampled program end there. While every block is recorded
//! there may be hundreds of thousands, so the counts are many; those of neighbouring addresses lie beside each other,
//! because what a program frees together lay together: nearly all that looking costs is what the caches do not hold.
//!
//! A followed block that stays (a weight) shares its count with its neighbours for as long, and their frees would all be
//! looked up in vain: up to a fiftieth of all frees of a sampled program. What passes the first counts is therefore asked of
//! few finer ones too, which tell single blocks apart.

use crate::zeroed::Zeroed;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

/// Enough for a heap of 2 GiB; in a larger one blocks share counts with others whose addresses differ by a multiple of that.
/// No hash tells them apart: it would be a third of what the free of a block that was only counted costs.
const SLOTS: usize = 1 << 22;
/// Blocks in 512 bytes share a count. More of them would tell more blocks apart and take more of the caches: so few frees of
/// a program that is sampled look in vain, 512 bytes by the mean gap between samples.
const SHARED_SHIFT: u32 = 9;
/// The finer counts: few enough to stay in a core's cache, for there are few followed blocks while most are not. Those of 64
/// KiB of addresses lie beside each other here too.
const FINE_SLOTS: usize = 1 << 18;
const FINE_SHIFT: u32 = 4;
const FINE_REGION_SHIFT: u32 = 16;
const FINE_SLOTS_OF_REGION: usize = 1 << (FINE_REGION_SHIFT - FINE_SHIFT);
const FINE_REGIONS_SHIFT: u32 = u64::BITS - (FINE_SLOTS / FINE_SLOTS_OF_REGION).trailing_zeros();
/// All counts, those of [`SLOTS`] first.
pub(super) const BYTES: usize = SLOTS + FINE_SLOTS;
/// Where there was no memory for more.
const FEW_SLOTS: usize = 1 << 13;

/// Which pages of the counts were ever written to: a session's end looks at no other. Most stay as the system gave them.
static TOUCHED: [AtomicBool; BYTES / PAGE] = [const { AtomicBool::new(false) }; BYTES / PAGE];
const PAGE: usize = 4096;

/// [`BYTES`] counts, made when the first block is followed and then kept; null before.
static COUNTS: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());
static FEW: [AtomicU8; FEW_SLOTS] = [const { AtomicU8::new(0) }; FEW_SLOTS];

#[inline(always)]
fn slot_of(address: u64) -> usize {
    (address >> SHARED_SHIFT) as usize % SLOTS
}

/// Where the finer count of a block is.
fn fine_slot_of(address: u64) -> usize {
    let region =
        ((address >> FINE_REGION_SHIFT).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> FINE_REGIONS_SHIFT) as usize;
    SLOTS + region * FINE_SLOTS_OF_REGION + (address >> FINE_SHIFT) as usize % FINE_SLOTS_OF_REGION
}

/// The finer count of a block; `None` where there are few counts only.
#[inline(always)]
fn fine_count_of(counts: *mut AtomicU8, address: u64) -> Option<&'static AtomicU8> {
    // SAFETY: a pointer other than that of `FEW` is that of `BYTES` counts that are never given back, and a slot is below
    // their number.
    (!std::ptr::eq(counts, few())).then(|| unsafe { &*counts.add(fine_slot_of(address)) })
}

#[inline(always)]
fn count_of(counts: *mut AtomicU8, address: u64) -> &'static AtomicU8 {
    let slot = slot_of(address);
    if std::ptr::eq(counts, few()) {
        return &FEW[slot % FEW_SLOTS];
    }
    // SAFETY: a pointer other than that of `FEW` is that of `BYTES` counts that are never given back, and a slot is
    // below their number.
    unsafe { &*counts.add(slot) }
}

fn few() -> *mut AtomicU8 {
    FEW.as_ptr().cast_mut()
}

/// Whether the block at `address` may be in the live table.
#[inline(always)]
pub(super) fn may_contain(address: u64) -> bool {
    let counts = COUNTS.load(Ordering::Acquire);
    !counts.is_null()
        && count_of(counts, address).load(Ordering::Relaxed) != 0
        && fine_count_of(counts, address).is_none_or(|count| count.load(Ordering::Relaxed) != 0)
}

/// The counts, for a thread to keep; null where there are none, or only few.
pub(super) fn shared() -> *mut AtomicU8 {
    let counts = COUNTS.load(Ordering::Acquire);
    if std::ptr::eq(counts, few()) { std::ptr::null_mut() } else { counts }
}

/// As [`may_contain`] by the first counts alone, for a thread that keeps them.
///
/// # Safety
/// `counts` must be what [`shared`] returned, and not null.
#[inline(always)]
pub(super) unsafe fn may_be_in(counts: *mut AtomicU8, address: u64) -> bool {
    // SAFETY: they are `BYTES` counts that are never given back, and a slot is below their number.
    unsafe { (*counts.add(slot_of(address))).load(Ordering::Relaxed) != 0 }
}

/// The block at `address` goes into the live table. Done before its address leaves the allocator, so that its free finds
/// it; and inside a hook.
#[inline(always)]
pub(super) fn add(address: u64) {
    let mut counts = COUNTS.load(Ordering::Acquire);
    if counts.is_null() {
        counts = make();
    }
    // A count that is full stays full: then every block of the slot is looked up, which is slower and still right.
    let more = |count: u8| Some(count.saturating_add(1));
    for slot in [slot_of(address), fine_slot_of(address)] {
        let touched = &TOUCHED[slot / PAGE];
        if !touched.load(Ordering::Relaxed) {
            touched.store(true, Ordering::Relaxed);
        }
    }
    change(counts, address, more);
}

/// The block at `address` is given back.
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
    let _ = count_of(counts, address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, &change);
    if let Some(fine) = fine_count_of(counts, address) {
        let _ = fine.fetch_update(Ordering::Relaxed, Ordering::Relaxed, &change);
    }
}

#[cold]
fn make() -> *mut AtomicU8 {
    // SAFETY: a count of 0 is a valid one.
    let made = unsafe { Zeroed::<AtomicU8>::try_new(BYTES) };
    let counts = made.as_ref().map_or_else(few, |made| made.as_ptr().cast_mut());
    match COUNTS.compare_exchange(std::ptr::null_mut(), counts, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if let Some(made) = made {
                // Never given back.
                std::mem::forget(made);
                crate::own::hold(BYTES);
            }
            counts
        }
        Err(first) => first,
    }
}

/// No block is in the live table any more.
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
        for slot in page * PAGE..(page + 1) * PAGE {
            // SAFETY: they are `BYTES` counts that are never given back.
            unsafe { &*counts.add(slot) }.store(0, Ordering::Relaxed);
        }
    }
}

/// In the child of a fork, where no block is followed: the counts are the parent's, and to write to them would copy them.
pub(super) fn reset_after_fork() {
    COUNTS.store(std::ptr::null_mut(), Ordering::Release);
    FEW.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    TOUCHED.iter().for_each(|touched| touched.store(false, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Nothing else in this program follows blocks.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_followed_block_has_none_of_its_neighbours_looked_up() {
        let _alone = ALONE.lock();
        let address = 0x7e5a_4321_0040;
        let neighbours = (0..32).map(|place| (address & !511) + 16 * place).filter(|&other| other != address);
        add(address);
        assert!(may_contain(address));
        for other in neighbours {
            // SAFETY: from `shared`, which has them since a block was followed.
            assert!(unsafe { may_be_in(shared(), other) }, "they share the first count");
            assert!(!may_contain(other), "{other:#x}");
        }
        add(address);
        remove(address);
        assert!(may_contain(address), "followed twice, given back once");
        remove(address);
        assert!(!may_contain(address));
    }

    #[test]
    fn a_session_s_end_forgets_them_and_looks_at_few() {
        let _alone = ALONE.lock();
        let address = 0x7e5a_0123_4560;
        add(address);
        let counts = COUNTS.load(Ordering::Acquire);
        let pages = || TOUCHED.iter().filter(|touched| touched.load(Ordering::Relaxed)).count();
        assert!((1..=6).contains(&pages()), "{}", pages());
        clear();
        assert!(!may_contain(address) && pages() == 0);
        // SAFETY: they are `BYTES` counts that are never given back.
        assert!((0..BYTES).all(|slot| unsafe { &*counts.add(slot) }.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn a_count_that_is_full_stays_full() {
        let _alone = ALONE.lock();
        let address = 0x7e5a_8765_0080;
        (0..300).for_each(|_| add(address));
        (0..300).for_each(|_| remove(address));
        assert!(may_contain(address), "what is not known to be out must be looked up");
    }
}

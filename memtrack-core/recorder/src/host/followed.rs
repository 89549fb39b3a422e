//! Tells cheaply that a small block is not in the live table: counts of those that are, by a hash of their address. A
//! block whose count is 0 was not picked, and most frees of a sampled program end there. While every block is recorded
//! there may be hundreds of thousands, so the counts are many; those of one region of addresses lie beside each other,
//! because what a program frees together lay together: nearly all that looking costs is what the caches do not hold.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Enough for a heap of 2 GiB; in a larger one blocks share counts with others that lie elsewhere.
pub(super) const SLOTS: usize = 1 << 22;
/// Blocks in 512 bytes share a count. More of them would tell more blocks apart and take more of the caches: so few frees of
/// a program that is sampled look in vain, 512 bytes by the mean gap between samples.
const SHARED_SHIFT: u32 = 9;
/// The counts of a region of addresses fill a page.
const REGION_SHIFT: u32 = 21;
const SLOTS_OF_REGION: usize = 1 << (REGION_SHIFT - SHARED_SHIFT);
const REGIONS_SHIFT: u32 = u64::BITS - (SLOTS / SLOTS_OF_REGION).trailing_zeros();
/// Where there was no memory for more.
const FEW_SLOTS: usize = 1 << 13;

/// [`SLOTS`] counts, made when the first block is followed and then kept; null before.
static COUNTS: AtomicPtr<AtomicU8> = AtomicPtr::new(std::ptr::null_mut());
static FEW: [AtomicU8; FEW_SLOTS] = [const { AtomicU8::new(0) }; FEW_SLOTS];

#[inline(always)]
fn slot_of(address: u64) -> usize {
    let region = ((address >> REGION_SHIFT).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> REGIONS_SHIFT) as usize;
    region * SLOTS_OF_REGION + (address >> SHARED_SHIFT) as usize % SLOTS_OF_REGION
}

#[inline(always)]
fn count_of(counts: *mut AtomicU8, address: u64) -> &'static AtomicU8 {
    let slot = slot_of(address);
    if std::ptr::eq(counts, few()) {
        return &FEW[slot % FEW_SLOTS];
    }
    // SAFETY: a pointer other than that of `FEW` is that of `SLOTS` counts that are never given back, and a slot is
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
    !counts.is_null() && count_of(counts, address).load(Ordering::Relaxed) != 0
}

/// The counts, for a thread to keep; null where there are none, or only few.
pub(super) fn shared() -> *mut AtomicU8 {
    let counts = COUNTS.load(Ordering::Acquire);
    if std::ptr::eq(counts, few()) { std::ptr::null_mut() } else { counts }
}

/// As [`may_contain`], for a thread that keeps the counts.
///
/// # Safety
/// `counts` must be what [`shared`] returned, and not null.
#[inline(always)]
pub(super) unsafe fn may_be_in(counts: *mut AtomicU8, address: u64) -> bool {
    // SAFETY: they are `SLOTS` counts that are never given back, and a slot is below their number.
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
    let _ = count_of(counts, address)
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count.saturating_add(1)));
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
    let _ = count_of(counts, address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

#[cold]
fn make() -> *mut AtomicU8 {
    const LAYOUT: Layout = Layout::new::<[AtomicU8; SLOTS]>();
    // SAFETY: the layout is not empty, and a count of 0 is a valid one.
    let made = unsafe { alloc_zeroed(LAYOUT) }.cast::<AtomicU8>();
    let counts = if made.is_null() { few() } else { made };
    match COUNTS.compare_exchange(std::ptr::null_mut(), counts, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if !made.is_null() {
                crate::own::hold(SLOTS);
            }
            counts
        }
        Err(first) => {
            if !made.is_null() {
                // SAFETY: made above with this layout, and nobody else has seen it.
                unsafe { std::alloc::dealloc(made.cast(), LAYOUT) };
            }
            first
        }
    }
}

/// No block is in the live table any more.
pub(super) fn clear() {
    let counts = COUNTS.load(Ordering::Acquire);
    if counts.is_null() {
        return;
    }
    let len = if std::ptr::eq(counts, few()) { FEW_SLOTS } else { SLOTS };
    for slot in 0..len {
        // SAFETY: both have so many counts, and neither is ever given back.
        let count = unsafe { &*counts.add(slot) };
        // Reading alone takes no memory.
        if count.load(Ordering::Relaxed) != 0 {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// In the child of a fork, where no block is followed: the counts are the parent's, and to write to them would copy them.
pub(super) fn reset_after_fork() {
    COUNTS.store(std::ptr::null_mut(), Ordering::Release);
    for count in &FEW {
        count.store(0, Ordering::Relaxed);
    }
}

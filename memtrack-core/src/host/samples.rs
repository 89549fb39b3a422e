//! Tells cheaply that a small block is no sample: counts of samples by a hash of their address, 8 KB that leave the
//! first-level cache to the program. A block whose count is 0 was not sampled, and most frees end there.

use std::sync::atomic::{AtomicU8, Ordering};

const SLOTS: usize = 1 << 13;

static COUNTS: [AtomicU8; SLOTS] = [const { AtomicU8::new(0) }; SLOTS];

#[inline(always)]
fn count_of(address: u64) -> &'static AtomicU8 {
    &COUNTS[(address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 51) as usize & (SLOTS - 1)]
}

/// Whether the block at `address` may be a sample.
#[inline(always)]
pub(super) fn may_contain(address: u64) -> bool {
    count_of(address).load(Ordering::Relaxed) != 0
}

/// The block at `address` is a sample. Done before its address leaves the allocator, so that its free finds it.
pub(super) fn add(address: u64) {
    // A count that is full stays full: then every block of the slot is looked up, which is slower and still right.
    let _ = count_of(address)
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count.saturating_add(1)));
}

/// The sample at `address` is given back.
pub(super) fn remove(address: u64) {
    let _ = count_of(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| match count {
        0 | u8::MAX => None,
        count => Some(count - 1),
    });
}

/// No block is a sample.
pub(super) fn clear() {
    for count in &COUNTS {
        count.store(0, Ordering::Relaxed);
    }
}

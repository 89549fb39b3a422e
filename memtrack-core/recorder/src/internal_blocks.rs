//! The large blocks of memtrack itself: those that it allocated on the heap of a program with a `TrackingAllocator` (chunks of
//! events and tables), and the pages that it mapped. Readings of resident memory count their pages as memtrack's. Blocks below [`MIN_BYTES`] are few, and their pages
//! count as free memory that the allocator keeps.
//!
//! The table is only written inside memtrack, when it allocates or frees a large block. Nothing here locks, waits or allocates.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The smallest block in the table.
const MIN_BYTES: u64 = 32 << 10;
/// The number of slots. A ring of 1 Mi events has 256 chunks; blocks that do not fit are left out.
const SLOTS: usize = 2048;
/// The maximum number of slots that are searched for an address.
const MAX_STEPS: usize = 64;
/// The value of a slot whose block was removed. A slot that was never used is 0.
const REMOVED: u64 = u64::MAX;

struct Slot {
    address: AtomicU64,
    bytes: AtomicU64,
}

static TABLE: [Slot; SLOTS] =
    [const { Slot { address: AtomicU64::new(0), bytes: AtomicU64::new(0) } }; SLOTS];

fn slots_of(address: u64) -> impl Iterator<Item = &'static Slot> {
    // Blocks of this size begin at or near a page.
    let first = (address >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize;
    (0..MAX_STEPS).map(move |step| &TABLE[first.wrapping_add(step) % SLOTS])
}

/// Adds a block of memtrack's, if it is large.
pub(crate) fn add(address: u64, bytes: u64) {
    if bytes < MIN_BYTES {
        return;
    }
    for slot in slots_of(address) {
        let seen = slot.address.load(Ordering::Relaxed);
        let is_free = seen == 0 || seen == REMOVED;
        if is_free
            && slot.address.compare_exchange(seen, address, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            slot.bytes.store(bytes, Ordering::Release);
            return;
        }
    }
}

/// Removes a block of memtrack's that is about to be freed.
pub(crate) fn remove(address: u64, bytes: u64) {
    if bytes < MIN_BYTES {
        return;
    }
    let mut used = slots_of(address).take_while(|slot| slot.address.load(Ordering::Relaxed) != 0);
    if let Some(slot) = used.find(|slot| slot.address.load(Ordering::Relaxed) == address) {
        slot.bytes.store(0, Ordering::Relaxed);
        slot.address.store(REMOVED, Ordering::Release);
    }
}

/// Returns the addresses of the blocks in order.
pub(crate) fn ranges() -> Vec<Range<u64>> {
    let range = |slot: &Slot| {
        let (address, bytes) = (slot.address.load(Ordering::Acquire), slot.bytes.load(Ordering::Acquire));
        (address != 0 && address != REMOVED && bytes > 0).then(|| address..address.saturating_add(bytes))
    };
    let mut ranges: Vec<Range<u64>> = TABLE.iter().filter_map(range).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_blocks_are_listed_until_they_are_freed() {
        let has = |address: u64| ranges().iter().any(|range| range.start == address);
        // Other tests allocate in memtrack at the same time, but not at these addresses.
        let address = |number: u64| (1 << 60) + number * MIN_BYTES;
        (0..100).for_each(|number| add(address(number), MIN_BYTES));
        add(1 << 61, MIN_BYTES - 1);
        assert!((0..100).all(|number| has(address(number))) && !has(1 << 61));
        remove(address(7), MIN_BYTES);
        assert!(!has(address(7)) && has(address(8)));
        add(address(7), 2 * MIN_BYTES);
        assert!(ranges().contains(&(address(7)..address(7) + 2 * MIN_BYTES)));
        (0..100).for_each(|number| remove(address(number), MIN_BYTES));
        assert!(!(0..100).any(|number| has(address(number))));
    }
}

//! Allocates addresses in one reserved range by size class. Each class has a stack of free slots; new slots are carved from
//! the unused end of the range. Allocating is a pop and freeing a push, so the mock adds very little to benchmark times.

/// The smallest slot size; all slot sizes are multiples of it.
pub(crate) const GRANULE: u64 = 512;
/// The number of size classes per doubling of the size: a slot is at most an eighth larger than requested.
const STEPS: u64 = 8;
const CLASSES: usize = 64 * STEPS as usize;

/// A range of addresses.
pub(crate) struct Arena {
    next: u64,
    end: u64,
    free: Vec<Vec<u64>>,
}

impl Arena {
    /// Creates an arena over `start..end`.
    pub fn new(start: u64, end: u64) -> Self {
        Self { next: start, end, free: vec![Vec::new(); CLASSES] }
    }

    /// Allocates a slot of at least `bytes` bytes; `None` when the range is exhausted.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let (class, size) = class(bytes);
        if let Some(address) = self.free[class].pop() {
            return Some(address);
        }
        let end = self.next.checked_add(size).filter(|&end| end <= self.end)?;
        Some(std::mem::replace(&mut self.next, end))
    }

    /// Frees a slot that `allocate` returned for the same number of bytes.
    pub fn free(&mut self, address: u64, bytes: u64) {
        self.free[class(bytes).0].push(address);
    }
}

/// Rounds a size up as the device does.
pub(crate) fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(GRANULE)
}

/// Returns the index and the slot size of the size class for `bytes` bytes.
fn class(bytes: u64) -> (usize, u64) {
    let granules = bytes.div_ceil(GRANULE).max(1);
    if granules <= STEPS {
        return (granules as usize, granules * GRANULE);
    }
    // Round up to one of eight steps between two powers of two.
    let shift = (granules - 1).ilog2() - STEPS.ilog2();
    let steps = granules.div_ceil(1 << shift);
    ((u64::from(shift + 1) * STEPS + steps - STEPS) as usize, (steps << shift) * GRANULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_fits_the_requested_size_and_wastes_at_most_an_eighth() {
        let mut last = (0, 0);
        for bytes in (1..20_000).map(|i| i * 97) {
            let (number, size) = class(bytes);
            assert!(size >= bytes && size % GRANULE == 0, "{bytes}");
            assert!(size <= rounded(bytes) + rounded(bytes) / 8, "{bytes} {size}");
            assert!((number, size) >= last, "larger blocks belong to later classes");
            assert!(number != last.0 || size == last.1, "a class has one size: {bytes}");
            last = (number, size);
        }
    }

    #[test]
    fn slots_do_not_overlap_and_are_reused() {
        let mut arena = Arena::new(4096, 4096 + 4 * GRANULE);
        let slots: Vec<u64> = std::iter::from_fn(|| arena.allocate(500)).collect();
        assert_eq!(slots, [4096, 4608, 5120, 5632]);
        arena.free(5120, 500);
        assert_eq!(arena.allocate(512), Some(5120));
    }
}

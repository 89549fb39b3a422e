//! Addresses out of one reserved range, by size class: a stack of free places per class, and new ones from the end.
//! Taking and giving back is a push or a pop, so the mock's own cost stays out of what benches measure.

/// The least place, and what all are multiples of.
pub(crate) const GRANULE: u64 = 512;
/// A place is at most an eighth larger than asked: classes per doubling.
const STEPS: u64 = 8;
const CLASSES: usize = 64 * STEPS as usize;

/// A range of addresses.
pub(crate) struct Arena {
    next: u64,
    end: u64,
    free: Vec<Vec<u64>>,
}

impl Arena {
    /// Over `start..end`.
    pub fn new(start: u64, end: u64) -> Self {
        Self { next: start, end, free: vec![Vec::new(); CLASSES] }
    }

    /// A place of at least so many bytes; none when the range is used up.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let (class, size) = class(bytes);
        if let Some(address) = self.free[class].pop() {
            return Some(address);
        }
        let end = self.next.checked_add(size).filter(|&end| end <= self.end)?;
        Some(std::mem::replace(&mut self.next, end))
    }

    /// Gives a place back that `take` gave for as many bytes.
    pub fn give(&mut self, address: u64, bytes: u64) {
        self.free[class(bytes).0].push(address);
    }
}

/// Bytes as the device counts them.
pub(crate) fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(GRANULE)
}

/// Number and size of the class that holds so many bytes.
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
    fn a_class_holds_what_it_was_chosen_for_and_wastes_at_most_an_eighth() {
        let mut last = (0, 0);
        for bytes in (1..20_000).map(|i| i * 97) {
            let (number, size) = class(bytes);
            assert!(size >= bytes && size % GRANULE == 0, "{bytes}");
            assert!(size <= rounded(bytes) + rounded(bytes) / 8, "{bytes} {size}");
            assert!((number, size) >= last, "larger blocks lie in later classes");
            assert!(number != last.0 || size == last.1, "a class has one size: {bytes}");
            last = (number, size);
        }
    }

    #[test]
    fn places_do_not_overlap_and_come_back() {
        let mut arena = Arena::new(4096, 4096 + 4 * GRANULE);
        let places: Vec<u64> = std::iter::from_fn(|| arena.take(500)).collect();
        assert_eq!(places, [4096, 4608, 5120, 5632]);
        arena.give(5120, 500);
        assert_eq!(arena.take(512), Some(5120));
    }
}

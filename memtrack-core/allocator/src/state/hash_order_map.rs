//! A hash table with the same iteration order as PyTorch's flat hash tables. It uses open addressing with robin-hood
//! insertion and backward-shift deletion, and a load factor of at most one half. When events on several streams are
//! done, their blocks are freed in the order of such a table.

/// The minimum number of extra slots at the end of a table, into which the last buckets can overflow.
const MIN_OVERFLOW: usize = 4;
/// 2^64 divided by the golden ratio, for Fibonacci hashing.
const MULTIPLIER: u64 = 11_400_714_819_323_198_485;

/// A map from keys to values that has the order of PyTorch's tables.
///
/// As in PyTorch's tables, only a few keys should have the same hash. With more than a handful of such keys, the table
/// grows unnecessarily.
#[derive(Debug)]
pub(crate) struct HashOrderMap<K, V> {
    slots: Vec<Option<Slot<K, V>>>,
    /// The number of buckets: a power of two, or 0 before the first insertion.
    buckets: usize,
    length: usize,
}

#[derive(Debug)]
struct Slot<K, V> {
    /// The distance from the slot selected by the hash.
    distance: usize,
    hash: u64,
    key: K,
    value: V,
}

impl<K, V> Default for HashOrderMap<K, V> {
    fn default() -> Self {
        Self { slots: Vec::new(), buckets: 0, length: 0 }
    }
}

impl<K: Copy + Eq, V> HashOrderMap<K, V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the value for a key.
    pub(crate) fn get_mut(&mut self, hash: u64, key: K) -> Option<&mut V> {
        let index = self.find(hash, key)?;
        self.value_at(index)
    }

    /// Inserts a key that is not in the table yet.
    pub(crate) fn insert(&mut self, hash: u64, key: K, value: V) {
        self.insert_slot(Slot { distance: 0, hash, key, value });
    }

    /// Removes a key and returns its value.
    pub(crate) fn remove(&mut self, hash: u64, key: K) -> Option<V> {
        self.find(hash, key).and_then(|index| self.remove_at(index))
    }

    /// Returns the index of the first occupied slot at or after `from`.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        (from..self.slots.len()).find(|&index| self.slots[index].is_some())
    }

    /// Returns the value in a slot that [`Self::next`] found.
    pub(crate) fn value_at(&mut self, index: usize) -> Option<&mut V> {
        self.slots.get_mut(index)?.as_mut().map(|slot| &mut slot.value)
    }

    /// Removes the key in a slot. The next key in order is then in the same slot or a later one.
    pub(crate) fn remove_at(&mut self, index: usize) -> Option<V> {
        let removed = self.slots.get_mut(index)?.take()?;
        self.length -= 1;
        let mut hole = index;
        while let Some(next) = self.slots.get_mut(hole + 1) {
            match next {
                Some(slot) if slot.distance > 0 => slot.distance -= 1,
                _ => break,
            }
            self.slots.swap(hole, hole + 1);
            hole += 1;
        }
        Some(removed.value)
    }

    /// Iterates over the keys in table order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.slots.iter().flatten().map(|slot| slot.key)
    }

    fn find(&self, hash: u64, key: K) -> Option<usize> {
        if self.length == 0 {
            return None;
        }
        let desired = self.desired_slot(hash);
        for (distance, slot) in self.slots[desired..].iter().enumerate() {
            match slot {
                Some(slot) if slot.distance >= distance => {
                    if slot.key == key {
                        return Some(desired + distance);
                    }
                }
                _ => break,
            }
        }
        None
    }

    fn desired_slot(&self, hash: u64) -> usize {
        let bits = self.buckets.trailing_zeros();
        (hash.wrapping_mul(MULTIPLIER) >> (64 - bits)) as usize
    }

    /// Returns the maximum distance between a key and the slot selected by its hash.
    fn max_distance(&self) -> usize {
        MIN_OVERFLOW.max(self.buckets.trailing_zeros() as usize)
    }

    fn insert_slot(&mut self, mut slot: Slot<K, V>) {
        slot.distance = 0;
        if 2 * (self.length + 1) > self.buckets {
            self.grow();
        }
        loop {
            let mut at = self.desired_slot(slot.hash);
            let mut unplaced = slot;
            unplaced.distance = 0;
            let mut new_slot = None;
            while unplaced.distance < self.max_distance() {
                match &mut self.slots[at] {
                    free @ None => {
                        *free = Some(unplaced);
                        self.length += 1;
                        return;
                    }
                    // Of two keys, the one that is further from its desired slot is placed here.
                    Some(other) if other.distance < unplaced.distance => {
                        std::mem::swap(other, &mut unplaced);
                        new_slot.get_or_insert(at);
                    }
                    Some(_) => {}
                }
                unplaced.distance += 1;
                at += 1;
            }
            // Take the new key out of the table again, so that it is inserted last, after the table has grown.
            if let Some(new) = new_slot.and_then(|at| self.slots[at].as_mut()) {
                std::mem::swap(new, &mut unplaced);
            }
            self.grow();
            slot = unplaced;
        }
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.buckets = (2 * self.buckets).max(4);
        self.length = 0;
        self.slots.resize_with(self.buckets + self.max_distance(), || None);
        for slot in old.into_iter().flatten() {
            self.insert_slot(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_keys_are_found_and_removed() {
        let mut table = HashOrderMap::default();
        for key in 0..1000u64 {
            table.insert(key / 3, key, key * 2);
        }
        for key in (0..1000).step_by(2) {
            assert_eq!(table.remove(key / 3, key), Some(key * 2));
        }
        assert_eq!(table.remove(0, 0), None);
        let mut left: Vec<u64> = table.keys().collect();
        left.sort_unstable();
        assert_eq!(left, (1..1000).step_by(2).collect::<Vec<_>>());
        assert_eq!(table.get_mut(3, 9), Some(&mut 18));
    }

    /// The order in which `empty_cache` visits deleted pools, as observed in PyTorch 2.15.
    #[test]
    fn pools_are_visited_as_in_pytorch() {
        let mut table = HashOrderMap::default();
        for pool in [4u64, 9, 12, 1, 3, 7] {
            table.insert(pool, pool, ());
        }
        assert_eq!(table.keys().collect::<Vec<_>>(), [7, 12, 4, 9, 1, 3]);
    }
}

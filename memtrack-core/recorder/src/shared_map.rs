//! A map that all threads share: a dashmap whose locks are only tried. To wait for a lock, dashmap parks the thread,
//! which needs a thread-local with a destructor; the C library registers the destructor under the dynamic linker's
//! lock, so a thread that allocates while a library is being loaded would deadlock. Shards are locked only briefly, so
//! a thread that finds one locked spins, then yields, then sleeps. No shard is locked while memory is allocated or
//! freed: the program's allocator may wait for a thread that waits for the shard.
#![allow(unsafe_code)]

use crate::signals::CancellationBlocked;
use dashmap::try_result::TryResult;
use dashmap::{DashMap, RwLockWriteGuard, SharedValue};
use hashbrown::raw::RawTable;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// The number of failed attempts to lock a shard after which the thread yields ([`SPINS`]) or sleeps ([`YIELDS`])
/// between attempts.
const SPINS: u32 = 64;
const YIELDS: u32 = 128;
const SLEEP: Duration = Duration::from_micros(50);

/// The map. No [`Entry`] may be held during another call, because that would deadlock.
pub(crate) struct SharedMap<K, V, S> {
    map: DashMap<K, V, S>,
}

impl<K: Eq + Hash, V, S: BuildHasher + Clone> SharedMap<K, V, S> {
    /// Creates an empty map.
    ///
    /// # Panics
    /// Panics when the number of shards is not a power of two greater than one.
    pub(crate) fn new(hasher: S, shards: usize) -> Self {
        Self { map: DashMap::with_hasher_and_shard_amount(hasher, shards) }
    }

    /// Returns the entry of `key`. Its shard is locked until the entry is dropped.
    #[inline(always)]
    pub(crate) fn entry(&self, key: K) -> Entry<'_, K, V, S> {
        let hasher = self.map.hasher();
        let hash = hasher.hash_one(&key);
        let shard = &self.map.shards()[self.map.determine_shard(hash as usize)];
        Entry { pairs: retry(|| shard.try_write()), key, hash, hasher }
    }

    /// Returns a copy of the value of `key`.
    #[inline(always)]
    pub(crate) fn get(&self, key: &K) -> Option<V>
    where
        V: Copy,
    {
        retry(|| match self.map.try_get(key) {
            TryResult::Present(value) => Some(Some(*value)),
            TryResult::Absent => Some(None),
            TryResult::Locked => None,
        })
    }

    /// Returns the number of pairs. Locks one shard after another.
    pub(crate) fn len(&self) -> usize {
        self.map.shards().iter().map(|shard| retry(|| shard.try_read()).len()).sum()
    }

    /// Returns the number of pairs that the map has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.map.shards().iter().map(|shard| retry(|| shard.try_read()).capacity()).sum()
    }

    /// Returns the number of allocated buckets. Some of them always stay empty.
    pub(crate) fn buckets(&self) -> usize {
        self.map.shards().iter().map(|shard| retry(|| shard.try_read()).buckets()).sum()
    }

    /// Removes all pairs and frees their memory.
    pub(crate) fn clear(&self) {
        for shard in self.map.shards() {
            let pairs = std::mem::take(&mut *retry(|| shard.try_write()));
            // Freed after the lock is released.
            drop(pairs);
        }
    }

    /// Calls `visit` with each pair. Each shard is locked while its pairs are visited.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&K, &V)) {
        for shard in self.map.shards() {
            let pairs = retry(|| shard.try_read());
            // SAFETY: the shard is locked while its pairs are visited, so it is neither freed nor changed.
            unsafe {
                for pair in pairs.iter() {
                    let (key, value) = pair.as_ref();
                    visit(key, value.get());
                }
            }
        }
    }

    /// Appends the result of `row` for each pair to `rows`. Each shard is locked while its pairs are visited, so `row`
    /// must not allocate.
    pub(crate) fn rows<T>(&self, mut rows: Vec<T>, mut row: impl FnMut(&K, &V) -> Option<T>) -> Vec<T> {
        for shard in self.map.shards() {
            let pairs = loop {
                let pairs = retry(|| shard.try_read());
                if pairs.len() <= rows.capacity() - rows.len() {
                    break pairs;
                }
                // Capacity is reserved while the shard is not locked.
                let more = pairs.len() + pairs.len() / 8;
                drop(pairs);
                rows.reserve(more);
            };
            // SAFETY: the shard is locked while its pairs are visited, so it is neither freed nor changed.
            unsafe {
                for pair in pairs.iter() {
                    let (key, value) = pair.as_ref();
                    rows.extend(row(key, value.get()));
                }
            }
        }
        rows
    }

    /// Removes the pairs for which `keep` returns false. Each shard is locked while its pairs are visited.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        for shard in self.map.shards() {
            let mut pairs = retry(|| shard.try_write());
            // SAFETY: this thread has locked the shard, and the iterator stays valid when the pair it returned last is
            // erased.
            unsafe {
                for pair in pairs.iter() {
                    let (key, value) = pair.as_ref();
                    if !keep(key, value.get()) {
                        pairs.erase(pair);
                    }
                }
            }
        }
    }

    /// Returns the shard that contains `key`.
    pub(crate) fn shard_of(&self, key: &K) -> usize {
        self.map.determine_map(key)
    }

    /// Makes room in the shard of `key` if the shard is full: doubles its [buckets](Self::buckets) (four at first), or
    /// only removes tombstones if half of the shard is empty. Returns the number of buckets added.
    #[cold]
    pub(crate) fn make_room(&self, key: &K) -> usize {
        let shard = &self.map.shards()[self.map.determine_map(key)];
        let room = {
            let mut pairs = retry(|| shard.try_write());
            if !is_full(&pairs) {
                return 0;
            }
            if is_half_empty(&pairs) {
                // This rehashes in place, without allocating.
                pairs.reserve(1, |(key, _)| self.map.hasher().hash_one(key));
                return 0;
            }
            max_pairs(pairs.buckets()) + 1
        };
        let mut other = RawTable::with_capacity(room);
        let mut pairs = retry(|| shard.try_write());
        let more = other.buckets().saturating_sub(pairs.buckets());
        // Another thread may have grown the shard meanwhile.
        if more == 0 || !is_full(&pairs) {
            return 0;
        }
        self.rehash(&mut pairs, &mut other);
        more
    }

    /// Shrinks a shard that has room for more than `min_capacity` pairs and is less than a quarter full. Never waits.
    /// Returns the number of [buckets](Self::buckets) removed.
    pub(crate) fn shrink(&self, shard: usize, min_capacity: usize) -> usize {
        let shard = &self.map.shards()[shard];
        let Some(pairs) = shard.try_read() else { return 0 };
        let (len, capacity) = (pairs.len(), pairs.capacity());
        drop(pairs);
        if capacity <= min_capacity || len >= capacity / 4 {
            return 0;
        }
        let mut other = RawTable::with_capacity(len * 2);
        let Some(mut pairs) = shard.try_write() else { return 0 };
        let less = pairs.buckets().saturating_sub(other.buckets());
        if less == 0 || pairs.len() > other.capacity() {
            return 0;
        }
        self.rehash(&mut pairs, &mut other);
        less
    }

    /// Moves a shard's `pairs` to the memory of `other`, which is empty and has room for them, and swaps the two
    /// tables. Afterwards `other` is empty and has the old memory, which the caller frees.
    fn rehash(&self, pairs: &mut Pairs<K, V>, other: &mut Pairs<K, V>) {
        std::mem::swap(pairs, other);
        for pair in other.drain() {
            let hash = self.map.hasher().hash_one(&pair.0);
            // SAFETY: the caller guarantees that there is room.
            unsafe { pairs.insert_no_grow(hash, pair) };
        }
    }
}

/// A shard's table.
type Pairs<K, V> = RawTable<(K, SharedValue<V>)>;

/// Returns the number of pairs that fit into this number of buckets by hashbrown's rule: an eighth stays empty.
fn max_pairs(buckets: usize) -> usize {
    if buckets <= 8 { buckets - 1 } else { buckets / 8 * 7 }
}

/// Returns whether there is no room for another pair. Removed pairs may still take room, because they leave tombstones.
#[inline(always)]
fn is_full<T>(pairs: &RawTable<T>) -> bool {
    pairs.len() == pairs.capacity()
}

/// Returns whether half of the table would be empty without the tombstones of removed pairs.
fn is_half_empty<T>(pairs: &RawTable<T>) -> bool {
    pairs.len() < max_pairs(pairs.buckets()) / 2
}

/// The entry of a key, present or not. Its shard is locked while the entry exists.
pub(crate) struct Entry<'a, K, V, S> {
    pairs: RwLockWriteGuard<'a, Pairs<K, V>>,
    key: K,
    hash: u64,
    hasher: &'a S,
}

impl<K: Eq + Hash, V, S: BuildHasher> Entry<'_, K, V, S> {
    /// Returns the value if the key is present.
    #[inline(always)]
    pub(crate) fn get(&mut self) -> Option<&mut V> {
        self.pairs.get_mut(self.hash, |(key, _)| *key == self.key).map(|(_, value)| value.get_mut())
    }

    /// Removes the key and returns its value if it was present.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<V> {
        self.pairs.remove_entry(self.hash, |(key, _)| *key == self.key).map(|(_, value)| value.into_inner())
    }

    /// Returns whether the shard has no room for another key: see [`SharedMap::make_room`].
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        is_full(&self.pairs)
    }

    /// Returns the maximum number of [buckets](SharedMap::buckets) that [`SharedMap::make_room`] will add to the shard,
    /// which is full.
    pub(crate) fn more_buckets(&self) -> usize {
        match is_half_empty(&self.pairs) {
            true => 0,
            // An empty table with one bucket grows to four at once.
            false => self.pairs.buckets().max(3),
        }
    }

    /// Inserts a value and returns the previous one. For a new key, the shard must not be full.
    #[inline(always)]
    pub(crate) fn insert(&mut self, value: V) -> Option<V>
    where
        K: Copy,
    {
        // `find_or_find_insert_slot` would grow a full table.
        if self.is_full()
            && let Some(old) = self.get()
        {
            return Some(std::mem::replace(old, value));
        }
        let Self { pairs, key, hash, hasher } = self;
        match pairs.find_or_find_insert_slot(
            *hash,
            |(other, _)| other == key,
            |(key, _)| hasher.hash_one(key),
        ) {
            // SAFETY: the shard is locked, and nothing changed it since the bucket was found.
            Ok(bucket) => Some(std::mem::replace(unsafe { bucket.as_mut() }.1.get_mut(), value)),
            Err(slot) => {
                // SAFETY: as above; the slot belongs to this table.
                unsafe { pairs.insert_in_slot(*hash, slot, (*key, SharedValue::new(value))) };
                None
            }
        }
    }
}

/// Repeats `attempt` until it returns a value, and returns the value.
#[inline(always)]
fn retry<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    match attempt() {
        Some(done) => done,
        None => retry_slowly(attempt),
    }
}

#[cold]
fn retry_slowly<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    // Sleeping is a point at which a thread can be cancelled.
    let _no_cancellation = CancellationBlocked::now();
    let mut attempts = 0_u32;
    loop {
        if attempts < SPINS {
            std::hint::spin_loop();
        } else if attempts < YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(SLEEP);
        }
        if let Some(done) = attempt() {
            return done;
        }
        attempts = attempts.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::hash_map::RandomState;

    type Map<V> = SharedMap<u32, V, RandomState>;

    /// Inserts a value, after making room in its shard if necessary.
    fn insert<V>(map: &Map<V>, key: u32, value: V) -> Option<V> {
        let mut entry = map.entry(key);
        while entry.is_full() && entry.get().is_none() {
            drop(entry);
            map.make_room(&key);
            entry = map.entry(key);
        }
        entry.insert(value)
    }

    #[test]
    fn retain_keeps_the_selected_pairs() {
        let map = SharedMap::new(RandomState::new(), 4);
        (0..1000_u32).for_each(|number| assert!(insert(&map, number, 2 * number).is_none()));
        map.retain(|key, value| key % 3 == 0 && *value == 2 * key);
        let mut left = map.rows(Vec::new(), |key, value| (*key != 999).then_some((*key, *value)));
        left.push((999, 1998));
        left.sort_unstable();
        assert_eq!(left, (0..1000).step_by(3).map(|key| (key, 2 * key)).collect::<Vec<_>>());
        assert_eq!((map.len(), map.get(&3), map.get(&4)), (334, Some(6), None));
        let (room, buckets) = (map.capacity(), map.buckets());
        let less: usize = (0..4).map(|shard| map.shrink(shard, 8)).sum();
        assert!(map.capacity() <= room && map.len() == 334);
        assert_eq!(map.buckets() + less, buckets);
        map.clear();
        assert_eq!(map.len(), 0);
    }

    #[test]
    fn a_shard_grows_only_on_request_and_by_the_expected_amount() {
        let map = SharedMap::new(RandomState::new(), 2);
        let mut buckets = map.buckets();
        for number in 0..1000_u32 {
            let mut entry = map.entry(number);
            assert!(entry.get().is_none() && entry.take().is_none());
            while entry.is_full() {
                let most = entry.more_buckets();
                drop(entry);
                let more = map.make_room(&number);
                assert!(0 < more && more <= most, "{more}, {most}");
                buckets += more;
                entry = map.entry(number);
            }
            assert_eq!((entry.insert(number), entry.insert(number + 1)), (None, Some(number)));
            assert_eq!(entry.get(), Some(&mut (number + 1)));
            drop(entry);
            assert_eq!(map.buckets(), buckets);
        }
        assert_eq!(map.len(), 1000);
        assert_eq!(map.entry(7).take(), Some(8));
        assert_eq!(map.len(), 999);
    }

    #[test]
    fn a_shard_with_a_constant_number_of_pairs_is_cleaned_up_and_does_not_grow() {
        let map = SharedMap::new(RandomState::new(), 2);
        for number in 0..100_000_u32 {
            insert(&map, number, number);
            if let Some(old) = number.checked_sub(100) {
                assert_eq!(map.entry(old).take(), Some(old));
            }
        }
        assert_eq!(map.len(), 100);
        assert!(map.buckets() <= 2 * 256, "{}", map.buckets());
        assert!((99_900..100_000).all(|number| map.get(&number) == Some(number)));
    }

    #[test]
    fn growing_and_shrinking_on_several_threads_loses_nothing() {
        let map = SharedMap::new(RandomState::new(), 2);
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let map = &map;
                scope.spawn(move || {
                    for number in (0..40_000).map(|number| number * 4 + thread) {
                        assert_eq!(insert(map, number, number), None);
                        if number % 3 != 0 {
                            assert_eq!(map.entry(number).take(), Some(number));
                        }
                        if number % 1000 == thread {
                            map.shrink((number % 2) as usize, 4);
                        }
                    }
                });
            }
        });
        let mut keys = Vec::new();
        map.for_each(|key, value| keys.extend((key == value).then_some(*key)));
        keys.sort_unstable();
        assert_eq!(keys, (0..160_000).step_by(3).collect::<Vec<_>>());
    }

    #[test]
    fn a_thread_that_finds_a_shard_locked_waits_for_it() {
        let map = SharedMap::new(RandomState::new(), 2);
        (0..3).for_each(|number| assert!(insert(&map, number, 0_u64).is_none()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..5000_u32 {
                        *map.entry(number % 3).get().expect("they are there") += 1;
                        if number % 1000 == 0 {
                            let _locked = map.entry(0);
                            // Longer than the other threads spin.
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                });
            }
        });
        let mut sum = 0;
        map.for_each(|_, value| sum += value);
        assert_eq!(sum, 20_000);
    }
}

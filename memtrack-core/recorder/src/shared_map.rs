//! A map that all threads share: dashmap, whose locks are only ever tried. To wait for one, dashmap parks the thread, which
//! takes a thread-local with a destructor; the C library registers that under the dynamic linker's lock, and a thread that
//! allocates while a library is being loaded would wait for ever. Shards are held for moments, so whoever finds one
//! taken spins, then lets others run, then sleeps a little.
#![allow(unsafe_code)]

use crate::signals::Uncancelled;
use dashmap::mapref::entry::Entry;
use dashmap::try_result::TryResult;
use dashmap::{DashMap, RwLockWriteGuard, SharedValue};
use hashbrown::raw::RawTable;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// How often a taken shard is tried again before others are let run, and before the thread sleeps in between.
const SPINS: u32 = 64;
const YIELDS: u32 = 128;
const SLEEP: Duration = Duration::from_micros(50);

/// The map. No reference into it may be held while it is asked for another: nobody would ever let go.
pub(crate) struct SharedMap<K, V, S> {
    map: DashMap<K, V, S>,
}

impl<K: Eq + Hash, V, S: BuildHasher + Clone> SharedMap<K, V, S> {
    /// An empty map.
    ///
    /// # Panics
    /// When the number of shards is not a power of two above one.
    pub(crate) fn new(hasher: S, shards: usize) -> Self {
        Self { map: DashMap::with_hasher_and_shard_amount(hasher, shards) }
    }

    /// The place of `key`, whose shard is locked until it is dropped.
    #[inline(always)]
    pub(crate) fn entry(&self, key: K) -> Entry<'_, K, V>
    where
        K: Copy,
    {
        patiently(|| self.map.try_entry(key))
    }

    /// The place of `key`, whose shard is locked until it is dropped. Other than [`Self::entry`], looking makes no room: who
    /// counts what the map takes learns of it before a shard grows.
    #[inline(always)]
    pub(crate) fn place(&self, key: K) -> Place<'_, K, V, S> {
        let hasher = self.map.hasher();
        let hash = hasher.hash_one(&key);
        let shard = &self.map.shards()[self.map.determine_shard(hash as usize)];
        Place { pairs: patiently(|| shard.try_write()), key, hash, hasher }
    }

    /// A copy of what is there for `key`.
    #[inline(always)]
    pub(crate) fn get(&self, key: &K) -> Option<V>
    where
        V: Copy,
    {
        patiently(|| match self.map.try_get(key) {
            TryResult::Present(value) => Some(Some(*value)),
            TryResult::Absent => Some(None),
            TryResult::Locked => None,
        })
    }

    /// How many pairs there are, shard by shard.
    pub(crate) fn len(&self) -> usize {
        self.map.shards().iter().map(|shard| patiently(|| shard.try_read()).len()).sum()
    }

    /// For how many pairs there is room.
    pub(crate) fn capacity(&self) -> usize {
        self.map.shards().iter().map(|shard| patiently(|| shard.try_read()).capacity()).sum()
    }

    /// How many pairs would fill the map's memory, part of which stays empty.
    pub(crate) fn buckets(&self) -> usize {
        self.map.shards().iter().map(|shard| patiently(|| shard.try_read()).buckets()).sum()
    }

    /// Forgets all, and gives the memory back.
    pub(crate) fn clear(&self) {
        for shard in self.map.shards() {
            let all = std::mem::take(&mut *patiently(|| shard.try_write()));
            // Not under the lock.
            drop(all);
        }
    }

    /// Calls `see` with each pair, shard by shard: each is locked meanwhile.
    pub(crate) fn each(&self, mut see: impl FnMut(&K, &V)) {
        for shard in self.map.shards() {
            let pairs = patiently(|| shard.try_read());
            // SAFETY: the shard is locked for as long as its pairs are looked at, so it stays and nobody changes it.
            unsafe {
                for pair in pairs.iter() {
                    let (key, value) = pair.as_ref();
                    see(key, value.get());
                }
            }
        }
    }

    /// Keeps the pairs of which `keep` says so, shard by shard: each is locked meanwhile.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) {
        for shard in self.map.shards() {
            let mut pairs = patiently(|| shard.try_write());
            // SAFETY: the shard is locked, by nobody else, and an iterator may go on after the pair that it gave was erased.
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

    /// The shard in which `key` is.
    pub(crate) fn shard_of(&self, key: &K) -> usize {
        self.map.determine_map(key)
    }

    /// Gives back most of the room of a shard that could hold more than `least` pairs and is less than a quarter full. Waits
    /// for nobody. Returns by how many [buckets](Self::buckets) it shrank.
    pub(crate) fn shrink(&self, shard: usize, least: usize) -> usize {
        let Some(mut pairs) = self.map.shards()[shard].try_write() else { return 0 };
        let before = pairs.buckets();
        if pairs.capacity() > least && pairs.len() < pairs.capacity() / 4 {
            let keep = pairs.len() * 2;
            pairs.shrink_to(keep, |(key, _)| self.map.hasher().hash_one(key));
        }
        before - pairs.buckets()
    }
}

/// Where a key is or would be, in a shard that is locked.
pub(crate) struct Place<'a, K, V, S> {
    pairs: RwLockWriteGuard<'a, RawTable<(K, SharedValue<V>)>>,
    key: K,
    hash: u64,
    hasher: &'a S,
}

impl<K: Eq + Hash, V, S: BuildHasher> Place<'_, K, V, S> {
    /// What is there.
    #[inline(always)]
    pub(crate) fn get(&mut self) -> Option<&mut V> {
        self.pairs.get_mut(self.hash, |(key, _)| *key == self.key).map(|(_, value)| value.get_mut())
    }

    /// Takes out what is there.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<V> {
        self.pairs.remove_entry(self.hash, |(key, _)| *key == self.key).map(|(_, value)| value.into_inner())
    }

    /// Whether the shard has no room for another key, and would grow.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.pairs.len() == self.pairs.capacity()
    }

    /// How many pairs would fill the shard's memory, part of which stays empty.
    pub(crate) fn buckets(&self) -> usize {
        self.pairs.buckets()
    }

    /// Has the shard grow, if it is full: at most to twice its [buckets](Self::buckets), or to four.
    pub(crate) fn make_room(&mut self) {
        self.pairs.reserve(1, |(key, _)| self.hasher.hash_one(key));
    }

    /// Puts a value there, and returns what was there before.
    #[inline(always)]
    pub(crate) fn put(&mut self, value: V) -> Option<V>
    where
        K: Copy,
    {
        // Looking for a slot makes room for one.
        if self.is_full()
            && let Some(there) = self.get()
        {
            return Some(std::mem::replace(there, value));
        }
        let Self { pairs, key, hash, hasher } = self;
        match pairs.find_or_find_insert_slot(
            *hash,
            |(other, _)| other == key,
            |(key, _)| hasher.hash_one(key),
        ) {
            // SAFETY: the shard is locked, and nothing changed it since the bucket was found.
            Ok(there) => Some(std::mem::replace(unsafe { there.as_mut() }.1.get_mut(), value)),
            Err(slot) => {
                // SAFETY: as above; the slot is of this table.
                unsafe { pairs.insert_in_slot(*hash, slot, (*key, SharedValue::new(value))) };
                None
            }
        }
    }
}

/// What `attempt` gives, which is made until it gives something.
#[inline(always)]
fn patiently<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    match attempt() {
        Some(done) => done,
        None => again(attempt),
    }
}

#[cold]
fn again<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    // Sleeping is a place at which a thread can be cancelled.
    let _uncancelled = Uncancelled::now();
    let mut tried = 0_u32;
    loop {
        if tried < SPINS {
            std::hint::spin_loop();
        } else if tried < YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(SLEEP);
        }
        if let Some(done) = attempt() {
            return done;
        }
        tried = tried.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::hash_map::RandomState;

    #[test]
    fn it_keeps_what_it_is_to_keep() {
        let map = SharedMap::new(RandomState::new(), 4);
        (0..1000_u32).for_each(|number| drop(map.entry(number).insert(2 * number)));
        map.retain(|key, value| key % 3 == 0 && *value == 2 * key);
        let mut left = Vec::new();
        map.each(|key, value| left.push((*key, *value)));
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
    fn looking_makes_no_room_and_a_full_shard_is_seen_to_grow() {
        let map = SharedMap::new(RandomState::new(), 2);
        let mut buckets = map.buckets();
        for number in 0..1000_u32 {
            let mut place = map.place(number);
            let before = place.buckets();
            assert!(place.get().is_none() && place.take().is_none());
            assert_eq!(place.buckets(), before);
            if place.is_full() {
                place.make_room();
                assert!(place.buckets() <= (2 * before).max(4), "{before}");
                buckets += place.buckets() - before;
            }
            let room = place.buckets();
            assert_eq!((place.put(number), place.put(number + 1)), (None, Some(number)));
            assert_eq!((place.buckets(), place.get()), (room, Some(&mut (number + 1))));
        }
        assert_eq!((map.len(), map.buckets()), (1000, buckets));
        assert_eq!(map.place(7).take(), Some(8));
        assert_eq!(map.len(), 999);
    }

    #[test]
    fn whoever_finds_a_shard_taken_waits_for_it() {
        let map = SharedMap::new(RandomState::new(), 2);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..5000_u32 {
                        *map.entry(number % 3).or_insert(0_u64) += 1;
                        if number % 1000 == 0 {
                            let _taken = map.entry(0);
                            // Longer than the others spin.
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                });
            }
        });
        let mut sum = 0;
        map.each(|_, value| sum += value);
        assert_eq!(sum, 20_000);
    }
}

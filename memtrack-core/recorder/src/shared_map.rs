//! A map that all threads share: dashmap, whose locks are only ever tried. To wait for one, dashmap parks the thread, which
//! takes a thread-local with a destructor; the C library registers that under the dynamic linker's lock, and a thread that
//! allocates while a library is being loaded would wait for ever. Shards are held for moments, so whoever finds one
//! taken spins, then lets others run, then sleeps a little.
#![allow(unsafe_code)]

use crate::signals::Uncancelled;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use dashmap::try_result::TryResult;
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

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.map.shards().iter().for_each(|shard| patiently(|| shard.try_write()).clear());
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
    /// for nobody.
    pub(crate) fn shrink(&self, shard: usize, least: usize) {
        let Some(mut pairs) = self.map.shards()[shard].try_write() else { return };
        if pairs.capacity() > least && pairs.len() < pairs.capacity() / 4 {
            let keep = pairs.len() * 2;
            pairs.shrink_to(keep, |(key, _)| self.map.hasher().hash_one(key));
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
        let room = map.capacity();
        (0..4).for_each(|shard| map.shrink(shard, 8));
        assert!(map.capacity() <= room && map.len() == 334);
        map.clear();
        assert_eq!(map.len(), 0);
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

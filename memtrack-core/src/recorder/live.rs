//! The live table: every block that is out, by device and address. Its shards are also what orders the events of one
//! address: the stamp is taken while the address's shard is locked.

use super::order::stamp;
use crate::event::{DeviceId, EventFlags, ScopeId, StackId, StreamId};
use crate::snapshot::LiveBlock;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::fast::FixedState;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 128;

/// What is remembered of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) ticks: u64,
    pub(crate) size_bytes: u64,
    pub(crate) stream: StreamId,
    pub(crate) stack: StackId,
    pub(crate) scope: ScopeId,
    pub(crate) flags: EventFlags,
    pub(crate) pending_free: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    address: u64,
    device: DeviceId,
}

/// On a cache line of its own: two threads in neighbouring shards must not slow each other.
#[repr(align(64))]
#[derive(Default)]
struct Newest(AtomicU64);

/// All live blocks.
pub(crate) struct LiveTable {
    blocks: DashMap<Key, Live, FixedState>,
    /// The newest stamp of each shard; read and written only while that shard is locked.
    newest: Box<[Newest]>,
}

impl LiveTable {
    /// An empty table.
    pub(crate) fn new() -> Self {
        let blocks = DashMap::with_hasher_and_shard_amount(FixedState::default(), SHARDS);
        Self { blocks, newest: (0..SHARDS).map(|_| Newest::default()).collect() }
    }

    /// Must be called with the shard of `key` locked; also sets the thread's newest stamp.
    #[inline(always)]
    fn stamp(&self, key: &Key, newest_of_thread: &Cell<u64>) -> u64 {
        let newest = &self.newest[self.blocks.determine_map(key)].0;
        let now = super::clock::ticks_after(newest_of_thread.get());
        let ticks = stamp(now, newest.load(Ordering::Relaxed), newest_of_thread.get());
        newest.store(ticks, Ordering::Relaxed);
        newest_of_thread.set(ticks);
        ticks
    }

    /// A block was handed out. Returns its stamp, and the block whose free nobody saw if there was one at its address
    /// (it gets the stamp before).
    #[inline(always)]
    pub(crate) fn insert(
        &self,
        device: DeviceId,
        address: u64,
        mut block: Live,
        newest_of_thread: &Cell<u64>,
    ) -> (u64, Option<Live>) {
        let key = Key { address, device };
        match self.blocks.entry(key) {
            Entry::Vacant(vacant) => {
                block.ticks = self.stamp(&key, newest_of_thread);
                vacant.insert(block);
                (block.ticks, None)
            }
            Entry::Occupied(mut occupied) => {
                self.stamp(&key, newest_of_thread);
                block.ticks = self.stamp(&key, newest_of_thread);
                (block.ticks, Some(occupied.insert(block)))
            }
        }
    }

    /// A segment was taken from the driver, and with it the block that it is. Returns the stamps of both, and the block
    /// whose free nobody saw if there was one at the address (its stamp is the one before the segment's).
    #[cfg(feature = "cuda")]
    pub(crate) fn insert_segment(
        &self,
        device: DeviceId,
        address: u64,
        mut block: Live,
        newest_of_thread: &Cell<u64>,
    ) -> ([u64; 2], Option<Live>) {
        let key = Key { address, device };
        let entry = self.blocks.entry(key);
        self.stamp(&key, newest_of_thread);
        let segment = self.stamp(&key, newest_of_thread);
        block.ticks = self.stamp(&key, newest_of_thread);
        let unseen = match entry {
            Entry::Vacant(vacant) => {
                vacant.insert(block);
                None
            }
            Entry::Occupied(mut occupied) => Some(occupied.insert(block)),
        };
        ([segment, block.ticks], unseen)
    }

    /// A segment is about to be given to the driver, and with it its block if it `has_block`. Returns the stamps of the
    /// block's end and the segment's, and the block.
    #[cfg(feature = "cuda")]
    pub(crate) fn remove_segment(
        &self,
        device: DeviceId,
        address: u64,
        has_block: bool,
        newest_of_thread: &Cell<u64>,
    ) -> ([u64; 2], Option<Live>) {
        let key = Key { address, device };
        let entry = self.blocks.entry(key);
        let stamps = [self.stamp(&key, newest_of_thread), self.stamp(&key, newest_of_thread)];
        let block = match entry {
            Entry::Occupied(occupied) if has_block => Some(occupied.remove()),
            _ => None,
        };
        (stamps, block)
    }

    /// Addresses of the blocks that begin within a stretch of a device. Looks at all blocks.
    #[cfg(feature = "cuda")]
    pub(crate) fn within(&self, device: DeviceId, addresses: std::ops::Range<u64>) -> Vec<u64> {
        let inside = |key: &Key| key.device == device && addresses.contains(&key.address);
        self.blocks.iter().map(|entry| *entry.key()).filter(inside).map(|key| key.address).collect()
    }

    /// A block is about to be given back. Returns its stamp, and what was known of it.
    #[inline(always)]
    pub(crate) fn remove(
        &self,
        device: DeviceId,
        address: u64,
        newest_of_thread: &Cell<u64>,
    ) -> (u64, Option<Live>) {
        let key = Key { address, device };
        match self.blocks.entry(key) {
            Entry::Vacant(_locked) => (self.stamp(&key, newest_of_thread), None),
            Entry::Occupied(occupied) => (self.stamp(&key, newest_of_thread), Some(occupied.remove())),
        }
    }

    /// Changes a block in place (a free that was requested but is not complete). Returns the stamp and the block as it
    /// was.
    pub(crate) fn update(
        &self,
        device: DeviceId,
        address: u64,
        newest_of_thread: &Cell<u64>,
        change: impl FnOnce(&mut Live),
    ) -> (u64, Option<Live>) {
        let key = Key { address, device };
        match self.blocks.entry(key) {
            Entry::Vacant(_locked) => (self.stamp(&key, newest_of_thread), None),
            Entry::Occupied(mut occupied) => {
                let ticks = self.stamp(&key, newest_of_thread);
                let before = *occupied.get();
                change(occupied.get_mut());
                (ticks, Some(before))
            }
        }
    }

    /// Puts a block back whose free failed, as if nothing had happened.
    pub(crate) fn put_back(&self, device: DeviceId, address: u64, block: Live) {
        self.blocks.entry(Key { address, device }).or_insert(block);
    }

    /// Bytes that the table takes.
    pub(crate) fn table_bytes(&self) -> usize {
        self.blocks.capacity() * (size_of::<(Key, Live)>() + 1) + size_of_val(&*self.newest)
    }

    /// The newest stamp that was given out so far; 0 before the first.
    pub(crate) fn newest_ticks(&self) -> u64 {
        self.newest.iter().map(|newest| newest.0.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.blocks.clear();
    }

    /// A copy of all blocks, shard by shard: each shard is locked only while it is copied.
    pub(crate) fn blocks(&self) -> Vec<LiveBlock> {
        let mut blocks = Vec::with_capacity(self.blocks.len());
        blocks.extend(
            self.blocks.iter().map(|entry| block_of(entry.key().device, entry.key().address, entry.value())),
        );
        blocks
    }
}

/// The model's row for a live block.
pub(crate) fn block_of(device: DeviceId, address: u64, live: &Live) -> LiveBlock {
    LiveBlock {
        device,
        address,
        size_bytes: live.size_bytes,
        stream: live.stream,
        stack: live.stack,
        scope: live.scope,
        ticks: live.ticks,
        flags: live.flags,
        pending_free: live.pending_free,
    }
}

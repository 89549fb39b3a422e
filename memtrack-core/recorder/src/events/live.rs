//! The live table: the live blocks, by device and address, as many as fit. Its shards also order the events of one
//! address: an event gets its stamp while the address's shard is locked.
//!
//! **Why dashmap, and why these shards?** Its `raw-api` gives access to a shard's table (hashbrown 0.14, dashmap's
//! version), so that the shard's lock can also protect its newest stamp, and so that the table grows only within the
//! bound and outside the lock. The 2 MiB region of an address determines four of the 512 shards, and a hash of the
//! address selects one of the four: threads whose blocks are far apart do not compete for cache lines, and threads that
//! share a pool do not all wait for one lock.

use super::counted_peak;
use super::order::stamp;
use super::slot_of;
use crate::settings;
use crate::shared_map::{Entry, SharedMap};
use crate::shared_memory;
use memtrack_model::event::{DeviceId, Event, EventFlags, ScopeId, StackId, StreamId};
use memtrack_model::snapshot::LiveBlock;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The base-2 logarithm of the number of shards per region of addresses: more than one shard, so that threads that
/// share a region do not all wait for each other.
const SHARDS_PER_REGION_BITS: u32 = 2;
/// The base-2 logarithm of the number of all shards.
const SHARD_BITS: u32 = 9;
const SHARDS: usize = 1 << SHARD_BITS;
/// The base-2 logarithm of the size of a region: most allocations of a thread lie within a region.
const REGION_BITS: u32 = 21;

/// The table's entry for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveEntry {
    pub(crate) ticks: u64,
    pub(crate) size_bytes: u64,
    pub(crate) stream: StreamId,
    pub(crate) stack: StackId,
    pub(crate) scope: ScopeId,
    pub(crate) flags: EventFlags,
    pub(crate) pending_free: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    address: u64,
    device: DeviceId,
}

impl Hash for Key {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.bits());
    }
}

impl Key {
    /// Returns the address combined with the device. Addresses have 48 or 57 bits. If they overlap the bits of the device,
    /// two keys may have the same hash, which is harmless.
    #[inline(always)]
    fn bits(&self) -> u64 {
        self.address ^ u64::from(self.device.0) << 48
    }
}

/// A hasher that chooses the shard by the region of the address, so that threads whose blocks are far apart use
/// different shards and thus different cache lines.
#[derive(Clone, Copy, Default)]
struct RegionHasher(u64);

impl BuildHasher for RegionHasher {
    type Hasher = Self;

    #[inline(always)]
    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for RegionHasher {
    #[inline(always)]
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    /// The map uses the highest seven bits as tags, the `SHARD_BITS` below them for shards, and the lowest for slots.
    #[inline(always)]
    fn finish(&self) -> u64 {
        const TAG_BITS: u32 = 7;
        const SHARD_SHIFT: u32 = u64::BITS - TAG_BITS - SHARD_BITS;
        const SHARD_MASK: u64 = (SHARDS as u64 - 1) << SHARD_SHIFT;
        // The two halves of the product depend on different bits of the key, so each bit of their exclusive or depends
        // on the whole key.
        let product = u128::from(self.0) * u128::from(FACTOR);
        let folded = (product >> u64::BITS) as u64 ^ product as u64;
        folded & !SHARD_MASK | shard(self.0) << SHARD_SHIFT
    }
}

/// An odd, random-looking factor (from SplitMix64).
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes the bits: each bit affects all higher bits.
#[inline(always)]
fn mix(bits: u64) -> u64 {
    bits.wrapping_mul(FACTOR)
}

/// Returns the shard for the [bits](Key::bits) of a key.
#[inline(always)]
fn shard(key: u64) -> u64 {
    let region = mix(key >> REGION_BITS) >> (u64::BITS - SHARD_BITS);
    let within = mix(key) >> (u64::BITS - SHARDS_PER_REGION_BITS);
    region ^ within
}

/// The newest stamp of a shard, on a separate cache line: two threads in neighbouring shards must not slow each other
/// down.
#[repr(align(64))]
#[derive(Default)]
struct NewestStamp(AtomicU64);

/// The table of live blocks.
pub(crate) struct LiveTable {
    blocks: SharedMap<Key, LiveEntry, RegionHasher>,
    /// The newest stamp of each shard; read and written only while that shard is locked.
    newest: Box<[NewestStamp]>,
    /// The first shard that the next call of [`Self::shrink_some_shards`] checks.
    next_to_shrink: AtomicUsize,
    /// The number of buckets of all shards. Some of them always stay empty.
    buckets: AtomicUsize,
    /// A bit for the slot of each device whose blocks made shards grow.
    devices: AtomicU64,
    /// The number of blocks that did not fit.
    untracked: AtomicU64,
}

/// An entry of the map. Its shard is locked.
type LockedEntry<'a> = Entry<'a, Key, LiveEntry, RegionHasher>;

/// The result of inserting a block.
pub(crate) struct InsertResult {
    /// The block's stamp.
    pub(crate) ticks: u64,
    /// The previous block at the same address, if its free was not observed; that free gets the stamp `ticks - 1`.
    pub(crate) replaced: Option<LiveEntry>,
    /// Whether the table had room for the block.
    pub(crate) is_tracked: bool,
}

/// For each further device, the table has room for the first device's number of blocks divided by this.
const DEVICE_SHARE: u64 = 16;

/// Returns the maximum number of buckets for this number of `blocks` of the first device and the blocks of `more`
/// further devices. The number of buckets of a shard is a power of two. An eighth of them stays empty, and the number
/// may just have doubled.
fn max_buckets(blocks: u64, more: u64) -> u64 {
    /// Enough for a small number of blocks to fit even if they all lie in few shards.
    const MIN_BUCKETS: u64 = 64 * SHARDS as u64;
    let blocks = blocks.saturating_add((blocks / DEVICE_SHARE).saturating_mul(more));
    (blocks.saturating_mul(16) / 7).max(MIN_BUCKETS)
}

/// Returns the maximum memory of the table, according to [`max_buckets`].
#[cfg(test)]
pub(super) fn max_bytes(blocks: u64, more: u64) -> usize {
    max_buckets(blocks, more) as usize * BUCKET_BYTES + SHARDS * size_of::<NewestStamp>()
}

const BUCKET_BYTES: usize = size_of::<(Key, LiveEntry)>() + 1;

impl LiveTable {
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        let blocks = SharedMap::new(RegionHasher::default(), SHARDS);
        Self {
            buckets: AtomicUsize::new(blocks.buckets()),
            blocks,
            newest: (0..SHARDS).map(|_| NewestStamp::default()).collect(),
            next_to_shrink: AtomicUsize::new(0),
            devices: AtomicU64::new(0),
            untracked: AtomicU64::new(0),
        }
    }

    /// Returns the shard that `key` belongs to.
    #[inline(always)]
    fn shard(&self, key: &Key) -> usize {
        // The same computation as in the map, without the rest of the hash.
        if cfg!(target_pointer_width = "64") { shard(key.bits()) as usize } else { self.blocks.shard_of(key) }
    }

    /// Returns a new stamp for `key` and stores it as the shard's and the thread's newest. Must be called with the
    /// shard of `key` locked.
    #[inline(always)]
    fn stamp(&self, key: &Key, newest_of_thread: &Cell<u64>) -> u64 {
        let newest = &self.newest[self.shard(key)].0;
        let now = crate::clock::ticks_after(newest_of_thread.get());
        let ticks = stamp(now, newest.load(Ordering::Relaxed), newest_of_thread.get());
        newest.store(ticks, Ordering::Relaxed);
        newest_of_thread.set(ticks);
        ticks
    }

    /// Inserts a newly allocated block.
    #[inline(always)]
    pub(crate) fn insert(
        &self,
        device: DeviceId,
        address: u64,
        mut block: LiveEntry,
        newest_of_thread: &Cell<u64>,
    ) -> InsertResult {
        let key = Key { address, device };
        let found = self.entry_with_room(key);
        block.ticks = self.stamp(&key, newest_of_thread);
        let Ok(mut entry) = found else {
            drop(found);
            self.count_untracked(device);
            return InsertResult { ticks: block.ticks, replaced: None, is_tracked: false };
        };
        match entry.insert(block) {
            None => InsertResult { ticks: block.ticks, replaced: None, is_tracked: true },
            replaced => {
                block.ticks = self.stamp(&key, newest_of_thread);
                entry.insert(block);
                InsertResult { ticks: block.ticks, replaced, is_tracked: true }
            }
        }
    }

    /// Returns the entry of a block that may be new, with its shard locked; `Err` if there is no room for the block.
    #[inline(always)]
    fn entry_with_room(&self, key: Key) -> Result<LockedEntry<'_>, LockedEntry<'_>> {
        let entry = self.blocks.entry(key);
        if entry.is_full() { self.make_room(entry, key) } else { Ok(entry) }
    }

    /// Grows the full shard of `entry`, if the block is new and the table may grow. The shard is unlocked while memory
    /// is allocated.
    #[cold]
    fn make_room<'a>(
        &'a self,
        mut entry: LockedEntry<'a>,
        key: Key,
    ) -> Result<LockedEntry<'a>, LockedEntry<'a>> {
        let slots = slot_of(key.device).map_or(0, |slot| 1_u64 << slot);
        let slots = slots | self.devices.fetch_or(slots, Ordering::Relaxed);
        let more = u64::from(slots.count_ones()).saturating_sub(1);
        let most = max_buckets(settings::max_live_blocks(), more);
        while entry.is_full() && entry.get().is_none() {
            let more = entry.more_buckets();
            if more > 0 && (self.buckets.load(Ordering::Relaxed) + more) as u64 > most {
                return Err(entry);
            }
            drop(entry);
            // Added first, so that a thread that shrinks the shard meanwhile subtracts no more than was added.
            self.buckets.fetch_add(more, Ordering::Relaxed);
            let grown = self.blocks.make_room(&key);
            // The difference wraps if the shard grew less than expected, for instance because another thread grew it.
            self.buckets.fetch_add(grown.wrapping_sub(more), Ordering::Relaxed);
            entry = self.blocks.entry(key);
        }
        Ok(entry)
    }

    /// Counts a block that did not fit.
    #[cold]
    fn count_untracked(&self, device: DeviceId) {
        self.untracked.fetch_add(1, Ordering::Relaxed);
        shared_memory::count(shared_memory::Counter::UntrackedBlocks, 1);
        if device.is_host() {
            // From now on blocks may be allocated and freed without events.
            counted_peak::begin();
        }
    }

    /// Inserts the block of a segment that the driver allocated. Returns the stamps of the segment and of the block,
    /// and the previous block at the same address, if its free was not observed (that free gets the stamp before the
    /// segment's); `None` if there is no room.
    #[cfg(feature = "cuda")]
    pub(crate) fn insert_segment(
        &self,
        device: DeviceId,
        address: u64,
        mut block: LiveEntry,
        newest_of_thread: &Cell<u64>,
    ) -> Option<([u64; 2], Option<LiveEntry>)> {
        let key = Key { address, device };
        let found = self.entry_with_room(key);
        let Ok(mut entry) = found else {
            drop(found);
            self.count_untracked(device);
            return None;
        };
        self.stamp(&key, newest_of_thread);
        let segment = self.stamp(&key, newest_of_thread);
        block.ticks = self.stamp(&key, newest_of_thread);
        let replaced = entry.insert(block);
        Some(([segment, block.ticks], replaced))
    }

    /// Removes the block of a segment that is about to be freed, if the segment `has_block`. Returns two stamps, for the
    /// free of the block and for the free of the segment, and the removed block.
    #[cfg(feature = "cuda")]
    pub(crate) fn remove_segment(
        &self,
        device: DeviceId,
        address: u64,
        has_block: bool,
        newest_of_thread: &Cell<u64>,
    ) -> ([u64; 2], Option<LiveEntry>) {
        let key = Key { address, device };
        let mut entry = self.blocks.entry(key);
        let stamps = [self.stamp(&key, newest_of_thread), self.stamp(&key, newest_of_thread)];
        (stamps, if has_block { entry.take() } else { None })
    }

    /// Returns the addresses of the blocks that begin in a range of a device's addresses. Visits all blocks.
    #[cfg(feature = "cuda")]
    pub(crate) fn addresses_in(&self, device: DeviceId, addresses: std::ops::Range<u64>) -> Vec<u64> {
        self.blocks.rows(Vec::new(), |key, _| {
            (key.device == device && addresses.contains(&key.address)).then_some(key.address)
        })
    }

    /// Removes a block that is about to be freed. Returns the stamp of the free, and the block's entry if it had one.
    #[inline(always)]
    pub(crate) fn remove(
        &self,
        device: DeviceId,
        address: u64,
        newest_of_thread: &Cell<u64>,
    ) -> (u64, Option<LiveEntry>) {
        let key = Key { address, device };
        let mut entry = self.blocks.entry(key);
        (self.stamp(&key, newest_of_thread), entry.take())
    }

    /// Changes a block in place, for instance when its free was requested but is not complete. Returns the stamp, and a
    /// copy of the block as it was before.
    pub(crate) fn update(
        &self,
        device: DeviceId,
        address: u64,
        newest_of_thread: &Cell<u64>,
        change: impl FnOnce(&mut LiveEntry),
    ) -> (u64, Option<LiveEntry>) {
        let key = Key { address, device };
        let mut entry = self.blocks.entry(key);
        let ticks = self.stamp(&key, newest_of_thread);
        let before = entry.get().map(|block| {
            let before = *block;
            change(block);
            before
        });
        (ticks, before)
    }

    /// Restores a block whose free failed.
    pub(crate) fn restore(&self, device: DeviceId, address: u64, block: LiveEntry) {
        let found = self.entry_with_room(Key { address, device });
        let Ok(mut entry) = found else {
            drop(found);
            return self.count_untracked(device);
        };
        if entry.get().is_none() {
            entry.insert(block);
        }
    }

    /// Returns the number of blocks that did not fit.
    pub(crate) fn untracked(&self) -> u64 {
        self.untracked.load(Ordering::Relaxed)
    }

    /// Returns the number of blocks in the table. Locks each shard briefly.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the bytes that the table takes.
    pub(crate) fn table_bytes(&self) -> usize {
        self.buckets.load(Ordering::Relaxed) * BUCKET_BYTES + size_of_val(&*self.newest)
    }

    /// Shrinks some of the shards, if they no longer need their capacity: as blocks are freed and allocated elsewhere,
    /// each shard would otherwise keep the largest capacity that it ever needed. Called once per chunk; 64 calls visit all
    /// shards. Never waits.
    #[cold]
    pub(crate) fn shrink_some_shards(&self) {
        const SHARDS_PER_CALL: usize = 8;
        /// Smaller shards are not shrunk, unless some block had no room.
        const MIN_CAPACITY: usize = 1024;
        const MIN_CAPACITY_IF_TIGHT: usize = 8;
        let min_capacity = if self.untracked() == 0 { MIN_CAPACITY } else { MIN_CAPACITY_IF_TIGHT };
        let first = self.next_to_shrink.fetch_add(SHARDS_PER_CALL, Ordering::Relaxed);
        let less = (first..first + SHARDS_PER_CALL)
            .map(|next| self.blocks.shrink(next % SHARDS, min_capacity))
            .sum();
        self.buckets.fetch_sub(less, Ordering::Relaxed);
    }

    /// Returns the newest stamp so far; 0 before the first event.
    pub(crate) fn newest_ticks(&self) -> u64 {
        self.newest.iter().map(|newest| newest.0.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Removes all blocks.
    pub(crate) fn clear(&self) {
        self.blocks.clear();
        self.buckets.store(self.blocks.buckets(), Ordering::Relaxed);
        self.devices.store(0, Ordering::Relaxed);
        self.untracked.store(0, Ordering::Relaxed);
    }

    /// Returns the block that begins at an address, if one is live.
    pub(crate) fn get(&self, device: DeviceId, address: u64) -> Option<LiveEntry> {
        self.blocks.get(&Key { address, device })
    }

    /// Calls `visit` with each block. Each shard is locked while its blocks are visited, so `visit` must neither lock
    /// nor allocate.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(DeviceId, &LiveEntry)) {
        self.blocks.for_each(|key, block| visit(key.device, block));
    }

    /// Returns a copy of all blocks. Each shard is locked only while it is copied.
    pub(crate) fn blocks(&self) -> Vec<LiveBlock> {
        let blocks = Vec::with_capacity(self.blocks.len());
        self.blocks.rows(blocks, |key, block| Some(block_of(key.device, key.address, block)))
    }
}

/// Returns the model's row for a live block.
pub(crate) fn block_of(device: DeviceId, address: u64, live: &LiveEntry) -> LiveBlock {
    let LiveEntry { ticks, size_bytes, stream, stack, scope, flags, pending_free } = *live;
    // As an event, so that the stream of a host block becomes its task.
    let event = Event { ticks, address, size_bytes, stream, stack, scope, device, flags, ..Event::BLANK };
    LiveBlock { pending_free, ..LiveBlock::of_recorded(&event) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    const DEVICES: [DeviceId; 3] = [DeviceId::HOST, DeviceId(0), DeviceId::PINNED];

    /// Returns the shard of a block, after checking that the map computes the same one.
    fn shard(table: &LiveTable, device: DeviceId, address: u64) -> usize {
        let key = Key { address, device };
        assert_eq!(table.shard(&key), table.blocks.shard_of(&key));
        table.shard(&key)
    }

    #[test]
    fn a_region_uses_few_shards_and_regions_rarely_share_one() {
        let table = LiveTable::new();
        let region_bytes = 1_u64 << REGION_BITS;
        for device in DEVICES {
            let mut regions_of_shard: HashMap<usize, usize> = HashMap::new();
            for region in 0..1000_u64 {
                let start = 0x7f00_0000_0000 + region * region_bytes;
                let blocks = (start..start + region_bytes).step_by(4096);
                let shards: HashSet<usize> = blocks.map(|address| shard(&table, device, address)).collect();
                assert_eq!(shards.len(), 1 << SHARDS_PER_REGION_BITS);
                shards.into_iter().for_each(|shard| *regions_of_shard.entry(shard).or_default() += 1);
            }
            // 4,000 uses of 512 shards: about eight of each.
            assert!(regions_of_shard.len() > SHARDS * 9 / 10, "{}", regions_of_shard.len());
            assert!(regions_of_shard.values().all(|&count| count <= 40), "{regions_of_shard:?}");
        }
    }

    #[test]
    fn blocks_of_a_shard_have_different_slots() {
        let hash = |address| RegionHasher::default().hash_one(Key { address, device: DeviceId::HOST });
        // For any distance between blocks, the bits that choose a slot vary, and so do the bits of the tag.
        for step in [16_u64, 48, 64, 512, 4096, 65_536, 1 << 21] {
            let hashes: Vec<u64> = (0..4096).map(|number| hash(0x7f12_3456_0000 + number * step)).collect();
            let low: HashSet<u64> = hashes.iter().map(|hash| hash % 4096).collect();
            let tags: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(low.len() > 2300, "{step}: {} places", low.len());
            assert!(tags.len() > 100, "{step}: {} tags", tags.len());
        }
    }

    #[test]
    fn stamps_of_an_address_rise_across_threads() {
        let table = LiveTable::new();
        let (one, other) = (Cell::new(0), Cell::new(0));
        let block = LiveEntry {
            ticks: 0,
            size_bytes: 1,
            stream: StreamId(0),
            stack: StackId::NONE,
            scope: ScopeId::NONE,
            flags: EventFlags::default(),
            pending_free: false,
        };
        let mut newest = 0;
        for number in 0..1000 {
            let (newest_of_thread, address) = (if number % 2 == 0 { &one } else { &other }, 0x1000);
            let InsertResult { ticks, replaced, is_tracked } =
                table.insert(DeviceId(0), address, block, newest_of_thread);
            assert!(ticks > newest && replaced.is_none() && is_tracked);
            let (freed, known) =
                table.remove(DeviceId(0), address, if number % 3 == 0 { &one } else { &other });
            assert!(freed > ticks && known.is_some_and(|known| known.ticks == ticks));
            newest = freed;
        }
    }
}

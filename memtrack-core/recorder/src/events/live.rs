//! The live table: the live blocks, by device and address, as many as fit. Its shards also order the events of one
//! address: the stamp is taken while the address's shard is locked.
//!
//! **Why dashmap, and why these shards?** Its `raw-api` gives access to a shard's table (hashbrown 0.14, dashmap's
//! version), so that the newest stamp lies beside the table, and the table grows only as far as was agreed and outside
//! the lock. An address's region of 2 MiB determines four of the 512 shards, and a hash of the address selects one of the
//! four: threads whose blocks are far apart do not compete for cache lines, and threads that share a pool do not all wait
//! for one lock.

use super::order::stamp;
use super::{settings, slot_of};
use crate::host;
use crate::shared_map::{Entry, SharedMap};
use memtrack_model::event::{DeviceId, EventFlags, ScopeId, StackId, StreamId};
use memtrack_model::snapshot::LiveBlock;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The shards of a region of addresses: more than one, so that threads that share a region do not all wait for each
/// other.
const SHARDS_OF_REGION_BITS: u32 = 2;
/// All shards.
const SHARD_BITS: u32 = 9;
const SHARDS: usize = 1 << SHARD_BITS;
/// The size of a region: the range of most allocations of a thread.
const REGION_BITS: u32 = 21;

/// The table's entry for a block.
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
    /// Addresses have 48 bits, or 57; if these overlap the device's, two keys merely have the same hash.
    #[inline(always)]
    fn bits(&self) -> u64 {
        self.address ^ u64::from(self.device.0) << 48
    }
}

/// Hashes keys so that the shard follows from the region of the address: threads whose blocks are far apart then use
/// different shards, and with them different cache lines.
#[derive(Clone, Copy, Default)]
struct ByRegion(u64);

impl BuildHasher for ByRegion {
    type Hasher = Self;

    #[inline(always)]
    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for ByRegion {
    #[inline(always)]
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    /// The map uses the top seven bits for its tags, the lowest for slots, and `SHARD_BITS` below the tags for
    /// shards.
    #[inline(always)]
    fn finish(&self) -> u64 {
        const TAG_BITS: u32 = 7;
        const SHARD_AT: u32 = u64::BITS - TAG_BITS - SHARD_BITS;
        const SHARD_MASK: u64 = (SHARDS as u64 - 1) << SHARD_AT;
        // The halves of a product depend on different bits of the key: folded, each bit depends on the whole key.
        let product = u128::from(self.0) * u128::from(FACTOR);
        let folded = (product >> u64::BITS) as u64 ^ product as u64;
        folded & !SHARD_MASK | shard(self.0) << SHARD_AT
    }
}

/// Odd, and looks random (SplitMix64's).
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes the bits: every bit changes those above it.
#[inline(always)]
fn spread(bits: u64) -> u64 {
    bits.wrapping_mul(FACTOR)
}

/// Returns the shard for the bits of a [`Key`].
#[inline(always)]
fn shard(key: u64) -> u64 {
    let region = spread(key >> REGION_BITS) >> (u64::BITS - SHARD_BITS);
    let within = spread(key) >> (u64::BITS - SHARDS_OF_REGION_BITS);
    region ^ within
}

/// On a separate cache line: two threads in neighbouring shards must not slow each other.
#[repr(align(64))]
#[derive(Default)]
struct Newest(AtomicU64);

/// The live blocks.
pub(crate) struct LiveTable {
    blocks: SharedMap<Key, Live, ByRegion>,
    /// The newest stamp of each shard; read and written only while that shard is locked.
    newest: Box<[Newest]>,
    /// The shard that [`Self::tidy`] checks next.
    next_to_tidy: AtomicUsize,
    /// For all shards: how many blocks would fill their memory, part of which stays empty.
    buckets: AtomicUsize,
    /// The slots of the devices whose blocks made shards grow.
    devices: AtomicU64,
    /// The number of blocks without room.
    untracked: AtomicU64,
}

/// A slot of the map whose shard is locked.
type Found<'a> = Entry<'a, Key, Live, ByRegion>;

/// The result of inserting a block.
pub(crate) struct Inserted {
    /// Its stamp.
    pub(crate) ticks: u64,
    /// The block at its address whose free was not observed, if there was one; the free gets the stamp before.
    pub(crate) replaced: Option<Live>,
    /// Whether the table had room for it.
    pub(crate) is_tracked: bool,
}

/// For each further device, the table has room for one of so many of the first device's blocks.
const DEVICE_SHARE: u64 = 16;

/// Returns the most buckets for so many `blocks` of the first device and those of `more` devices. The buckets of a
/// shard are a power of two, of which an eighth stays empty, and may just have doubled.
fn max_buckets(blocks: u64, more: u64) -> u64 {
    /// A few blocks may happen to lie in few shards.
    const LEAST: u64 = 64 * SHARDS as u64;
    let blocks = blocks.saturating_add((blocks / DEVICE_SHARE).saturating_mul(more));
    (blocks.saturating_mul(16) / 7).max(LEAST)
}

/// Returns the most memory that the table can take, by [`max_buckets`].
#[cfg(test)]
pub(super) fn max_bytes(blocks: u64, more: u64) -> usize {
    max_buckets(blocks, more) as usize * BUCKET_BYTES + SHARDS * size_of::<Newest>()
}

const BUCKET_BYTES: usize = size_of::<(Key, Live)>() + 1;

impl LiveTable {
    /// Makes an empty table.
    pub(crate) fn new() -> Self {
        let blocks = SharedMap::new(ByRegion::default(), SHARDS);
        Self {
            buckets: AtomicUsize::new(blocks.buckets()),
            blocks,
            newest: (0..SHARDS).map(|_| Newest::default()).collect(),
            next_to_tidy: AtomicUsize::new(0),
            devices: AtomicU64::new(0),
            untracked: AtomicU64::new(0),
        }
    }

    /// Returns the shard in which the map has `key`.
    #[inline(always)]
    fn shard(&self, key: &Key) -> usize {
        // The map's own computation, without the rest of the hash.
        if cfg!(target_pointer_width = "64") { shard(key.bits()) as usize } else { self.blocks.shard_of(key) }
    }

    /// Returns a stamp for `key`, and also sets the thread's newest stamp. Must be called with the shard of `key`
    /// locked.
    #[inline(always)]
    fn stamp(&self, key: &Key, newest_of_thread: &Cell<u64>) -> u64 {
        let newest = &self.newest[self.shard(key)].0;
        let now = super::clock::ticks_after(newest_of_thread.get());
        let ticks = stamp(now, newest.load(Ordering::Relaxed), newest_of_thread.get());
        newest.store(ticks, Ordering::Relaxed);
        newest_of_thread.set(ticks);
        ticks
    }

    /// Inserts a block that was allocated.
    #[inline(always)]
    pub(crate) fn insert(
        &self,
        device: DeviceId,
        address: u64,
        mut block: Live,
        newest_of_thread: &Cell<u64>,
    ) -> Inserted {
        let key = Key { address, device };
        let found = self.entry_with_room(key);
        block.ticks = self.stamp(&key, newest_of_thread);
        let Ok(mut entry) = found else {
            drop(found);
            self.count_untracked(device);
            return Inserted { ticks: block.ticks, replaced: None, is_tracked: false };
        };
        match entry.put(block) {
            None => Inserted { ticks: block.ticks, replaced: None, is_tracked: true },
            replaced => {
                block.ticks = self.stamp(&key, newest_of_thread);
                entry.put(block);
                Inserted { ticks: block.ticks, replaced, is_tracked: true }
            }
        }
    }

    /// Returns the slot of a block that may be new, with its shard locked; `Err` if there is no room for it.
    #[inline(always)]
    fn entry_with_room(&self, key: Key) -> Result<Found<'_>, Found<'_>> {
        let entry = self.blocks.entry(key);
        if entry.is_full() { self.make_room(entry, key) } else { Ok(entry) }
    }

    /// Grows a full shard, if its block is new and the table may grow. The shard is not locked meanwhile.
    #[cold]
    fn make_room<'a>(&'a self, mut entry: Found<'a>, key: Key) -> Result<Found<'a>, Found<'a>> {
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
            // Counted first: a thread that shrinks the shard meanwhile subtracts no more than was added.
            self.buckets.fetch_add(more, Ordering::Relaxed);
            let grown = self.blocks.make_room(&key);
            // Wraps if the shard grew by more because it had shrunk.
            self.buckets.fetch_add(grown.wrapping_sub(more), Ordering::Relaxed);
            entry = self.blocks.entry(key);
        }
        Ok(entry)
    }

    /// Counts a block that had no room.
    #[cold]
    fn count_untracked(&self, device: DeviceId) {
        self.untracked.fetch_add(1, Ordering::Relaxed);
        if device.is_host() {
            // Blocks may come and go without events.
            host::counted_peak::begin();
        }
    }

    /// Inserts a segment allocated by the driver, together with its block. Returns the stamps of both, and the block
    /// at the address whose free was not observed, if there was one (its stamp is the one before the segment's);
    /// `None` if there is no room.
    #[cfg(feature = "cuda")]
    pub(crate) fn insert_segment(
        &self,
        device: DeviceId,
        address: u64,
        mut block: Live,
        newest_of_thread: &Cell<u64>,
    ) -> Option<([u64; 2], Option<Live>)> {
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
        let replaced = entry.put(block);
        Some(([segment, block.ticks], replaced))
    }

    /// Removes a segment that is about to be freed, together with its block if it `has_block`. Returns the stamps of
    /// the block's end and the segment's, and the block.
    #[cfg(feature = "cuda")]
    pub(crate) fn remove_segment(
        &self,
        device: DeviceId,
        address: u64,
        has_block: bool,
        newest_of_thread: &Cell<u64>,
    ) -> ([u64; 2], Option<Live>) {
        let key = Key { address, device };
        let mut entry = self.blocks.entry(key);
        let stamps = [self.stamp(&key, newest_of_thread), self.stamp(&key, newest_of_thread)];
        (stamps, if has_block { entry.take() } else { None })
    }

    /// Returns the addresses of the blocks that begin within a range of a device. Visits all blocks.
    #[cfg(feature = "cuda")]
    pub(crate) fn within(&self, device: DeviceId, addresses: std::ops::Range<u64>) -> Vec<u64> {
        self.blocks.rows(Vec::new(), |key, _| {
            (key.device == device && addresses.contains(&key.address)).then_some(key.address)
        })
    }

    /// Removes a block that is about to be freed. Returns its stamp, and the table's entry for it.
    #[inline(always)]
    pub(crate) fn remove(
        &self,
        device: DeviceId,
        address: u64,
        newest_of_thread: &Cell<u64>,
    ) -> (u64, Option<Live>) {
        let key = Key { address, device };
        let mut entry = self.blocks.entry(key);
        (self.stamp(&key, newest_of_thread), entry.take())
    }

    /// Changes a block in place (a free that was requested but is not complete). Returns the stamp and the block
    /// before the change.
    pub(crate) fn update(
        &self,
        device: DeviceId,
        address: u64,
        newest_of_thread: &Cell<u64>,
        change: impl FnOnce(&mut Live),
    ) -> (u64, Option<Live>) {
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

    /// Puts a block back whose free failed, as if nothing had happened.
    pub(crate) fn put_back(&self, device: DeviceId, address: u64, block: Live) {
        let found = self.entry_with_room(Key { address, device });
        let Ok(mut entry) = found else {
            drop(found);
            return self.count_untracked(device);
        };
        if entry.get().is_none() {
            entry.put(block);
        }
    }

    /// Returns how many blocks had no room.
    pub(crate) fn untracked(&self) -> u64 {
        self.untracked.load(Ordering::Relaxed)
    }

    /// Returns how many blocks it holds. Takes each shard's lock for a moment.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the bytes that the table takes.
    pub(crate) fn table_bytes(&self) -> usize {
        self.buckets.load(Ordering::Relaxed) * BUCKET_BYTES + size_of_val(&*self.newest)
    }

    /// Frees room that some of the shards needed once and no longer use: if live blocks move about, each shard would
    /// keep the most it ever held. Called once a chunk; all shards have had their turn after 64 calls. Never waits.
    #[cold]
    pub(crate) fn tidy(&self) {
        const AT_ONCE: usize = 8;
        /// Smaller shards stay as they are, unless another one had no room.
        const SMALL: usize = 1024;
        const SMALL_AND_TIGHT: usize = 8;
        let small = if self.untracked() == 0 { SMALL } else { SMALL_AND_TIGHT };
        let first = self.next_to_tidy.fetch_add(AT_ONCE, Ordering::Relaxed);
        let less = (first..first + AT_ONCE).map(|next| self.blocks.shrink(next % SHARDS, small)).sum();
        self.buckets.fetch_sub(less, Ordering::Relaxed);
    }

    /// Returns the newest stamp so far; 0 before the first.
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
    pub(crate) fn get(&self, device: DeviceId, address: u64) -> Option<Live> {
        self.blocks.get(&Key { address, device })
    }

    /// Calls `see` with each block, shard by shard: each is locked meanwhile, so `see` takes no lock and no memory.
    pub(crate) fn each(&self, mut see: impl FnMut(DeviceId, &Live)) {
        self.blocks.each(|key, block| see(key.device, block));
    }

    /// Returns a copy of all blocks, shard by shard: each shard is locked only while it is copied.
    pub(crate) fn blocks(&self) -> Vec<LiveBlock> {
        let blocks = Vec::with_capacity(self.blocks.len());
        self.blocks.rows(blocks, |key, block| Some(block_of(key.device, key.address, block)))
    }
}

/// Returns the model's row for a live block.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    const DEVICES: [DeviceId; 3] = [DeviceId::HOST, DeviceId(0), DeviceId::PINNED];

    /// Returns the shard, and checks that the map computes the same.
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
            let mut of_all: HashMap<usize, usize> = HashMap::new();
            for region in 0..1000_u64 {
                let start = 0x7f00_0000_0000 + region * region_bytes;
                let blocks = (start..start + region_bytes).step_by(4096);
                let shards: HashSet<usize> = blocks.map(|address| shard(&table, device, address)).collect();
                assert_eq!(shards.len(), 1 << SHARDS_OF_REGION_BITS);
                shards.into_iter().for_each(|shard| *of_all.entry(shard).or_default() += 1);
            }
            // 4,000 in 512 shards: some eight in each.
            assert!(of_all.len() > SHARDS * 9 / 10, "{}", of_all.len());
            assert!(of_all.values().all(|&count| count <= 40), "{of_all:?}");
        }
    }

    #[test]
    fn blocks_of_a_shard_have_different_slots() {
        let hash = |address| ByRegion::default().hash_one(Key { address, device: DeviceId::HOST });
        // For any distance of the blocks, the bits that choose a slot and those of the tag vary.
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
        let block = Live {
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
            let Inserted { ticks, replaced, is_tracked } =
                table.insert(DeviceId(0), address, block, newest_of_thread);
            assert!(ticks > newest && replaced.is_none() && is_tracked);
            let (freed, known) =
                table.remove(DeviceId(0), address, if number % 3 == 0 { &one } else { &other });
            assert!(freed > ticks && known.is_some_and(|known| known.ticks == ticks));
            newest = freed;
        }
    }
}

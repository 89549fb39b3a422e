//! Maps each block, by device and address, to its account. Contains only live blocks of open accounts.

use super::Membership;
use foldhash::fast::FixedState;
use memtrack_model::event::{DeviceId, StackId};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const SHARDS: usize = 64;
/// Shards of at most this capacity are not shrunk.
const MIN_SHRINK_CAPACITY: usize = 1024;

/// A live block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// The innermost account that counts the block.
    pub(super) account: Membership,
    pub(super) bytes: u64,
    pub(super) stack: StackId,
    /// Whether a free of the block has been requested.
    pub(super) is_pending: bool,
}

type Shard = HashMap<(DeviceId, u64), Block, FixedState>;

static BLOCKS: OnceLock<Box<[Mutex<Shard>]>> = OnceLock::new();

fn shards() -> &'static [Mutex<Shard>] {
    BLOCKS.get_or_init(|| (0..SHARDS).map(|_| Mutex::default()).collect())
}

fn shard(device: DeviceId, address: u64) -> MutexGuard<'static, Shard> {
    let hash = FixedState::default().hash_one((device, address));
    lock(&shards()[(hash >> 48) as usize % SHARDS])
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Inserts a newly allocated block. Returns the previous block at the same address, which must have been freed.
pub(super) fn insert(device: DeviceId, address: u64, block: Block) -> Option<Block> {
    shard(device, address).insert((device, address), block)
}

/// Removes and returns a block that is about to be freed.
pub(super) fn remove(device: DeviceId, address: u64) -> Option<Block> {
    shard(device, address).remove(&(device, address))
}

/// Marks a block as pending because its free was requested. Returns a copy of the block as it was before.
pub(super) fn request_free(device: DeviceId, address: u64) -> Option<Block> {
    shard(device, address).get_mut(&(device, address)).map(|block| {
        let before = *block;
        block.is_pending = true;
        before
    })
}

/// Moves the blocks of a closed account to its parent, or removes them if it has no parent. Visits all blocks.
pub(super) fn move_to_parent(account: Membership, parent: Membership) {
    for shard in shards() {
        let mut shard = lock(shard);
        shard.retain(|_, block| {
            if block.account == account {
                block.account = parent;
            }
            !block.account.is_none()
        });
        if shard.capacity() > MIN_SHRINK_CAPACITY && shard.len() < shard.capacity() / 4 {
            let keep = shard.len() * 2;
            shard.shrink_to(keep);
        }
    }
}

/// Removes all blocks. Called when the last open account has been closed.
pub(super) fn clear() {
    shards().iter().for_each(|shard| *lock(shard) = Shard::default());
}

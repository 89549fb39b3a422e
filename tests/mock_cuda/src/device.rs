//! One device: its addresses, its live blocks, its pools and its counters. The host is modelled as a device with unlimited
//! memory and without pools.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::arena::{Arena, rounded};
use crate::counters::{Counters, Kind};
use crate::pool::Pool;
use crate::settings::settings;
use crate::status::{CuResult, Status};

/// A live allocation.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub bytes: u64,
    pub kind: Kind,
    context: u16,
    pool: u16,
}

/// A hasher for addresses of blocks, whose low bits are always zero.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("addresses are hashed as numbers");
    }
    fn write_u64(&mut self, address: u64) {
        self.0 = (address >> 9).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A device or the host.
pub(crate) struct Device {
    arena: Arena,
    blocks: HashMap<u64, Block, BuildHasherDefault<AddressHasher>>,
    pub counters: Counters,
    pub pools: Vec<Pool>,
    /// The pool that `cuMemAllocAsync` allocates from.
    pub current_pool: usize,
    /// The reference count of the primary context.
    pub primary_references: u32,
    /// Contexts that exist, including the primary one.
    contexts: u64,
    total: u64,
    /// Bytes that other processes use.
    others: u64,
    /// Bytes of the device that are in use outside the pools, rounded as the device rounds them.
    outside_pools: u64,
}

impl Device {
    /// Creates a device of `total` bytes over a range of addresses.
    pub fn new(start: u64, end: u64, total: u64, others: u64) -> Self {
        Self {
            arena: Arena::new(start, end),
            blocks: HashMap::default(),
            counters: Counters::default(),
            pools: vec![Pool::new()],
            current_pool: 0,
            primary_references: 0,
            contexts: 0,
            total,
            others,
            outside_pools: 0,
        }
    }

    /// Returns the free and the total bytes, as `cuMemGetInfo` does.
    pub fn memory(&self) -> (u64, u64) {
        let contexts = self.contexts * settings().context_bytes;
        let pools: u64 = self.pools.iter().map(|pool| pool.reserved).sum();
        (self.total.saturating_sub(self.others + contexts + self.outside_pools + pools), self.total)
    }

    /// Counts a context that was created or destroyed on this device.
    pub fn count_context(&mut self, exists: bool) {
        self.contexts = if exists { self.contexts + 1 } else { self.contexts - 1 };
    }

    /// Allocates memory outside the pools.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if too little memory is free; `INVALID_VALUE` for 0 bytes.
    pub fn allocate(&mut self, kind: Kind, bytes: u64, context: u16) -> CuResult<u64> {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        self.reserve_outside_pools(kind, bytes)?;
        let Some(address) = self.arena.allocate(bytes) else {
            self.outside_pools -= device_bytes(kind, bytes);
            return Err(Status::OUT_OF_MEMORY);
        };
        self.insert(address, Block { bytes, kind, context, pool: 0 });
        Ok(address)
    }

    /// Allocates memory from a pool.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if too little memory is free; `INVALID_HANDLE` for a destroyed pool.
    pub fn allocate_pooled(&mut self, pool: usize, bytes: u64, context: u16) -> CuResult<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let (available, _) = self.memory();
        let chosen = self.pools.get_mut(pool).filter(|pool| pool.alive).ok_or(Status::INVALID_HANDLE)?;
        if !chosen.allocate(rounded(bytes), settings().pool_chunk, available) {
            return Err(Status::OUT_OF_MEMORY);
        }
        let Some(address) = self.arena.allocate(bytes) else {
            self.pools[pool].free(rounded(bytes), settings().pool_chunk);
            return Err(Status::OUT_OF_MEMORY);
        };
        self.insert(address, Block { bytes, kind: Kind::Pooled, context, pool: pool as u16 });
        Ok(address)
    }

    /// Creates a pool and returns its number.
    pub fn create_pool(&mut self) -> u32 {
        let number = self.pools.iter().position(Pool::is_gone).unwrap_or(self.pools.len());
        if number == self.pools.len() {
            self.pools.push(Pool::new());
        } else {
            self.pools[number] = Pool::new();
        }
        number as u32
    }

    /// Page-locks host memory of the program.
    ///
    /// # Errors
    /// `HOST_MEMORY_ALREADY_REGISTERED` if a registered range already begins at the address.
    pub fn register(&mut self, address: u64, bytes: u64, context: u16) -> CuResult {
        if self.blocks.contains_key(&address) {
            return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.insert(address, Block { bytes, kind: Kind::Registered, context, pool: 0 });
        Ok(())
    }

    fn insert(&mut self, address: u64, block: Block) {
        self.counters.alloc(block.kind, block.bytes);
        self.blocks.insert(address, block);
    }

    /// Frees a block of one of these kinds.
    ///
    /// # Errors
    /// `INVALID_VALUE` if no such block begins at the address.
    pub fn free(&mut self, address: u64, kinds: &[Kind]) -> CuResult {
        match self.blocks.get(&address) {
            Some(block) if kinds.contains(&block.kind) => {}
            _ => return Err(Status::INVALID_VALUE),
        }
        self.remove(address);
        Ok(())
    }

    fn remove(&mut self, address: u64) {
        let Some(block) = self.blocks.remove(&address) else { return };
        self.counters.free(block.kind, block.bytes);
        match block.kind {
            Kind::Pooled => {
                self.pools[usize::from(block.pool)].free(rounded(block.bytes), settings().pool_chunk);
            }
            kind => self.outside_pools -= device_bytes(kind, block.bytes),
        }
        if block.kind != Kind::Registered {
            self.arena.free(address, block.bytes);
        }
    }

    /// Frees the blocks of a context. With `with_pools`, which is set for the primary context, also frees the blocks of the
    /// device's pools, which outlive all other contexts.
    pub fn release_context(&mut self, number: u16, with_pools: bool) {
        let freed = self.blocks.iter().filter(|(_, block)| match block.kind {
            Kind::Pooled => with_pools,
            _ => block.context == number,
        });
        for address in freed.map(|(&address, _)| address).collect::<Vec<_>>() {
            self.remove(address);
        }
    }

    /// Returns the block that contains an address: by a look-up if the block begins at the address, otherwise by a search.
    pub fn block_around(&self, address: u64) -> Option<(u64, Block)> {
        if let Some(&block) = self.blocks.get(&address) {
            return Some((address, block));
        }
        let contains = |&(&start, block): &(&u64, &Block)| start <= address && address - start < block.bytes;
        self.blocks.iter().find(contains).map(|(&start, &block)| (start, block))
    }

    /// Reserves memory of the device without assigning addresses to it.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if too little memory is free.
    pub fn reserve_outside_pools(&mut self, kind: Kind, bytes: u64) -> CuResult {
        let needed = device_bytes(kind, bytes);
        if needed > self.memory().0 {
            return Err(Status::OUT_OF_MEMORY);
        }
        self.outside_pools += needed;
        Ok(())
    }

    /// Releases memory that `reserve_outside_pools` reserved.
    pub fn release_outside_pools(&mut self, kind: Kind, bytes: u64) {
        self.outside_pools -= device_bytes(kind, bytes);
    }

    /// Trims the pools, as the driver does when all work of the device has finished.
    pub fn synchronized(&mut self) {
        for pool in &mut self.pools {
            pool.synchronized(settings().pool_chunk);
        }
    }
}

/// Returns the bytes of the device's memory that a block uses.
fn device_bytes(kind: Kind, bytes: u64) -> u64 {
    match kind {
        Kind::Registered | Kind::Ipc => 0,
        _ => rounded(bytes),
    }
}

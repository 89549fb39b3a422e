//! One device: its addresses, the blocks that live in it, its pools and its books. The host is one, too, without end
//! and without pools.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::arena::{Arena, rounded};
use crate::books::{Books, Kind};
use crate::pool::Pool;
use crate::settings::settings;
use crate::status::{Answer, Status};

/// Memory that was given out.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub bytes: u64,
    pub kind: Kind,
    context: u16,
    pool: u16,
}

/// Spreads addresses, whose low bits are all zero.
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
    pub books: Books,
    pub pools: Vec<Pool>,
    /// The pool of `cuMemAllocAsync`.
    pub current_pool: usize,
    /// How often the primary context is held.
    pub primary_references: u32,
    /// Contexts that exist, the primary one among them.
    contexts: u64,
    total: u64,
    /// What other processes hold.
    others: u64,
    /// Bytes of the device in use outside the pools, as the device rounds them.
    outside_pools: u64,
}

impl Device {
    /// A device of `total` bytes over a range of addresses.
    pub fn new(start: u64, end: u64, total: u64, others: u64) -> Self {
        Self {
            arena: Arena::new(start, end),
            blocks: HashMap::default(),
            books: Books::default(),
            pools: vec![Pool::new()],
            current_pool: 0,
            primary_references: 0,
            contexts: 0,
            total,
            others,
            outside_pools: 0,
        }
    }

    /// Bytes free and in all, as `cuMemGetInfo` tells them.
    pub fn memory(&self) -> (u64, u64) {
        let contexts = self.contexts * settings().context_bytes;
        let pools: u64 = self.pools.iter().map(|pool| pool.reserved).sum();
        (self.total.saturating_sub(self.others + contexts + self.outside_pools + pools), self.total)
    }

    /// A context was made or destroyed here.
    pub fn count_context(&mut self, exists: bool) {
        self.contexts = if exists { self.contexts + 1 } else { self.contexts - 1 };
    }

    /// Memory that is none of a pool's.
    ///
    /// # Errors
    /// Out of memory.
    pub fn allocate(&mut self, kind: Kind, bytes: u64, context: u16) -> Answer<u64> {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        self.take_outside_pools(kind, bytes)?;
        let Some(address) = self.arena.take(bytes) else {
            self.outside_pools -= own_bytes(kind, bytes);
            return Err(Status::OUT_OF_MEMORY);
        };
        self.enter(address, Block { bytes, kind, context, pool: 0 });
        Ok(address)
    }

    /// Memory of a pool.
    ///
    /// # Errors
    /// Out of memory; invalid handle for a pool that is gone.
    pub fn allocate_pooled(&mut self, pool: usize, bytes: u64, context: u16) -> Answer<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let (available, _) = self.memory();
        let chosen = self.pools.get_mut(pool).filter(|pool| pool.alive).ok_or(Status::INVALID_HANDLE)?;
        if !chosen.take(rounded(bytes), settings().pool_chunk, available) {
            return Err(Status::OUT_OF_MEMORY);
        }
        let Some(address) = self.arena.take(bytes) else {
            self.pools[pool].give(rounded(bytes), settings().pool_chunk);
            return Err(Status::OUT_OF_MEMORY);
        };
        self.enter(address, Block { bytes, kind: Kind::Pooled, context, pool: pool as u16 });
        Ok(address)
    }

    /// Another pool; its number.
    pub fn create_pool(&mut self) -> u32 {
        let number = self.pools.iter().position(Pool::is_gone).unwrap_or(self.pools.len());
        if number == self.pools.len() {
            self.pools.push(Pool::new());
        } else {
            self.pools[number] = Pool::new();
        }
        number as u32
    }

    /// Host memory of the program, page-locked from now on.
    ///
    /// # Errors
    /// Already registered.
    pub fn register(&mut self, address: u64, bytes: u64, context: u16) -> Answer {
        if self.blocks.contains_key(&address) {
            return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.enter(address, Block { bytes, kind: Kind::Registered, context, pool: 0 });
        Ok(())
    }

    fn enter(&mut self, address: u64, block: Block) {
        self.books.alloc(block.kind, block.bytes);
        self.blocks.insert(address, block);
    }

    /// Takes a block of one of these kinds back.
    ///
    /// # Errors
    /// Invalid value where none such begins here.
    pub fn free(&mut self, address: u64, kinds: &[Kind]) -> Answer {
        match self.blocks.get(&address) {
            Some(block) if kinds.contains(&block.kind) => {}
            _ => return Err(Status::INVALID_VALUE),
        }
        self.remove(address);
        Ok(())
    }

    fn remove(&mut self, address: u64) {
        let Some(block) = self.blocks.remove(&address) else { return };
        self.books.free(block.kind, block.bytes);
        match block.kind {
            Kind::Pooled => {
                self.pools[usize::from(block.pool)].give(rounded(block.bytes), settings().pool_chunk);
            }
            kind => self.outside_pools -= own_bytes(kind, block.bytes),
        }
        if block.kind != Kind::Registered {
            self.arena.give(address, block.bytes);
        }
    }

    /// Takes back what a context of this number holds; the end of the device's primary one empties its pools, too, which
    /// outlive all others.
    pub fn release_context(&mut self, number: u16, with_pools: bool) {
        let held = self.blocks.iter().filter(|(_, block)| match block.kind {
            Kind::Pooled => with_pools,
            _ => block.context == number,
        });
        for address in held.map(|(&address, _)| address).collect::<Vec<_>>() {
            self.remove(address);
        }
    }

    /// The block that an address lies in: at its start by a look-up, inside it by a walk.
    pub fn block_around(&self, address: u64) -> Option<(u64, Block)> {
        if let Some(&block) = self.blocks.get(&address) {
            return Some((address, block));
        }
        let holds = |&(&start, block): &(&u64, &Block)| start <= address && address - start < block.bytes;
        self.blocks.iter().find(holds).map(|(&start, &block)| (start, block))
    }

    /// Takes room of the device that has no address here: `cuMemCreate`'s.
    ///
    /// # Errors
    /// Out of memory.
    pub fn take_outside_pools(&mut self, kind: Kind, bytes: u64) -> Answer {
        let own = own_bytes(kind, bytes);
        if own > self.memory().0 {
            return Err(Status::OUT_OF_MEMORY);
        }
        self.outside_pools += own;
        Ok(())
    }

    /// Gives such room back.
    pub fn give_outside_pools(&mut self, kind: Kind, bytes: u64) {
        self.outside_pools -= own_bytes(kind, bytes);
    }

    /// Everything that was asked of the device has happened.
    pub fn synchronized(&mut self) {
        for pool in &mut self.pools {
            pool.synchronized(settings().pool_chunk);
        }
    }
}

/// What a block takes of the device's own memory.
fn own_bytes(kind: Kind, bytes: u64) -> u64 {
    match kind {
        Kind::Registered | Kind::Ipc => 0,
        _ => rounded(bytes),
    }
}

//! A pool allocator for one device, like those of frameworks: it requests large segments from the device, splits them
//! into blocks, and reuses freed blocks. The example `custom_allocator` shows how such an allocator reports to
//! memtrack: five calls, marked "memtrack:".
//!
//! The device is simulated: an address space with a capacity and no memory behind it. The bookkeeping is real, and
//! its invariant is that the blocks of a segment, used and free, are contiguous.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder;

/// Block sizes are multiples of this, so that the rest of a split block can be reused.
const BLOCK_BYTES: u64 = 512;
/// Segment sizes are multiples of this: requests to the device are slow, so a segment has room for many blocks.
const SEGMENT_BYTES: u64 = 2 << 20;
/// The start of the simulated device's address space. Not 0, which looks like a null pointer in reports.
const FIRST_ADDRESS: u64 = 0x7000_0000_0000;

/// The device does not have enough free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The size of the request.
    pub requested_bytes: u64,
    /// The bytes of device memory outside all segments.
    pub device_free_bytes: u64,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested_bytes, device_free_bytes } = self;
        write!(
            f,
            "out of device memory: {requested_bytes} bytes asked for, {device_free_bytes} bytes free on the device"
        )
    }
}

impl std::error::Error for OutOfMemory {}

/// The pool of one device; clones share it.
#[derive(Clone, Debug)]
pub struct Pool {
    state: Arc<Mutex<State>>,
}

/// A piece of device memory, which returns to its pool when the buffer is dropped.
#[derive(Debug)]
pub struct Buffer {
    pool: Pool,
    address: u64,
    size_bytes: u64,
}

impl Buffer {
    /// Returns the buffer's address on the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the requested bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.lock().free(self.address);
    }
}

impl Pool {
    /// Makes an empty pool on a device with `capacity_bytes` of memory.
    pub fn new(device: DeviceId, capacity_bytes: u64) -> Self {
        let state = State {
            device,
            capacity_bytes,
            reserved_bytes: 0,
            next_address: FIRST_ADDRESS,
            segments: BTreeMap::new(),
            blocks: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Allocates a buffer of `size_bytes`.
    ///
    /// # Errors
    /// If no free block is large enough and the device has no memory for another segment.
    pub fn allocate(&self, size_bytes: u64) -> Result<Buffer, OutOfMemory> {
        let address = self.lock().allocate(size_bytes)?;
        Ok(Buffer { pool: self.clone(), address, size_bytes })
    }

    /// Returns unused segments to the device.
    pub fn release_unused(&self) {
        self.lock().release_unused();
    }

    /// Returns the bytes of all segments.
    pub fn reserved_bytes(&self) -> u64 {
        self.lock().reserved_bytes
    }

    /// Returns the requested bytes of all live buffers.
    pub fn allocated_bytes(&self) -> u64 {
        self.lock().blocks.values().filter_map(|block| block.requested_bytes).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere does not corrupt the bookkeeping: no method below panics midway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    device: DeviceId,
    capacity_bytes: u64,
    reserved_bytes: u64,
    next_address: u64,
    /// The size of each segment, by address.
    segments: BTreeMap<u64, u64>,
    /// All blocks, by address.
    blocks: BTreeMap<u64, Block>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    size_bytes: u64,
    segment: u64,
    /// The requested bytes, or `None` if the block is free.
    requested_bytes: Option<u64>,
}

impl State {
    fn allocate(&mut self, requested_bytes: u64) -> Result<u64, OutOfMemory> {
        let size_bytes = requested_bytes.max(1).next_multiple_of(BLOCK_BYTES);
        let address = match self.best_fit(size_bytes) {
            Some(address) => address,
            None => self.add_segment(requested_bytes, size_bytes)?,
        };
        self.take(address, size_bytes, requested_bytes);
        // memtrack: an allocation is reported after the memory was obtained …
        recorder::record_alloc(self.device, StreamId(0), address, requested_bytes);
        Ok(address)
    }

    /// Finds the smallest free block that is large enough.
    fn best_fit(&self, size_bytes: u64) -> Option<u64> {
        self.blocks
            .iter()
            .filter(|(_, block)| block.requested_bytes.is_none() && block.size_bytes >= size_bytes)
            .min_by_key(|(_, block)| block.size_bytes)
            .map(|(address, _)| *address)
    }

    /// Requests a segment with room for `size_bytes` from the device, and turns it into one free block.
    fn add_segment(&mut self, requested_bytes: u64, size_bytes: u64) -> Result<u64, OutOfMemory> {
        let segment_bytes = size_bytes.next_multiple_of(SEGMENT_BYTES);
        if segment_bytes > self.capacity_bytes - self.reserved_bytes {
            // Unused segments that are too small for this request may occupy device memory.
            self.release_unused();
        }
        let device_free_bytes = self.capacity_bytes - self.reserved_bytes;
        if segment_bytes > device_free_bytes {
            // memtrack: a request that failed for good
            recorder::record_oom(
                self.device,
                StreamId(0),
                requested_bytes,
                device_free_bytes,
                self.capacity_bytes,
            );
            return Err(OutOfMemory { requested_bytes, device_free_bytes });
        }
        let address = self.next_address;
        self.next_address += segment_bytes;
        self.reserved_bytes += segment_bytes;
        self.segments.insert(address, segment_bytes);
        self.blocks
            .insert(address, Block { size_bytes: segment_bytes, segment: address, requested_bytes: None });
        // memtrack: memory from the device is reported as a segment, and its blocks as allocations
        recorder::record_segment_alloc(self.device, StreamId(0), address, segment_bytes);
        Ok(address)
    }

    /// Marks a free block as used and leaves the rest as a free block after it.
    fn take(&mut self, address: u64, size_bytes: u64, requested_bytes: u64) {
        let Some(block) = self.blocks.get_mut(&address) else { return };
        let rest_bytes = block.size_bytes - size_bytes;
        let segment = block.segment;
        *block = Block { size_bytes, segment, requested_bytes: Some(requested_bytes) };
        if rest_bytes > 0 {
            self.blocks.insert(
                address + size_bytes,
                Block { size_bytes: rest_bytes, segment, requested_bytes: None },
            );
        }
    }

    fn free(&mut self, address: u64) {
        let Some(mut block) = self.blocks.get(&address).copied() else { return };
        let Some(requested_bytes) = block.requested_bytes.take() else { return };
        // memtrack: … and a free before the memory becomes available. Otherwise another thread might get the address
        // and report it first, and the recording would contain two owners of one block.
        recorder::record_free(self.device, StreamId(0), address, requested_bytes);

        let mut start = address;
        if let Some((next, following)) = self.free_neighbour(address + block.size_bytes, block.segment) {
            self.blocks.remove(&next);
            block.size_bytes += following.size_bytes;
        }
        if let Some((previous, preceding)) = self.free_before(address, block.segment) {
            self.blocks.remove(&address);
            block.size_bytes += preceding.size_bytes;
            start = previous;
        }
        self.blocks.insert(start, block);
    }

    /// Returns the block at `address` if it is free and in `segment`.
    fn free_neighbour(&self, address: u64, segment: u64) -> Option<(u64, Block)> {
        let block = *self.blocks.get(&address)?;
        (block.segment == segment && block.requested_bytes.is_none()).then_some((address, block))
    }

    /// Returns the block that ends at `address` if it is free and in `segment`.
    fn free_before(&self, address: u64, segment: u64) -> Option<(u64, Block)> {
        let (previous, _) = self.blocks.range(..address).next_back()?;
        self.free_neighbour(*previous, segment)
    }

    fn release_unused(&mut self) {
        // An unused segment is a single free block, because neighbouring free blocks are merged.
        let unused: Vec<(u64, u64)> = self
            .segments
            .iter()
            .map(|(address, size_bytes)| (*address, *size_bytes))
            .filter(|(address, size_bytes)| {
                self.blocks
                    .get(address)
                    .is_some_and(|block| block.requested_bytes.is_none() && block.size_bytes == *size_bytes)
            })
            .collect();
        for (address, size_bytes) in unused {
            // memtrack: a segment is returned to the device; it is reported before it is returned
            recorder::record_segment_free(self.device, StreamId(0), address, size_bytes);
            self.segments.remove(&address);
            self.blocks.remove(&address);
            self.reserved_bytes -= size_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pool(capacity_bytes: u64) -> Pool {
        Pool::new(DeviceId(0), capacity_bytes)
    }

    #[test]
    fn buffers_do_not_overlap() -> Result<(), OutOfMemory> {
        let pool = pool(16 * MIB);
        let buffers: Vec<Buffer> =
            (1..50).map(|size| pool.allocate(size * 1000)).collect::<Result<_, _>>()?;
        let mut ranges: Vec<(u64, u64)> =
            buffers.iter().map(|buffer| (buffer.address(), buffer.address() + buffer.size_bytes())).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        Ok(())
    }

    #[test]
    fn blocks_freed_in_any_order_are_merged_and_reused() -> Result<(), OutOfMemory> {
        let pool = pool(2 * MIB);
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut buffers: Vec<Option<Buffer>> =
                (0..3).map(|_| pool.allocate(600 << 10).map(Some)).collect::<Result<_, _>>()?;
            for index in order {
                buffers[index] = None;
            }
            // Fits only if the three blocks, and the rest after them, have been merged into one block.
            drop(pool.allocate(2 * MIB)?);
        }
        assert_eq!(pool.reserved_bytes(), 2 * MIB);
        Ok(())
    }

    #[test]
    fn unused_segments_make_room_for_a_larger_one() -> Result<(), OutOfMemory> {
        let pool = pool(4 * MIB);
        let small = [pool.allocate(2 * MIB)?, pool.allocate(2 * MIB)?];
        drop(small);
        let large = pool.allocate(4 * MIB)?;
        assert_eq!((pool.reserved_bytes(), pool.allocated_bytes()), (4 * MIB, large.size_bytes()));
        Ok(())
    }

    #[test]
    fn a_full_device_reports_requested_and_free_bytes() -> Result<(), OutOfMemory> {
        let pool = pool(6 * MIB);
        let _kept = pool.allocate(3 * MIB)?;
        let refused = pool.allocate(3 * MIB).map(|buffer| buffer.address());
        assert_eq!(refused, Err(OutOfMemory { requested_bytes: 3 * MIB, device_free_bytes: 2 * MIB }));
        Ok(())
    }
}

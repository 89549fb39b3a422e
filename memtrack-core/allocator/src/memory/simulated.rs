//! A simulated device: only an address space with a capacity. With it, the allocator runs without a GPU, and recorded
//! requests can be replayed under other settings.

use crate::memory::{DeviceError, DeviceMemory};
use crate::settings::sizes::round_up;
use memtrack_model::MemoryInfo;
use memtrack_model::event::StreamId;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The granularity of the device in bytes. The device rounds sizes up to a multiple of it.
const GRANULARITY: u64 = 2 << 20;
/// The lowest address of device 0.
const FIRST_ADDRESS: u64 = 0x0010_0000_0000_0000;
/// The size of each device's address space.
const ADDRESSES_PER_DEVICE: u64 = 1 << 58;
/// The maximum memory of a device in bytes (8 PiB). This limit ensures that every offset in a range fits into a key of
/// `free_blocks`.
pub(crate) const MAX_TOTAL_BYTES: u64 = 1 << 53;

/// A device with addresses but no memory. Addresses increase and are never reused.
///
/// Clones share one device, so that a test can keep a clone while the allocator owns another.
#[derive(Clone, Debug)]
pub struct SimulatedMemory {
    shared: Arc<SharedState>,
}

#[derive(Debug)]
struct SharedState {
    total: u64,
    events_ready: AtomicBool,
    space: Mutex<Space>,
    /// Streams whose work is not done, even if events are ready.
    busy_streams: Mutex<HashSet<StreamId>>,
}

#[derive(Debug)]
struct Space {
    used: u64,
    next: u64,
    end: u64,
    /// The sizes of allocated segments, by address.
    segments: BTreeMap<u64, u64>,
    /// The sizes of all ranges that were ever reserved, by address.
    ranges: BTreeMap<u64, u64>,
}

impl SimulatedMemory {
    /// Creates a device with `total` bytes of memory, but at most 8 PiB. Devices with different ordinals have
    /// different addresses.
    ///
    /// # Panics
    /// Panics if `ordinal` is above 62.
    pub fn new(ordinal: u16, total: u64) -> Self {
        assert!(ordinal <= 62, "at most 63 simulated devices have an address space of their own");
        let next = FIRST_ADDRESS.max(u64::from(ordinal) * ADDRESSES_PER_DEVICE);
        let end = (u64::from(ordinal) + 1) * ADDRESSES_PER_DEVICE;
        let space = Space { used: 0, next, end, segments: BTreeMap::new(), ranges: BTreeMap::new() };
        let shared = SharedState {
            total: total.min(MAX_TOTAL_BYTES),
            events_ready: AtomicBool::new(true),
            space: Mutex::new(space),
            busy_streams: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sets whether work on all streams counts as done from now on. The default is `true`.
    pub fn set_events_ready(&self, ready: bool) {
        self.shared.events_ready.store(ready, Ordering::Relaxed);
    }

    /// Sets whether a stream has work that is not done, even if events are ready.
    pub(crate) fn set_busy(&self, stream: StreamId, is_busy: bool) {
        let mut busy = self.lock_busy_streams();
        if is_busy {
            busy.insert(stream);
        } else {
            busy.remove(&stream);
        }
    }

    /// Returns the start of the range that contains an address, even if the range is no longer reserved.
    pub fn range_of(&self, address: u64) -> Option<u64> {
        let space = self.lock_space();
        let (&start, &size) = space.ranges.range(..=address).next_back()?;
        (address - start < size).then_some(start)
    }

    fn lock_space(&self) -> MutexGuard<'_, Space> {
        self.shared.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_busy_streams(&self) -> MutexGuard<'_, HashSet<StreamId>> {
        self.shared.busy_streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Space {
    fn allocate_addresses(&mut self, size: u64) -> Result<u64, DeviceError> {
        let size = round_up(size, GRANULARITY);
        let address = self.next;
        if size > self.end - address {
            return Err(DeviceError::Failed("the simulated address space is used up".into()));
        }
        self.next += size;
        Ok(address)
    }

    fn allocate_memory(&mut self, size: u64, total: u64) -> Result<(), DeviceError> {
        if size > total - self.used {
            return Err(DeviceError::OutOfMemory);
        }
        self.used += size;
        Ok(())
    }
}

/// Returns the amount of memory occupied by the pages of a range of `size` bytes.
fn paged_bytes(size: u64, page: u64) -> u64 {
    size / page * round_up(page, GRANULARITY)
}

impl DeviceMemory for SimulatedMemory {
    type Event = StreamId;

    fn allocate(&self, size: u64) -> Result<u64, DeviceError> {
        let mut space = self.lock_space();
        space.allocate_memory(round_up(size, GRANULARITY), self.shared.total)?;
        let address = space.allocate_addresses(size)?;
        space.segments.insert(address, size);
        Ok(address)
    }

    fn release(&self, address: u64) -> Result<(), DeviceError> {
        let mut space = self.lock_space();
        let size = space
            .segments
            .remove(&address)
            .ok_or_else(|| DeviceError::Failed(format!("no segment begins at {address:#x}")))?;
        space.used -= round_up(size, GRANULARITY);
        Ok(())
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        let total = self.shared.total;
        Ok(MemoryInfo::new(total - self.lock_space().used, total))
    }

    fn record_event(&self, stream: StreamId) -> Result<StreamId, DeviceError> {
        Ok(stream)
    }

    fn is_done(&self, event: &StreamId) -> Result<bool, DeviceError> {
        Ok(self.shared.events_ready.load(Ordering::Relaxed) && !self.lock_busy_streams().contains(event))
    }

    fn wait(&self, _event: &StreamId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn wait_for_stream(&self, _stream: StreamId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn reserve(&self, size: u64) -> Result<u64, DeviceError> {
        let mut space = self.lock_space();
        let address = space.allocate_addresses(size)?;
        space.ranges.insert(address, size);
        Ok(address)
    }

    fn map(&self, _address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.lock_space().allocate_memory(paged_bytes(size, page), self.shared.total)
    }

    fn unmap(&self, _address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.lock_space().used -= paged_bytes(size, page);
        Ok(())
    }

    fn unreserve(&self, _address: u64, _size: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Returns the id that the stream would have in PyTorch, which takes its streams from a pool.
    fn stream_number(&self, stream: StreamId) -> u64 {
        stream.0.checked_sub(1).map_or(0, |side| side.wrapping_mul(32).wrapping_add(3))
    }
}

//! A single replay, which runs requests on an allocator with given settings.

use super::requests::{Request, Requests};
use crate::{AllocatorError, Backend, CachingAllocator, MemPool, MemPoolOptions, Settings, SimulatedMemory};
use memtrack_model::event::{DeviceId, StreamId};
use serde::Serialize;
use std::collections::HashMap;

const DEVICE: DeviceId = DeviceId(0);
/// The capacity of a device whose memory never runs out: 256 TiB, which is far more than any real device has, yet small
/// enough for thousands of address ranges.
const UNLIMITED_BYTES: u64 = 1 << 48;

/// The result of a replay. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Outcome {
    /// The allocator settings of the replay; empty for the defaults.
    pub settings: String,
    /// The peak number of bytes that the allocator reserved from the device.
    pub peak_reserved_bytes: u64,
    /// The peak number of allocated bytes.
    pub peak_allocated_bytes: u64,
    /// The peak number of active bytes: allocated, or freed while other streams still used them.
    pub peak_active_bytes: u64,
    /// The peak number of requested bytes.
    pub peak_requested_bytes: u64,
    /// The share of reserved memory that no active block used when reserved memory was at its peak.
    pub fragmentation: f64,
    /// The number of times that the allocator had to release all cached memory to serve a request.
    pub num_alloc_retries: i64,
    /// The number of requests that failed.
    pub num_ooms: i64,
    /// The number of requests that failed, including requests that are too large for any device. Most programs would
    /// not have continued after the first failure, so later failures mean little.
    pub failed_requests: u64,
    /// The number of the first request that failed, counted from 0; null if no request failed. Blocks that were live
    /// before the trace count as the first requests, whereas [`ReplayReport`](super::ReplayReport) counts only the
    /// requests in the trace.
    pub first_oom: Option<usize>,
    /// The number of times that the allocator obtained memory from the device. These calls are slow.
    pub num_device_alloc: i64,
    /// The number of times that the allocator returned memory to the device.
    pub num_device_free: i64,
    /// The number of bytes reserved at the end of the replay.
    #[serde(rename = "at_end_reserved_bytes")]
    pub reserved_bytes_at_end: u64,
}

/// Replays the requests under `settings` on a device with `capacity` bytes, or with unlimited memory if no capacity is
/// given.
///
/// # Errors
/// Fails when the simulated address space is exhausted. With expandable segments, this takes some hundred thousand
/// ranges.
pub fn replay(
    requests: &Requests,
    settings: &Settings,
    capacity: Option<u64>,
) -> Result<Outcome, AllocatorError> {
    let memory = SimulatedMemory::new(0, capacity.unwrap_or(UNLIMITED_BYTES));
    let allocator = CachingAllocator::new([memory.clone()], settings)?;
    allocator.report_to_recorder(false);
    let mut run = Run {
        allocator,
        memory,
        addresses: vec![0; requests.slots as usize],
        pools: HashMap::new(),
        peak_reserved: 0,
        outcome: Outcome { settings: settings.text().to_owned(), ..Outcome::default() },
    };
    for (number, request) in requests.list.iter().enumerate() {
        run.execute(number, request)?;
    }
    run.finish()
}

struct Run {
    allocator: CachingAllocator<SimulatedMemory>,
    memory: SimulatedMemory,
    /// The address of the block in each slot, or 0 if the slot has no live block.
    addresses: Vec<u64>,
    pools: HashMap<u32, MemPool<SimulatedMemory>>,
    peak_reserved: i64,
    outcome: Outcome,
}

impl Run {
    fn execute(&mut self, number: usize, request: &Request) -> Result<(), AllocatorError> {
        match *request {
            Request::Alloc { slot, size, stream, pool } => {
                self.addresses[slot as usize] = self.allocate(number, size, stream, pool)?;
            }
            Request::Failed { size, stream, pool } => {
                // It is unknown how long the block would have lived, so free it immediately.
                let address = self.allocate(number, size, stream, pool)?;
                self.allocator.free(address)?;
            }
            Request::Free { slot } => {
                let address = std::mem::take(&mut self.addresses[slot as usize]);
                self.allocator.free(address)?;
            }
            Request::FreePending { slot } => {
                let address = std::mem::take(&mut self.addresses[slot as usize]);
                self.memory.set_busy(stream_of(slot), true);
                self.allocator.record_stream(address, stream_of(slot));
                self.allocator.free(address)?;
            }
            Request::Complete { slot } => self.memory.set_busy(stream_of(slot), false),
            Request::EmptyCache => self.allocator.empty_cache()?,
            Request::DropPool { pool } => drop(self.pools.remove(&pool)),
        }
        Ok(())
    }

    /// Allocates a block and returns its address, or 0 if there is not enough memory.
    fn allocate(
        &mut self,
        number: usize,
        size: u64,
        stream: StreamId,
        pool: u32,
    ) -> Result<u64, AllocatorError> {
        let route = if pool == 0 { None } else { Some(self.get_or_create_pool(pool)?.use_mem_pool()?) };
        let allocated = self.allocator.allocate(size, DEVICE, stream);
        drop(route);
        let stats = &self.allocator.lock_device(DEVICE)?.stats;
        let reserved = stats.reserved_bytes.all.current;
        if reserved > self.peak_reserved {
            self.peak_reserved = reserved;
            let active = stats.active_bytes.all.current;
            self.outcome.fragmentation = (reserved - active) as f64 / reserved as f64;
        }
        match allocated {
            Ok(allocation) => Ok(allocation.address),
            Err(error) if error.is_out_of_memory() => {
                self.outcome.failed_requests += 1;
                self.outcome.first_oom.get_or_insert(number);
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    fn get_or_create_pool(&mut self, number: u32) -> Result<&MemPool<SimulatedMemory>, AllocatorError> {
        use std::collections::hash_map::Entry;
        match self.pools.entry(number) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                Ok(entry.insert(self.allocator.mem_pool(DEVICE, MemPoolOptions::default())?))
            }
        }
    }

    fn finish(self) -> Result<Outcome, AllocatorError> {
        let stats = self.allocator.statistics(DEVICE)?;
        Ok(Outcome {
            peak_reserved_bytes: stats.reserved_bytes.all.peak as u64,
            peak_allocated_bytes: stats.allocated_bytes.all.peak as u64,
            peak_active_bytes: stats.active_bytes.all.peak as u64,
            peak_requested_bytes: stats.requested_bytes.all.peak as u64,
            num_alloc_retries: stats.num_alloc_retries,
            num_ooms: stats.num_ooms,
            num_device_alloc: stats.num_device_alloc,
            num_device_free: stats.num_device_free,
            reserved_bytes_at_end: stats.reserved_bytes.all.current as u64,
            ..self.outcome
        })
    }
}

/// The first artificial stream. Each artificial stream stands for all streams that one block waits for.
const FIRST_STREAM: u64 = 1 << 63;

/// Returns the artificial stream that the block in a slot waits for. Its work is done when it was done in the trace.
fn stream_of(slot: u32) -> StreamId {
    StreamId(FIRST_STREAM + u64::from(slot))
}

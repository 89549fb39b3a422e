//! One device's default pool, through the driver: memory from it, and its statistics.
#![allow(unsafe_code)]

use super::calls::{get, handle, set, wait_on};
use crate::memory::cuda_context::{Context, check, failed, is_no_stream, within};
use crate::memory::device_memory::DeviceError;
use crate::settings::sizes::format_size;
use crate::{AllocatorError, DeviceStats, MemoryInfo, OutOfMemoryError};
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUmemPool_attribute as Attribute};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memtrack_cuda::GpuError;
use memtrack_model::OutOfMemory;
use memtrack_model::event::{DeviceId, StreamId};
use std::ptr;

/// The driver functions called below, in addition to those that statistics need.
pub(super) const NEEDED: &[&str] = &[
    "cuCtxSynchronize",
    "cuDeviceGetDefaultMemPool",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemPoolTrimTo",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamWaitEvent",
];

/// PyTorch's text for an address it does not know.
pub(super) const UNKNOWN: &str = "INTERNAL ASSERT FAILED: ptr not found in ptr_info";

#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    context: Context,
    /// The default pool, and the stream on which memory of several streams is freed; present from the first
    /// use on.
    started: Option<Started>,
    used: u64,
    /// The bytes that may be used; all bits set: no limit.
    limit: u64,
    live: HashMap<u64, Live, FixedState>,
}

/// Handles of the driver, which any thread may use.
#[derive(Clone, Copy, Debug)]
struct Started {
    pool: usize,
    unifying: usize,
}

#[derive(Debug)]
pub(super) struct Live {
    pub(super) size: u64,
    pub(super) stream: StreamId,
    /// Other streams that use it.
    uses: Vec<StreamId>,
}

impl Device {
    /// Opens the device with that number in this process.
    pub(super) fn new(ordinal: u16) -> Result<Self, GpuError> {
        Ok(Self {
            id: DeviceId(ordinal),
            context: Context::of(ordinal, NEEDED)?,
            started: None,
            used: 0,
            limit: u64::MAX,
            live: HashMap::default(),
        })
    }

    fn within<R>(&self, action: impl FnOnce() -> Result<R, DeviceError>) -> Result<R, DeviceError> {
        within(self.context.handle, action)
    }

    /// Makes the pool keep freed memory, as PyTorch does at a device's first use.
    fn start(&mut self) -> Result<Started, DeviceError> {
        if let Some(started) = self.started {
            return Ok(started);
        }
        let device = self.context.device;
        let started = self.within(|| {
            let (mut pool, mut stream) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the out-parameter is ours, the device the context's.
            let code = unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, device) };
            check("cuDeviceGetDefaultMemPool", code)?;
            set(pool, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
            for reuse in [
                Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
            ] {
                set(pool, reuse, 1)?;
            }
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: the out-parameter is ours.
            check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
            Ok(Started { pool: pool as usize, unifying: stream as usize })
        })?;
        self.started = Some(started);
        Ok(started)
    }

    pub(super) fn allocate(&mut self, size: u64, stream: StreamId) -> Result<u64, AllocatorError> {
        self.start()?;
        let allocated = if self.used.saturating_add(size) > self.limit {
            Err(DeviceError::OutOfMemory)
        } else {
            self.within(|| {
                let mut address = 0;
                // SAFETY: the out-parameter is ours; the client promises that its stream is one of this device.
                let code = unsafe { sys::cuMemAllocAsync(&raw mut address, size as usize, handle(stream)) };
                check("cuMemAllocAsync", code).map(|()| address)
            })
        };
        match allocated {
            Ok(address) => {
                self.live.insert(address, Live { size, stream, uses: Vec::new() });
                self.used += size;
                Ok(address)
            }
            Err(DeviceError::OutOfMemory) => Err(self.out_of_memory(size, stream)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether it allocated an address.
    pub(super) fn knows(&self, address: u64) -> bool {
        self.live.contains_key(&address)
    }

    /// Returns the record of allocated memory.
    pub(super) fn look(&self, address: u64) -> Option<&Live> {
        self.live.get(&address)
    }

    /// Records that another stream uses memory too; its own stream is ignored.
    pub(super) fn record_stream(&mut self, address: u64, stream: StreamId) {
        let live = self.live.get_mut(&address).filter(|live| live.stream != stream);
        if let Some(live) = live.filter(|live| !live.uses.contains(&stream)) {
            live.uses.push(stream);
        }
    }

    /// Limits the memory that may be used to a share of the device's.
    pub(super) fn set_fraction(&mut self, fraction: f64) -> Result<(), DeviceError> {
        self.start()?;
        self.limit = (fraction * self.memory_info()?.total_bytes as f64) as u64;
        Ok(())
    }

    /// Returns the share that may be used.
    pub(super) fn fraction(&self) -> Result<f64, DeviceError> {
        if self.limit == u64::MAX {
            return Ok(1.0);
        }
        Ok(self.limit as f64 / self.memory_info()?.total_bytes as f64)
    }

    /// Waits for all work and makes the pool release its unused memory.
    pub(super) fn trim(&self) -> Result<(), DeviceError> {
        let Some(Started { pool, .. }) = self.started else { return Ok(()) };
        self.within(|| {
            // SAFETY: the context is current, the pool the device's.
            unsafe {
                check("cuCtxSynchronize", sys::cuCtxSynchronize())?;
                check("cuMemPoolTrimTo", sys::cuMemPoolTrimTo(pool as sys::CUmemoryPool, 0))
            }
        })
    }

    /// Resets the pool's peaks to its current numbers, which is how the driver defines setting them to 0.
    pub(super) fn reset_peaks(&mut self) -> Result<(), DeviceError> {
        let pool = self.start()?.pool as sys::CUmemoryPool;
        set(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)?;
        set(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
    }

    fn out_of_memory(&self, size: u64, stream: StreamId) -> AllocatorError {
        let MemoryInfo { free_bytes: free, total_bytes: total, .. } = match self.memory_info() {
            Ok(info) => info,
            Err(error) => return error.into(),
        };
        let message = format!(
            "Allocation on device {} would exceed allowed memory. (out of memory)\nCurrently allocated     : {}\n\
             Requested               : {}\nDevice limit            : {}\nFree (according to CUDA): {}\n\
             PyTorch limit (set by user-supplied memory fraction)\n                        : {}",
            self.id.0,
            format_size(self.used),
            format_size(size),
            format_size(total),
            format_size(free),
            format_size(self.limit),
        );
        AllocatorError::OutOfMemory(Box::new(OutOfMemoryError {
            facts: OutOfMemory::new(self.id, stream, size, free, total),
            segment_bytes: size,
            limit_bytes: (self.limit != u64::MAX).then_some(self.limit),
            message,
        }))
    }

    /// Frees allocated memory: on its stream, or behind all streams that use it.
    pub(super) fn free(&mut self, address: u64) -> Result<(), AllocatorError> {
        let unknown = AllocatorError::Unsupported(UNKNOWN.into());
        let live = self.live.remove(&address).ok_or(unknown)?;
        let done = self.start().and_then(|started| {
            self.within(|| {
                let last = if live.uses.is_empty() {
                    live.stream
                } else {
                    let unifying = StreamId(started.unifying as u64);
                    let users = std::iter::once(&live.stream).chain(&live.uses);
                    users.copied().try_for_each(|stream| wait_on(unifying, stream))?;
                    unifying
                };
                // SAFETY: the driver allocated the memory and it was not freed yet; the client named all
                // uses.
                let freed = unsafe { sys::cuMemFreeAsync(address, handle(last)) };
                if !is_no_stream(freed) {
                    return check("cuMemFreeAsync", freed);
                }
                // Work queued on a stream that was destroyed continues: it is waited for.
                // SAFETY: the context is current, and nothing that is queued uses the memory any more.
                unsafe {
                    check("cuCtxSynchronize", sys::cuCtxSynchronize())?;
                    check(
                        "cuMemFreeAsync",
                        sys::cuMemFreeAsync(address, handle(StreamId(started.unifying as u64))),
                    )
                }
            })
        });
        match done {
            Ok(()) => {
                self.used -= live.size;
                Ok(())
            }
            Err(error) => {
                self.live.insert(address, live);
                Err(error.into())
            }
        }
    }

    pub(super) fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        self.within(|| {
            let (free, total) = result::mem_get_info().map_err(|error| failed("cuMemGetInfo", error.0))?;
            Ok(MemoryInfo::new(free as u64, total as u64))
        })
    }

    pub(super) fn statistics(&self) -> Result<DeviceStats, DeviceError> {
        let mut stats = DeviceStats::default();
        let Some(Started { pool, .. }) = self.started else { return Ok(stats) };
        let [reserved, reserved_high, used, used_high] = [
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        ]
        .map(|attribute| get(pool as sys::CUmemoryPool, attribute));
        (stats.reserved_bytes.all.current, stats.reserved_bytes.all.peak) = (reserved?, reserved_high?);
        (stats.allocated_bytes.all.current, stats.allocated_bytes.all.peak) = (used?, used_high?);
        // The driver does not distinguish allocated memory from memory that waits for a stream.
        stats.active_bytes = stats.allocated_bytes;
        Ok(stats)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let Some(Started { unifying, .. }) = self.started else { return };
        // A failure cannot be reported here, and at the end of the process the driver may be gone.
        let _ = self.within(|| {
            let unifying = unifying as sys::CUstream;
            if !self.live.is_empty() {
                // Their streams may be gone by now, so they are freed after all other work.
                // SAFETY: the context is current.
                let _ = unsafe { sys::cuCtxSynchronize() };
            }
            for &address in self.live.keys() {
                // SAFETY: the driver allocated it and it was not freed yet; no other code can refer to it any
                // more.
                let _ = unsafe { sys::cuMemFreeAsync(address, unifying) };
            }
            // SAFETY: made by `start`, and not used from here on.
            check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(unifying) })
        });
    }
}

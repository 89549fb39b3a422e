//! A device's default pool in the driver: allocations, frees and statistics.
#![allow(unsafe_code)]

use crate::memory::DeviceError;
use crate::memory::cuda_context::{
    Context, call_error, check, current_memory_info, is_invalid_stream, with_context,
};
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

/// The driver functions called below, in addition to those for statistics.
pub(super) const REQUIRED_FUNCTIONS: &[&str] = &[
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

/// PyTorch's error message for an unknown address.
pub(super) const UNKNOWN_POINTER_MESSAGE: &str = "INTERNAL ASSERT FAILED: ptr not found in ptr_info";

#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    context: Context,
    /// The default pool, and the stream that frees memory used by several streams. They are set when the device is
    /// first used.
    handles: Option<Handles>,
    used: u64,
    /// The limit on `used`, in bytes; `u64::MAX` means no limit.
    limit: u64,
    live: HashMap<u64, LiveBlock, FixedState>,
}

/// Driver handles, which may be used from any thread.
#[derive(Clone, Copy, Debug)]
struct Handles {
    pool: usize,
    freeing_stream: usize,
}

#[derive(Debug)]
pub(super) struct LiveBlock {
    pub(super) size: u64,
    pub(super) stream: StreamId,
    /// Other streams that use the block.
    uses: Vec<StreamId>,
}

impl Device {
    /// Opens the device that has this ordinal in this process.
    pub(super) fn new(ordinal: u16) -> Result<Self, GpuError> {
        Ok(Self {
            id: DeviceId(ordinal),
            context: Context::of(ordinal, REQUIRED_FUNCTIONS)?,
            handles: None,
            used: 0,
            limit: u64::MAX,
            live: HashMap::default(),
        })
    }

    fn with_context<R>(&self, action: impl FnOnce() -> Result<R, DeviceError>) -> Result<R, DeviceError> {
        with_context(self.context.handle, action)
    }

    /// Configures the pool to keep freed memory, as PyTorch does when a device is first used.
    fn start(&mut self) -> Result<Handles, DeviceError> {
        if let Some(handles) = self.handles {
            return Ok(handles);
        }
        let device = self.context.device;
        let handles = self.with_context(|| {
            let (mut pool, mut stream) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the out-parameter is a local variable, and the device belongs to the context.
            let code = unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, device) };
            check("cuDeviceGetDefaultMemPool", code)?;
            set_attribute(pool, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
            for reuse in [
                Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
            ] {
                set_attribute(pool, reuse, 1)?;
            }
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: the out-parameter is a local variable.
            check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
            Ok(Handles { pool: pool as usize, freeing_stream: stream as usize })
        })?;
        self.handles = Some(handles);
        Ok(handles)
    }

    pub(super) fn allocate(&mut self, size: u64, stream: StreamId) -> Result<u64, AllocatorError> {
        self.start()?;
        let allocated = if self.used.saturating_add(size) > self.limit {
            Err(DeviceError::OutOfMemory)
        } else {
            self.with_context(|| {
                let mut address = 0;
                // SAFETY: the out-parameter is a local variable; the client guarantees that the stream belongs to this
                // device.
                let code =
                    unsafe { sys::cuMemAllocAsync(&raw mut address, size as usize, stream_handle(stream)) };
                check("cuMemAllocAsync", code).map(|()| address)
            })
        };
        match allocated {
            Ok(address) => {
                self.live.insert(address, LiveBlock { size, stream, uses: Vec::new() });
                self.used += size;
                Ok(address)
            }
            Err(DeviceError::OutOfMemory) => Err(self.out_of_memory_error(size, stream)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether this device allocated the block at an address.
    pub(super) fn owns(&self, address: u64) -> bool {
        self.live.contains_key(&address)
    }

    pub(super) fn live_block(&self, address: u64) -> Option<&LiveBlock> {
        self.live.get(&address)
    }

    /// Records that another stream also uses a block; the block's own stream is ignored.
    pub(super) fn record_stream(&mut self, address: u64, stream: StreamId) {
        let live = self.live.get_mut(&address).filter(|live| live.stream != stream);
        if let Some(live) = live.filter(|live| !live.uses.contains(&stream)) {
            live.uses.push(stream);
        }
    }

    /// Limits memory use to a share of the device's memory.
    pub(super) fn set_fraction(&mut self, fraction: f64) -> Result<(), DeviceError> {
        self.start()?;
        self.limit = (fraction * self.memory_info()?.total_bytes as f64) as u64;
        Ok(())
    }

    /// Returns the share of the device's memory that may be used.
    pub(super) fn fraction(&self) -> Result<f64, DeviceError> {
        if self.limit == u64::MAX {
            return Ok(1.0);
        }
        Ok(self.limit as f64 / self.memory_info()?.total_bytes as f64)
    }

    /// Waits for all work to finish and makes the pool release its unused memory.
    pub(super) fn trim(&self) -> Result<(), DeviceError> {
        let Some(Handles { pool, .. }) = self.handles else { return Ok(()) };
        self.with_context(|| {
            // SAFETY: the context is current, and the pool belongs to the device.
            unsafe {
                check("cuCtxSynchronize", sys::cuCtxSynchronize())?;
                check("cuMemPoolTrimTo", sys::cuMemPoolTrimTo(pool as sys::CUmemoryPool, 0))
            }
        })
    }

    /// Resets the pool's peaks to the current values, which the driver does when a peak is set to 0.
    pub(super) fn reset_peaks(&mut self) -> Result<(), DeviceError> {
        let pool = self.start()?.pool as sys::CUmemoryPool;
        set_attribute(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)?;
        set_attribute(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
    }

    fn out_of_memory_error(&self, size: u64, stream: StreamId) -> AllocatorError {
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

    /// Frees a block on its stream, or after the work of all streams if several use it.
    pub(super) fn free(&mut self, address: u64) -> Result<(), AllocatorError> {
        let unknown = AllocatorError::Unsupported(UNKNOWN_POINTER_MESSAGE.into());
        let live = self.live.remove(&address).ok_or(unknown)?;
        let done = self.start().and_then(|handles| {
            self.with_context(|| {
                let last = if live.uses.is_empty() {
                    live.stream
                } else {
                    let freeing_stream = StreamId(handles.freeing_stream as u64);
                    let users = std::iter::once(&live.stream).chain(&live.uses);
                    users.copied().try_for_each(|stream| wait_on(freeing_stream, stream))?;
                    freeing_stream
                };
                // SAFETY: the driver allocated the memory, which has not been freed yet, and the client recorded all
                // streams that use it.
                let freed = unsafe { sys::cuMemFreeAsync(address, stream_handle(last)) };
                if !is_invalid_stream(freed) {
                    return check("cuMemFreeAsync", freed);
                }
                // Work queued on a destroyed stream continues, so wait for the whole device.
                // SAFETY: the context is current, and queued work no longer uses the memory.
                unsafe {
                    check("cuCtxSynchronize", sys::cuCtxSynchronize())?;
                    check(
                        "cuMemFreeAsync",
                        sys::cuMemFreeAsync(address, stream_handle(StreamId(handles.freeing_stream as u64))),
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
        self.with_context(current_memory_info)
    }

    pub(super) fn statistics(&self) -> Result<DeviceStats, DeviceError> {
        let mut stats = DeviceStats::default();
        let Some(Handles { pool, .. }) = self.handles else { return Ok(stats) };
        let [reserved, reserved_high, used, used_high] = [
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        ]
        .map(|attribute| get_attribute(pool as sys::CUmemoryPool, attribute));
        (stats.reserved_bytes.all.current, stats.reserved_bytes.all.peak) = (reserved?, reserved_high?);
        (stats.allocated_bytes.all.current, stats.allocated_bytes.all.peak) = (used?, used_high?);
        // The driver does not distinguish allocated memory from freed memory that a stream still uses.
        stats.active_bytes = stats.allocated_bytes;
        Ok(stats)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let Some(Handles { freeing_stream, .. }) = self.handles else { return };
        // Failures cannot be reported here, and the driver may already be unloaded at the end of the process.
        let _ = self.with_context(|| {
            let freeing_stream = freeing_stream as sys::CUstream;
            if !self.live.is_empty() {
                // The streams of live blocks may already be destroyed, so free the blocks only after all work is done.
                // SAFETY: the context is current.
                let _ = unsafe { sys::cuCtxSynchronize() };
            }
            for &address in self.live.keys() {
                // SAFETY: the driver allocated the block, which has not been freed yet, and no other code can still
                // refer to it.
                let _ = unsafe { sys::cuMemFreeAsync(address, freeing_stream) };
            }
            // SAFETY: `start` created the stream, and it is not used after this point.
            check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(freeing_stream) })
        });
    }
}

/// Returns the driver's handle for a stream.
fn stream_handle(stream: StreamId) -> sys::CUstream {
    stream.0 as sys::CUstream
}

/// Makes future work on `later` wait for the work queued on `earlier`.
fn wait_on(later: StreamId, earlier: StreamId) -> Result<(), DeviceError> {
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
    let event = result::event::create(flags).map_err(|error| call_error("cuEventCreate", error.0))?;
    // SAFETY: the event was created above, and the client guarantees that the streams are alive; the driver keeps a
    // destroyed event for as long as a stream waits for it.
    unsafe {
        let recorded = sys::cuEventRecord(event, stream_handle(earlier));
        let recorded = if is_invalid_stream(recorded) {
            // Work queued on a destroyed stream continues, but the event cannot be recorded there, so wait for the
            // whole device.
            check("cuCtxSynchronize", sys::cuCtxSynchronize())
        } else {
            check("cuEventRecord", recorded)
        };
        let waits = recorded.and_then(|()| {
            check("cuStreamWaitEvent", sys::cuStreamWaitEvent(stream_handle(later), event, 0))
        });
        check("cuEventDestroy", sys::cuEventDestroy_v2(event)).and(waits)
    }
}

fn get_attribute(pool: sys::CUmemoryPool, attribute: Attribute) -> Result<i64, DeviceError> {
    let mut bytes = 0u64;
    // SAFETY: the pool is a device's default pool, and the requested attributes are 64-bit numbers.
    let done = unsafe { result::mem_pool::get_attribute(pool, attribute, (&raw mut bytes).cast()) };
    done.map(|()| bytes as i64).map_err(|error| call_error("cuMemPoolGetAttribute", error.0))
}

fn set_attribute(pool: sys::CUmemoryPool, attribute: Attribute, value: u64) -> Result<(), DeviceError> {
    let mut value = value;
    // SAFETY: the pool is a device's default pool; an attribute has 32 or 64 bits, and the low half of the value comes
    // first.
    let done = unsafe { result::mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()) };
    done.map_err(|error| call_error("cuMemPoolSetAttribute", error.0))
}

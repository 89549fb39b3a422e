//! Implementation of [`Backend`] for a loaded allocator. Calls that the library supports are forwarded to it; all
//! others fail, as in PyTorch.
#![allow(unsafe_code)]

use super::super::{Backend, OomObserver, check_fraction, unsupported_error};
use super::Pluggable;
use crate::state::caller;
use crate::{AllocatorError, DeviceStats, HistoryOptions, MemoryInfo, OutOfMemoryError, PoolAllocator};
use memtrack_model::OutOfMemory;
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use std::ffi::c_void;

fn unsupported_call<T>(what: &str) -> Result<T, AllocatorError> {
    unsupported_error("CUDAPluggableAllocator", what)
}

impl Backend for Pluggable {
    fn get_allocator_backend(&self) -> &'static str {
        "pluggable"
    }

    fn caching_allocator_alloc(
        &self,
        size: u64,
        device: DeviceId,
        stream: StreamId,
    ) -> Result<u64, AllocatorError> {
        if isize::try_from(size).is_err() {
            return Err(AllocatorError::TooLarge);
        }
        if size == 0 {
            return Ok(0);
        }
        self.allocate_from_library(size, device, stream, true).ok_or_else(|| {
            let error = out_of_memory_error(size, device, stream);
            caller::report_oom(&error);
            AllocatorError::OutOfMemory(Box::new(error))
        })
    }

    fn caching_allocator_delete(&self, address: u64) -> Result<(), AllocatorError> {
        if address == 0 {
            return Ok(());
        }
        let mut all = self.lock_live();
        let live = all.get(&address).filter(|live| live.is_block).copied();
        let unknown = || AllocatorError::Unsupported("Trying to free a pointer not allocated here".into());
        let live = live.ok_or_else(unknown)?;
        all.remove(&address);
        drop(all);
        self.free_live(address, live);
        Ok(())
    }

    fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), AllocatorError> {
        if let Some(record_stream) = self.record_stream {
            // SAFETY: the caller of `set_record_stream_fn` guaranteed the type.
            unsafe { record_stream(address as *mut c_void, stream.0 as *mut c_void) };
        }
        Ok(())
    }

    fn empty_cache(&self) -> Result<(), AllocatorError> {
        if let Some(reset) = self.reset {
            // SAFETY: the caller of `set_reset_fn` guaranteed the type.
            unsafe { reset() };
        }
        Ok(())
    }

    fn set_per_process_memory_fraction(&self, fraction: f64, device: DeviceId) -> Result<(), AllocatorError> {
        let fraction = check_fraction(fraction)?;
        if let Some(memory_fraction) = self.memory_fraction {
            // SAFETY: the caller of `set_memory_fraction_fn` guaranteed the type.
            unsafe { memory_fraction(fraction, device.0.into()) };
        }
        Ok(())
    }

    fn get_per_process_memory_fraction(&self, _device: DeviceId) -> Result<f64, AllocatorError> {
        unsupported_call("getMemoryFraction")
    }

    fn statistics(&self, _device: DeviceId) -> Result<DeviceStats, AllocatorError> {
        unsupported_call("getDeviceStats")
    }

    fn reset_peak_memory_stats(&self, _device: DeviceId) -> Result<(), AllocatorError> {
        unsupported_call("resetPeakStats")
    }

    fn reset_accumulated_memory_stats(&self, _device: DeviceId) -> Result<(), AllocatorError> {
        unsupported_call("resetAccumulatedStats")
    }

    fn mem_get_info(&self, device: DeviceId) -> Result<MemoryInfo, AllocatorError> {
        Ok(memtrack_cuda::mem_get_info(device.0.into())?)
    }

    fn record_memory_history(&self, _options: Option<&HistoryOptions>) -> Result<(), AllocatorError> {
        unsupported_call("recordHistory")
    }

    fn snapshot(&self) -> Result<PytorchSnapshot, AllocatorError> {
        unsupported_call("snapshot")
    }

    fn attach_out_of_memory_observer(&self, _observer: OomObserver) -> Result<(), AllocatorError> {
        unsupported_call("attachOutOfMemoryObserver")
    }
}

/// Allocates the segments of a `MemPool`. The caching allocator reports their events.
impl PoolAllocator for Pluggable {
    fn allocate(&self, size: u64, device: DeviceId, stream: StreamId) -> Option<u64> {
        self.allocate_from_library(size, device, stream, false)
    }

    fn release(&self, address: u64, _size: u64, _device: DeviceId, _stream: StreamId) {
        let live = self.lock_live().remove(&address);
        if let Some(live) = live {
            self.free_live(address, live);
        }
    }
}

/// Returns the error for a null pointer from the library. PyTorch would carry on with the null pointer.
fn out_of_memory_error(size: u64, device: DeviceId, stream: StreamId) -> OutOfMemoryError {
    let info = memtrack_cuda::mem_get_info(device.0.into()).unwrap_or_default();
    OutOfMemoryError {
        facts: OutOfMemory::new(device, stream, size, info.free_bytes, info.total_bytes),
        segment_bytes: size,
        limit_bytes: None,
        message: format!(
            "CUDA out of memory. Tried to allocate {} on GPU {}; the pluggable allocator returned null.",
            crate::format_size(size),
            device.0
        ),
    }
}

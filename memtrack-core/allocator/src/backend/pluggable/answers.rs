//! The functions of a loaded allocator: calls that the library provides are forwarded; others are refused, as
//! in PyTorch.
#![allow(unsafe_code)]

use super::super::{Backend, OomObserver, checked_fraction, not_yet};
use super::Pluggable;
use crate::state::caller;
use crate::{AllocatorError, DeviceStats, HistoryOptions, MemoryInfo, OutOfMemoryError, PoolAllocator};
use memtrack_model::OutOfMemory;
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use std::ffi::c_void;

fn refuse<T>(what: &str) -> Result<T, AllocatorError> {
    not_yet("CUDAPluggableAllocator", what)
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
        self.take(size, device, stream, true).ok_or_else(|| {
            let error = out_of_memory(size, device, stream);
            caller::report_oom(&error);
            AllocatorError::OutOfMemory(Box::new(error))
        })
    }

    fn caching_allocator_delete(&self, address: u64) -> Result<(), AllocatorError> {
        if address == 0 {
            return Ok(());
        }
        let mut all = self.live();
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
            // SAFETY: of that type, by the promise at `set_record_stream_fn`.
            unsafe { record_stream(address as *mut c_void, stream.0 as *mut c_void) };
        }
        Ok(())
    }

    fn empty_cache(&self) -> Result<(), AllocatorError> {
        if let Some(reset) = self.reset {
            // SAFETY: of that type, by the promise at `set_reset_fn`.
            unsafe { reset() };
        }
        Ok(())
    }

    fn set_per_process_memory_fraction(&self, fraction: f64, device: DeviceId) -> Result<(), AllocatorError> {
        let fraction = checked_fraction(fraction)?;
        if let Some(memory_fraction) = self.memory_fraction {
            // SAFETY: of that type, by the promise at `set_memory_fraction_fn`.
            unsafe { memory_fraction(fraction, device.0.into()) };
        }
        Ok(())
    }

    fn get_per_process_memory_fraction(&self, _device: DeviceId) -> Result<f64, AllocatorError> {
        refuse("getMemoryFraction")
    }

    fn statistics(&self, _device: DeviceId) -> Result<DeviceStats, AllocatorError> {
        refuse("getDeviceStats")
    }

    fn reset_peak_memory_stats(&self, _device: DeviceId) -> Result<(), AllocatorError> {
        refuse("resetPeakStats")
    }

    fn reset_accumulated_memory_stats(&self, _device: DeviceId) -> Result<(), AllocatorError> {
        refuse("resetAccumulatedStats")
    }

    fn mem_get_info(&self, device: DeviceId) -> Result<MemoryInfo, AllocatorError> {
        Ok(memtrack_cuda::mem_get_info(device.0.into())?)
    }

    fn record_memory_history(&self, _options: Option<&HistoryOptions>) -> Result<(), AllocatorError> {
        refuse("recordHistory")
    }

    fn snapshot(&self) -> Result<PytorchSnapshot, AllocatorError> {
        refuse("snapshot")
    }

    fn attach_out_of_memory_observer(&self, _observer: OomObserver) -> Result<(), AllocatorError> {
        refuse("attachOutOfMemoryObserver")
    }
}

/// Segments of a `MemPool`, which the caching allocator reports.
impl PoolAllocator for Pluggable {
    fn allocate(&self, size: u64, device: DeviceId, stream: StreamId) -> Option<u64> {
        self.take(size, device, stream, false)
    }

    fn release(&self, address: u64, _size: u64, _device: DeviceId, _stream: StreamId) {
        let live = self.live().remove(&address);
        if let Some(live) = live {
            self.free_live(address, live);
        }
    }
}

/// Describes the failure when the library returned null. PyTorch would continue with the null pointer.
fn out_of_memory(size: u64, device: DeviceId, stream: StreamId) -> OutOfMemoryError {
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

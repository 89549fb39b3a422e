//! Implementation of [`Backend`] for the caching allocator.

use super::{Backend, OomObserver, check_fraction};
use crate::{AllocatorError, CachingAllocator, DeviceMemory, DeviceStats, HistoryOptions, MemoryInfo};
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;

impl<M: DeviceMemory> Backend for CachingAllocator<M> {
    fn get_allocator_backend(&self) -> &'static str {
        "native"
    }

    fn caching_allocator_alloc(
        &self,
        size: u64,
        device: DeviceId,
        stream: StreamId,
    ) -> Result<u64, AllocatorError> {
        self.allocate(size, device, stream).map(|allocation| allocation.address)
    }

    fn caching_allocator_delete(&self, address: u64) -> Result<(), AllocatorError> {
        self.free(address)
    }

    fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), AllocatorError> {
        self.record_stream(address, stream);
        Ok(())
    }

    /// Releases all cached memory to the devices, except for segments that contain live blocks.
    fn empty_cache(&self) -> Result<(), AllocatorError> {
        for mut device in self.lock_devices() {
            let context = device.history.capture_free();
            device.release_cached(None, context)?;
        }
        Ok(())
    }

    fn set_per_process_memory_fraction(&self, fraction: f64, device: DeviceId) -> Result<(), AllocatorError> {
        let mut device = self.lock_device(device)?;
        device.set_fraction(check_fraction(fraction)?);
        Ok(())
    }

    fn get_per_process_memory_fraction(&self, device: DeviceId) -> Result<f64, AllocatorError> {
        let device = self.lock_device(device)?;
        Ok(device.limit.map_or(1.0, |limit| limit as f64 / device.total_memory as f64))
    }

    fn statistics(&self, device: DeviceId) -> Result<DeviceStats, AllocatorError> {
        Ok(self.lock_device(device)?.stats.clone())
    }

    fn reset_peak_memory_stats(&self, device: DeviceId) -> Result<(), AllocatorError> {
        self.lock_device(device)?.stats.reset_peak();
        Ok(())
    }

    fn reset_accumulated_memory_stats(&self, device: DeviceId) -> Result<(), AllocatorError> {
        self.lock_device(device)?.stats.reset_accumulated();
        Ok(())
    }

    fn mem_get_info(&self, device: DeviceId) -> Result<MemoryInfo, AllocatorError> {
        Ok(self.lock_device(device)?.memory.memory_info()?)
    }

    fn record_memory_history(&self, options: Option<&HistoryOptions>) -> Result<(), AllocatorError> {
        self.record_memory_history(options);
        Ok(())
    }

    fn snapshot(&self) -> Result<PytorchSnapshot, AllocatorError> {
        Ok(self.snapshot())
    }

    fn attach_out_of_memory_observer(&self, observer: OomObserver) -> Result<(), AllocatorError> {
        self.attach_out_of_memory_observer(observer);
        Ok(())
    }
}

//! The caching allocator as one of the backends: its own methods, under the trait.

use super::{Backend, OomObserver};
use crate::{AllocatorError, CachingAllocator, DeviceMemory, DeviceStats, HistoryOptions, MemoryInfo};
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;

impl<M: DeviceMemory> Backend for CachingAllocator<M> {
    fn get_allocator_backend(&self) -> &'static str {
        self.get_allocator_backend()
    }

    fn caching_allocator_alloc(
        &self,
        size: u64,
        device: DeviceId,
        stream: StreamId,
    ) -> Result<u64, AllocatorError> {
        self.caching_allocator_alloc(size, device, stream)
    }

    fn caching_allocator_delete(&self, address: u64) -> Result<(), AllocatorError> {
        self.caching_allocator_delete(address)
    }

    fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), AllocatorError> {
        self.record_stream(address, stream);
        Ok(())
    }

    fn empty_cache(&self) -> Result<(), AllocatorError> {
        self.empty_cache()
    }

    fn set_per_process_memory_fraction(&self, fraction: f64, device: DeviceId) -> Result<(), AllocatorError> {
        self.set_per_process_memory_fraction(fraction, device)
    }

    fn get_per_process_memory_fraction(&self, device: DeviceId) -> Result<f64, AllocatorError> {
        self.get_per_process_memory_fraction(device)
    }

    fn statistics(&self, device: DeviceId) -> Result<DeviceStats, AllocatorError> {
        self.statistics(device)
    }

    fn reset_peak_memory_stats(&self, device: DeviceId) -> Result<(), AllocatorError> {
        self.reset_peak_memory_stats(device)
    }

    fn reset_accumulated_memory_stats(&self, device: DeviceId) -> Result<(), AllocatorError> {
        self.reset_accumulated_memory_stats(device)
    }

    fn mem_get_info(&self, device: DeviceId) -> Result<MemoryInfo, AllocatorError> {
        self.mem_get_info(device)
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

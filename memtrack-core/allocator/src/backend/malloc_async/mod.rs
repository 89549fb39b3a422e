//! The `cudaMallocAsync` backend: memory from the driver's stream-ordered pool, which does its own caching. The
//! statistics are the driver's, for its default pool; they do not cover individual blocks.

mod device;

use super::{Backend, OomObserver, check_fraction, unsupported_error};
use crate::memory::cuda_context::device_count;
use crate::recorder;
use crate::settings::sizes::REQUEST_LIMIT;
use crate::{AllocatorError, DeviceStats, HistoryOptions, MemoryInfo};
use device::{Device, REQUIRED_FUNCTIONS, UNKNOWN_POINTER_MESSAGE};
use memtrack_model::event::{Action, DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The driver's pools for all devices, behind the functions of `torch.cuda.memory`. Dropping it frees live memory.
#[derive(Debug)]
pub struct CudaMallocAsync {
    devices: Box<[Mutex<Device>]>,
}

impl CudaMallocAsync {
    /// Opens the pools of all devices that this process may use. A pool is left unchanged until its device is
    /// first used.
    ///
    /// # Errors
    /// Fails when there is no driver or the driver does not support stream-ordered allocation.
    pub fn new() -> Result<Self, AllocatorError> {
        let device = |ordinal| Ok(Mutex::new(Device::new(ordinal)?));
        let devices: Result<_, AllocatorError> = (0..device_count(REQUIRED_FUNCTIONS)?).map(device).collect();
        Ok(Self { devices: devices? })
    }

    fn lock_device(&self, device: DeviceId) -> Result<MutexGuard<'_, Device>, AllocatorError> {
        let invalid_device = AllocatorError::InvalidDevice { device: device.0, devices: self.devices.len() };
        self.devices.get(usize::from(device.0)).map(lock).ok_or(invalid_device)
    }

    /// Locks and returns the device that allocated the block at an address.
    fn lock_owner(&self, address: u64) -> Result<MutexGuard<'_, Device>, AllocatorError> {
        let known = |device: &MutexGuard<'_, Device>| device.owns(address);
        let unknown = AllocatorError::Unsupported(UNKNOWN_POINTER_MESSAGE.into());
        self.devices.iter().map(lock).find(known).ok_or(unknown)
    }
}

/// Locks a device even if its mutex is poisoned. No code that holds this lock panics in the middle of a change, so the
/// state is always consistent.
fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unsupported_call<T>(what: &str) -> Result<T, AllocatorError> {
    unsupported_error("cudaMallocAsync", what)
}

impl Backend for CudaMallocAsync {
    fn get_allocator_backend(&self) -> &'static str {
        "cudaMallocAsync"
    }

    fn caching_allocator_alloc(
        &self,
        size: u64,
        device: DeviceId,
        stream: StreamId,
    ) -> Result<u64, AllocatorError> {
        let mut locked = self.lock_device(device)?;
        if size >= REQUEST_LIMIT {
            return Err(AllocatorError::TooLarge);
        }
        if size == 0 {
            return Ok(0);
        }
        let allocated = locked.allocate(size, stream);
        drop(locked);
        match &allocated {
            Ok(address) => report(Action::Alloc, device, stream, *address, size),
            Err(AllocatorError::OutOfMemory(error)) => recorder::report_oom(error),
            Err(_) => {}
        }
        allocated
    }

    fn caching_allocator_delete(&self, address: u64) -> Result<(), AllocatorError> {
        if address == 0 {
            return Ok(());
        }
        let mut device = self.lock_owner(address)?;
        // Report the free while the device is locked, before another thread can allocate the memory.
        let freed = device.live_block(address).map(|live| (live.stream, live.size));
        if let Some((stream, size)) = freed {
            report(Action::FreeRequested, device.id, stream, address, size);
            device.free(address)?;
            report(Action::FreeCompleted, device.id, stream, address, size);
        }
        Ok(())
    }

    fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), AllocatorError> {
        if address != 0 {
            self.lock_owner(address)?.record_stream(address, stream);
        }
        Ok(())
    }

    fn empty_cache(&self) -> Result<(), AllocatorError> {
        self.devices.iter().try_for_each(|device| Ok(lock(device).trim()?))
    }

    fn set_per_process_memory_fraction(&self, fraction: f64, device: DeviceId) -> Result<(), AllocatorError> {
        let mut device = self.lock_device(device)?;
        Ok(device.set_fraction(check_fraction(fraction)?)?)
    }

    fn get_per_process_memory_fraction(&self, device: DeviceId) -> Result<f64, AllocatorError> {
        Ok(self.lock_device(device)?.fraction()?)
    }

    fn statistics(&self, device: DeviceId) -> Result<DeviceStats, AllocatorError> {
        Ok(self.lock_device(device)?.statistics()?)
    }

    fn reset_peak_memory_stats(&self, device: DeviceId) -> Result<(), AllocatorError> {
        Ok(self.lock_device(device)?.reset_peaks()?)
    }

    /// Has no effect, because the driver keeps no accumulated statistics.
    fn reset_accumulated_memory_stats(&self, device: DeviceId) -> Result<(), AllocatorError> {
        self.lock_device(device).map(drop)
    }

    fn mem_get_info(&self, device: DeviceId) -> Result<MemoryInfo, AllocatorError> {
        Ok(self.lock_device(device)?.memory_info()?)
    }

    fn record_memory_history(&self, _options: Option<&HistoryOptions>) -> Result<(), AllocatorError> {
        unsupported_call("recordHistory")
    }

    fn snapshot(&self) -> Result<PytorchSnapshot, AllocatorError> {
        Err(AllocatorError::Unsupported(
            "Calling snapshot with backend:cudaMallocAsync is not meaningful. (For backend:native, snapshot returns a \
             detailed summary of all blocks tracked by the allocator, but the cudaMallocAsync backend does not track \
             individual blocks.)"
                .into(),
        ))
    }

    fn attach_out_of_memory_observer(&self, _observer: OomObserver) -> Result<(), AllocatorError> {
        unsupported_call("attachOutOfMemoryObserver")
    }
}

/// Reports an event to memtrack's recorder, unless the recorder's driver hook already does so.
fn report(action: Action, device: DeviceId, stream: StreamId, address: u64, size: u64) {
    #[cfg(feature = "cuda")]
    if memtrack_cuda::hook_is_in_place() {
        return;
    }
    recorder::report(action, device, stream, address, size);
}

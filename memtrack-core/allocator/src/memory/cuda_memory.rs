//! A CUDA device accessed through the driver: allocations for segments, mapped pages for expandable segments, and
//! events for memory that other streams use. As in PyTorch and cudarc, all calls use the device's primary context,
//! regardless of which context is current on the calling thread.
#![allow(unsafe_code)]

use crate::memory::cuda_context::{
    Context, call_error, check, current_memory_info, device_count, in_relaxed_capture_mode,
    is_invalid_stream, with_context,
};
use crate::memory::{DeviceError, DeviceMemory};
use cudarc::driver::CudaStream;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};
use memtrack_cuda::{GpuError, gpu_processes};
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::{DeviceProcess, MemoryInfo};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The driver functions called below, in addition to those for statistics.
const REQUIRED_FUNCTIONS: &[&str] = &[
    "cuCtxSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuThreadExchangeStreamCaptureMode",
    "cuMemAddressReserve",
    "cuMemAddressFree",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
];

/// The highest handle that stands for a default stream; the others are 0 and 1.
const LAST_DEFAULT_STREAM: u64 = 2;

/// The memory of one CUDA device. Dropping it frees any memory that is still allocated.
#[derive(Debug)]
pub struct CudaMemory {
    context: Context,
    resources: Mutex<Resources>,
    /// Streams that must not be destroyed yet, by handle.
    streams: Mutex<HashMap<u64, Arc<CudaStream>>>,
}

/// The driver resources that a [`CudaMemory`] has allocated and must release when it is dropped.
#[derive(Debug, Default)]
struct Resources {
    /// The addresses of the segments. The map's values are unused.
    segments: HashMap<u64, ()>,
    /// The sizes of reserved address ranges, by address.
    ranges: HashMap<u64, u64>,
    /// The size and handle of each mapped page, by address.
    pages: HashMap<u64, (u64, u64)>,
}

/// A driver event.
#[derive(Debug)]
pub struct CudaEvent {
    handle: usize,
    context: usize,
}

impl CudaMemory {
    /// Opens the memory of the device that has this ordinal in this process. Initialises the driver, and the device's
    /// primary context if necessary.
    ///
    /// # Errors
    /// Fails when there is no such device or no driver, or the driver is too old or fails.
    pub fn new(ordinal: u16) -> Result<Self, GpuError> {
        Ok(Self {
            context: Context::of(ordinal, REQUIRED_FUNCTIONS)?,
            resources: Mutex::default(),
            streams: Mutex::default(),
        })
    }

    /// Opens the memory of every device that this process may use, in order of their ordinals.
    ///
    /// # Errors
    /// The same as for [`Self::new`].
    pub fn all() -> Result<Vec<Self>, GpuError> {
        (0..device_count(REQUIRED_FUNCTIONS)?).map(Self::new).collect()
    }

    fn lock_resources(&self) -> MutexGuard<'_, Resources> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_streams(&self) -> MutexGuard<'_, HashMap<u64, Arc<CudaStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a stream is retained or does not need to be, because default streams are never destroyed.
    pub(crate) fn retains_stream(&self, stream: &CudaStream) -> bool {
        let handle = stream.cu_stream() as u64;
        handle <= LAST_DEFAULT_STREAM || self.lock_streams().contains_key(&handle)
    }

    /// Retains a stream, so that it is not destroyed before [`Self::release_stream`] is called.
    pub(crate) fn retain_stream(&self, stream: &Arc<CudaStream>) {
        self.lock_streams().insert(stream.cu_stream() as u64, Arc::clone(stream));
    }

    /// Returns the retained streams that have no other references.
    pub(crate) fn unused_streams(&self) -> Vec<StreamId> {
        let streams = self.lock_streams();
        let unused = streams.iter().filter(|(_, stream)| Arc::strong_count(stream) == 1);
        unused.map(|(&handle, _)| StreamId(handle)).collect()
    }

    /// Releases a retained stream, which destroys it unless other references exist.
    pub(crate) fn release_stream(&self, stream: StreamId) {
        let ended = self.lock_streams().remove(&stream.0);
        drop(ended);
    }

    /// Returns whether all work on a stream is done.
    pub(crate) fn is_stream_done(&self, stream: StreamId) -> bool {
        let query = || {
            // SAFETY: the stream is retained.
            check("cuStreamQuery", unsafe { sys::cuStreamQuery(stream.0 as sys::CUstream) })
        };
        self.with_context(query).is_ok()
    }

    /// Waits for all work in the device's primary context.
    fn wait_for_all(&self) -> Result<(), DeviceError> {
        // SAFETY: the callers made the context current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    fn with_context<R>(&self, action: impl FnOnce() -> Result<R, DeviceError>) -> Result<R, DeviceError> {
        with_context(self.context.handle, || in_relaxed_capture_mode(action))
    }

    /// Maps one page of device memory at an address.
    fn map_page(&self, address: u64, page: u64) -> Result<(), DeviceError> {
        // SAFETY: all fields are integers, pointers, or enumerations that have a value of 0.
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = self.context.location();
        let mut handle = 0;
        // SAFETY: the out-parameter is a local variable, and the properties are initialised.
        check("cuMemCreate", unsafe {
            sys::cuMemCreate(&raw mut handle, page as usize, &raw const properties, 0)
        })?;
        // SAFETY: the range was reserved and nothing is mapped there; the handle was created above with the page's
        // size.
        let mapped = check("cuMemMap", unsafe { sys::cuMemMap(address, page as usize, 0, handle, 0) });
        let result = mapped.and_then(|()| {
            let mut access: sys::CUmemAccessDesc =
                // SAFETY: all fields are integers, or enumerations that have a value of 0.
                unsafe { std::mem::zeroed() };
            access.location = self.context.location();
            access.flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            // SAFETY: the page was mapped above.
            let code = unsafe { sys::cuMemSetAccess(address, page as usize, &raw const access, 1) };
            check("cuMemSetAccess", code).inspect_err(|_| {
                // SAFETY: the page was mapped above with this size.
                let _ = unsafe { sys::cuMemUnmap(address, page as usize) };
            })
        });
        match result {
            Ok(()) => {
                self.lock_resources().pages.insert(address, (page, handle));
                Ok(())
            }
            Err(error) => {
                // SAFETY: the handle is not mapped.
                let _ = unsafe { sys::cuMemRelease(handle) };
                Err(error)
            }
        }
    }

    /// Unmaps the pages in a range. Continues after a failure and returns the first error.
    fn unmap_pages(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        let mut result = Ok(());
        for at in (address..address + size).step_by(page as usize) {
            let Some((page, handle)) = self.lock_resources().pages.remove(&at) else { continue };
            // SAFETY: the page was mapped by `map_page` with this handle, and the caller guarantees that it is unused.
            let (unmapped, released) =
                unsafe { (sys::cuMemUnmap(at, page as usize), sys::cuMemRelease(handle)) };
            result = result.and(check("cuMemUnmap", unmapped)).and(check("cuMemRelease", released));
        }
        result
    }
}

impl DeviceMemory for CudaMemory {
    type Event = CudaEvent;

    fn allocate(&self, size: u64) -> Result<u64, DeviceError> {
        self.with_context(|| {
            let mut address = 0;
            // SAFETY: the out-parameter is a local variable.
            check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, size as usize) })?;
            self.lock_resources().segments.insert(address, ());
            Ok(address)
        })
    }

    fn release(&self, address: u64) -> Result<(), DeviceError> {
        if self.lock_resources().segments.remove(&address).is_none() {
            return Err(DeviceError::Failed(format!("no segment begins at {address:#x}")));
        }
        // SAFETY: the driver allocated the segment, which has not been freed yet.
        self.with_context(|| check("cuMemFree", unsafe { sys::cuMemFree_v2(address) }))
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        self.with_context(current_memory_info)
    }

    fn record_event(&self, stream: StreamId) -> Result<CudaEvent, DeviceError> {
        self.with_context(|| {
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
            let handle =
                result::event::create(flags).map_err(|error| call_error("cuEventCreate", error.0))?;
            let event = CudaEvent { handle: handle as usize, context: self.context.handle };
            // SAFETY: the event was created above; the client guarantees that the stream belongs to this device.
            let recorded = unsafe { sys::cuEventRecord(handle, stream.0 as sys::CUstream) };
            if is_invalid_stream(recorded) {
                // Work queued on a destroyed stream continues, so wait for the whole device. The event was not
                // recorded, and the driver reports such an event as done.
                return self.wait_for_all().map(|()| event);
            }
            check("cuEventRecord", recorded).map(|()| event)
        })
    }

    fn is_done(&self, event: &CudaEvent) -> Result<bool, DeviceError> {
        // SAFETY: the event is alive.
        in_relaxed_capture_mode(|| match unsafe { sys::cuEventQuery(event.handle as sys::CUevent) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        })
    }

    fn wait(&self, event: &CudaEvent) -> Result<(), DeviceError> {
        in_relaxed_capture_mode(|| {
            // SAFETY: the event is alive.
            let code = unsafe { sys::cuEventSynchronize(event.handle as sys::CUevent) };
            check("cuEventSynchronize", code)
        })
    }

    fn wait_for_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.with_context(|| {
            // SAFETY: the client guarantees that the stream belongs to this device.
            let waited = unsafe { sys::cuStreamSynchronize(stream.0 as sys::CUstream) };
            // Work queued on a destroyed stream continues, so wait for the whole device in that case.
            if is_invalid_stream(waited) { self.wait_for_all() } else { check("cuStreamSynchronize", waited) }
        })
    }

    fn reserve(&self, size: u64) -> Result<u64, DeviceError> {
        self.with_context(|| {
            let mut address = 0;
            // SAFETY: the out-parameter is a local variable.
            let code = unsafe { sys::cuMemAddressReserve(&raw mut address, size as usize, 0, 0, 0) };
            check("cuMemAddressReserve", code)?;
            self.lock_resources().ranges.insert(address, size);
            Ok(address)
        })
    }

    fn map(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.with_context(|| {
            for at in (address..address + size).step_by(page as usize) {
                if let Err(error) = self.map_page(at, page) {
                    // Map either the whole range or nothing. Only the first failure is reported.
                    let _ = self.unmap_pages(address, at - address, page);
                    return Err(error);
                }
            }
            Ok(())
        })
    }

    fn unmap(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.with_context(|| self.unmap_pages(address, size, page))
    }

    fn unreserve(&self, address: u64, size: u64) -> Result<(), DeviceError> {
        self.lock_resources().ranges.remove(&address);
        self.with_context(|| {
            // SAFETY: the range was reserved with this size, and its pages have been unmapped.
            check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(address, size as usize) })
        })
    }

    fn segments_are_recorded(&self) -> bool {
        #[cfg(feature = "cuda")]
        return memtrack_cuda::hook_is_in_place();
        #[cfg(not(feature = "cuda"))]
        false
    }

    fn list_gpu_processes(&self, _device: DeviceId) -> Result<String, DeviceError> {
        memtrack_cuda::list_gpu_processes(self.context.ordinal.into())
            .map_err(|error| DeviceError::Failed(error.to_string()))
    }

    fn processes(&self) -> Vec<DeviceProcess> {
        gpu_processes(self.context.ordinal.into()).unwrap_or_default()
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let resources = std::mem::take(&mut *self.lock_resources());
        // Failures cannot be reported here, and the driver may already be unloaded at the end of the process.
        let _ = self.with_context(|| {
            // SAFETY: this object allocated all of these resources and has not released them, and no other code can
            // still refer to them.
            unsafe {
                for address in resources.segments.into_keys() {
                    let _ = sys::cuMemFree_v2(address);
                }
                if !resources.pages.is_empty() {
                    // Unlike `cuMemFree`, unmapping does not wait for queued work.
                    let _ = sys::cuCtxSynchronize();
                }
                for (address, (page, handle)) in resources.pages {
                    let _ = sys::cuMemUnmap(address, page as usize);
                    let _ = sys::cuMemRelease(handle);
                }
                for (address, size) in resources.ranges {
                    let _ = sys::cuMemAddressFree(address, size as usize);
                }
            }
            Ok(())
        });
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        let _ = with_context(self.context, || {
            // SAFETY: `record_event` created the event. If the event is not done yet, the driver keeps the parts of it
            // that it still needs.
            check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.handle as sys::CUevent) })
        });
    }
}

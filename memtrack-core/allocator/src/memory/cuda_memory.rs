//! A CUDA device through the driver: plain allocations for segments, mapped pages for expandable ones, events for
//! memory that other streams use. Everything happens in the device's primary context, as in PyTorch and cudarc,
//! with any context of the calling thread.
#![allow(unsafe_code)]

use crate::memory::cuda_context::{Context, check, device_count, failed, is_no_stream, relaxed, within};
use crate::memory::device_memory::{DeviceError, DeviceMemory};
use cudarc::driver::CudaStream;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};
use memtrack_cuda::{GpuError, gpu_processes};
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::{DeviceProcess, MemoryInfo};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The driver functions called below, in addition to those that statistics need.
const NEEDED: &[&str] = &[
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

/// The highest handle of a default stream.
const LAST_DEFAULT_STREAM: u64 = 2;

/// The memory of one CUDA device. Memory that is still allocated is freed when it is dropped.
#[derive(Debug)]
pub struct CudaMemory {
    context: Context,
    held: Mutex<Held>,
    /// Streams that must not end yet, by handle.
    streams: Mutex<HashMap<u64, Arc<CudaStream>>>,
}

/// The resources that have to be released.
#[derive(Debug, Default)]
struct Held {
    /// Segments by address; the value is unused.
    segments: HashMap<u64, ()>,
    /// Ranges by address, with their sizes.
    ranges: HashMap<u64, u64>,
    /// Mapped pages by address: size and handle.
    pages: HashMap<u64, (u64, u64)>,
}

/// An event of the driver.
#[derive(Debug)]
pub struct CudaEvent {
    handle: usize,
    context: usize,
}

impl CudaMemory {
    /// Opens the memory of the device with that number in this process. Starts the driver, and a context if
    /// there is none.
    ///
    /// # Errors
    /// Fails when there is no driver, it is too old or fails, or there is no such device.
    pub fn new(ordinal: u16) -> Result<Self, GpuError> {
        Ok(Self { context: Context::of(ordinal, NEEDED)?, held: Mutex::default(), streams: Mutex::default() })
    }

    /// Opens the memory of every device that this process may use, in order.
    ///
    /// # Errors
    /// Fails as [`Self::new`] does.
    pub fn all() -> Result<Vec<Self>, GpuError> {
        (0..device_count(NEEDED)?).map(Self::new).collect()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Arc<CudaStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a stream is kept, or need not be: streams without a handle of their own never end.
    pub(crate) fn keeps(&self, stream: &CudaStream) -> bool {
        let handle = stream.cu_stream() as u64;
        handle <= LAST_DEFAULT_STREAM || self.streams().contains_key(&handle)
    }

    /// Keeps a stream.
    pub(crate) fn keep(&self, stream: &Arc<CudaStream>) {
        self.streams().insert(stream.cu_stream() as u64, Arc::clone(stream));
    }

    /// Returns the streams that are kept and have no other references.
    pub(crate) fn unused_streams(&self) -> Vec<StreamId> {
        let streams = self.streams();
        let unused = streams.iter().filter(|(_, stream)| Arc::strong_count(stream) == 1);
        unused.map(|(&handle, _)| StreamId(handle)).collect()
    }

    /// Releases a stream, which ends it unless there are other references.
    pub(crate) fn let_go(&self, stream: StreamId) {
        let ended = self.streams().remove(&stream.0);
        drop(ended);
    }

    /// Returns whether all work of a stream is done.
    pub(crate) fn is_stream_done(&self, stream: StreamId) -> bool {
        let query = || {
            // SAFETY: the stream is kept.
            check("cuStreamQuery", unsafe { sys::cuStreamQuery(stream.0 as sys::CUstream) })
        };
        self.within(query).is_ok()
    }

    /// Waits for all work of the device in the context.
    fn wait_for_all(&self) -> Result<(), DeviceError> {
        // SAFETY: called where the context is current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    fn within<R>(&self, action: impl FnOnce() -> Result<R, DeviceError>) -> Result<R, DeviceError> {
        within(self.context.handle, || relaxed(action))
    }

    /// Maps one page at an address.
    fn map_page(&self, address: u64, page: u64) -> Result<(), DeviceError> {
        // SAFETY: all parts are integers or enumerations that have 0, or a pointer.
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = self.context.location();
        let mut handle = 0;
        // SAFETY: the out-parameter is ours, and the properties are filled in.
        check("cuMemCreate", unsafe {
            sys::cuMemCreate(&raw mut handle, page as usize, &raw const properties, 0)
        })?;
        // SAFETY: the range was reserved and nothing is mapped there; the handle is fresh and of that size.
        let mapped = check("cuMemMap", unsafe { sys::cuMemMap(address, page as usize, 0, handle, 0) });
        let result = mapped.and_then(|()| {
            let mut access: sys::CUmemAccessDesc =
                // SAFETY: all parts are integers or enumerations that have 0.
                unsafe { std::mem::zeroed() };
            access.location = self.context.location();
            access.flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            // SAFETY: the page was mapped above.
            let code = unsafe { sys::cuMemSetAccess(address, page as usize, &raw const access, 1) };
            check("cuMemSetAccess", code).inspect_err(|_| {
                // SAFETY: it is not mapped any longer than this.
                let _ = unsafe { sys::cuMemUnmap(address, page as usize) };
            })
        });
        match result {
            Ok(()) => {
                self.held().pages.insert(address, (page, handle));
                Ok(())
            }
            Err(error) => {
                // SAFETY: nothing is mapped by it.
                let _ = unsafe { sys::cuMemRelease(handle) };
                Err(error)
            }
        }
    }

    /// Unmaps the pages of a range; all are tried, the first failure is returned.
    fn unmap_pages(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        let mut result = Ok(());
        for at in (address..address + size).step_by(page as usize) {
            let Some((page, handle)) = self.held().pages.remove(&at) else { continue };
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
        self.within(|| {
            let mut address = 0;
            // SAFETY: the out-parameter is ours.
            check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, size as usize) })?;
            self.held().segments.insert(address, ());
            Ok(address)
        })
    }

    fn release(&self, address: u64) -> Result<(), DeviceError> {
        if self.held().segments.remove(&address).is_none() {
            return Err(DeviceError::Failed(format!("no segment begins at {address:#x}")));
        }
        // SAFETY: the driver allocated it, and it was not freed yet.
        self.within(|| check("cuMemFree", unsafe { sys::cuMemFree_v2(address) }))
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        self.within(|| {
            let (free, total) = result::mem_get_info().map_err(|error| failed("cuMemGetInfo", error.0))?;
            Ok(MemoryInfo::new(free as u64, total as u64))
        })
    }

    fn record_event(&self, stream: StreamId) -> Result<CudaEvent, DeviceError> {
        self.within(|| {
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
            let handle = result::event::create(flags).map_err(|error| failed("cuEventCreate", error.0))?;
            let event = CudaEvent { handle: handle as usize, context: self.context.handle };
            // SAFETY: the event is fresh; the client promises that its stream is one of this device.
            let recorded = unsafe { sys::cuEventRecord(handle, stream.0 as sys::CUstream) };
            if is_no_stream(recorded) {
                // Work queued on a stream that was destroyed continues: the event, which is done at once,
                // comes after it.
                return self.wait_for_all().map(|()| event);
            }
            check("cuEventRecord", recorded).map(|()| event)
        })
    }

    fn is_done(&self, event: &CudaEvent) -> Result<bool, DeviceError> {
        // SAFETY: the event is alive.
        relaxed(|| match unsafe { sys::cuEventQuery(event.handle as sys::CUevent) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        })
    }

    fn wait(&self, event: &CudaEvent) -> Result<(), DeviceError> {
        relaxed(|| {
            // SAFETY: the event is alive.
            let code = unsafe { sys::cuEventSynchronize(event.handle as sys::CUevent) };
            check("cuEventSynchronize", code)
        })
    }

    fn wait_for_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.within(|| {
            // SAFETY: the client promises that its stream is one of this device.
            let waited = unsafe { sys::cuStreamSynchronize(stream.0 as sys::CUstream) };
            // Work queued on a stream that was destroyed continues.
            if is_no_stream(waited) { self.wait_for_all() } else { check("cuStreamSynchronize", waited) }
        })
    }

    fn reserve(&self, size: u64) -> Result<u64, DeviceError> {
        self.within(|| {
            let mut address = 0;
            // SAFETY: the out-parameter is ours.
            let code = unsafe { sys::cuMemAddressReserve(&raw mut address, size as usize, 0, 0, 0) };
            check("cuMemAddressReserve", code)?;
            self.held().ranges.insert(address, size);
            Ok(address)
        })
    }

    fn map(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.within(|| {
            for at in (address..address + size).step_by(page as usize) {
                if let Err(error) = self.map_page(at, page) {
                    // All of it is mapped or nothing; only the first failure is reported.
                    let _ = self.unmap_pages(address, at - address, page);
                    return Err(error);
                }
            }
            Ok(())
        })
    }

    fn unmap(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.within(|| self.unmap_pages(address, size, page))
    }

    fn unreserve(&self, address: u64, size: u64) -> Result<(), DeviceError> {
        self.held().ranges.remove(&address);
        // SAFETY: the range was reserved with this size, and its pages were unmapped.
        self.within(|| check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(address, size as usize) }))
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
        let held = std::mem::take(&mut *self.held());
        // A failure cannot be reported here, and at the end of the process the driver may be gone.
        let _ = self.within(|| {
            // SAFETY: all of it was taken by this object and not released; no other code can refer to it any
            // more.
            unsafe {
                for address in held.segments.into_keys() {
                    let _ = sys::cuMemFree_v2(address);
                }
                if !held.pages.is_empty() {
                    // Unlike a free, unmapping does not wait for any work.
                    let _ = sys::cuCtxSynchronize();
                }
                for (address, (page, handle)) in held.pages {
                    let _ = sys::cuMemUnmap(address, page as usize);
                    let _ = sys::cuMemRelease(handle);
                }
                for (address, size) in held.ranges {
                    let _ = sys::cuMemAddressFree(address, size as usize);
                }
            }
            Ok(())
        });
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        let _ = within(self.context, || {
            // SAFETY: `record_event` made it. The driver keeps the parts that it needs of one that is not
            // complete yet.
            check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.handle as sys::CUevent) })
        });
    }
}

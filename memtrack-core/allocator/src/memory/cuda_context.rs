//! A device's primary context, and driver calls in it: the shared part of everything that allocates there.
//!
//! **Why the relaxed capture mode?** PyTorch makes its driver calls for memory and events in that mode too: in the
//! default mode they would break a capture of the calling thread.
#![allow(unsafe_code)]

use crate::memory::device_memory::DeviceError;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};
use memtrack_cuda::{GpuError, start_driver};
use std::ffi::c_int;
use std::ptr;

/// A device's primary context, which this keeps alive.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) ordinal: u16,
    pub(crate) device: sys::CUdevice,
    /// The driver's handle, which any thread may use.
    pub(crate) handle: usize,
}

pub(crate) fn failed(call: &str, code: CUresult) -> DeviceError {
    match code {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory,
        code => DeviceError::Failed(format!("the CUDA driver failed: {call} returned {code:?}")),
    }
}

pub(crate) fn check(call: &str, code: CUresult) -> Result<(), DeviceError> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failed(call, code)) }
}

/// Returns whether a call reports that its stream is invalid or destroyed. The driver need not detect this: a
/// stream must live for as long as memory belongs to it. This handles the cases that it does detect.
pub(crate) fn is_no_stream(code: CUresult) -> bool {
    code == CUresult::CUDA_ERROR_INVALID_HANDLE
}

/// Runs an action while a context is current.
pub(crate) fn within<R>(
    context: usize,
    action: impl FnOnce() -> Result<R, DeviceError>,
) -> Result<R, DeviceError> {
    // SAFETY: the context is kept alive by its `Context`, which outlives every use of the memory.
    check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(context as sys::CUcontext) })?;
    let result = action();
    let mut popped = ptr::null_mut();
    // SAFETY: removes the context that was pushed above.
    check("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) })?;
    result
}

/// Runs an action that the driver does not allow on a thread that captures a graph, unless the thread
/// declares that it is not a part of the capture. PyTorch's allocator declares this too.
pub(crate) fn relaxed<R>(action: impl FnOnce() -> Result<R, DeviceError>) -> Result<R, DeviceError> {
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the parameter is ours; it is the thread's former mode afterwards.
    check("cuThreadExchangeStreamCaptureMode", unsafe {
        sys::cuThreadExchangeStreamCaptureMode(&raw mut mode)
    })?;
    let result = action();
    // SAFETY: as above, the other way round.
    let restored = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    check("cuThreadExchangeStreamCaptureMode", restored).and(result)
}

impl Context {
    pub(crate) fn of(ordinal: u16, needed: &[&'static str]) -> Result<Self, GpuError> {
        start_driver(needed)?;
        let refused = |call| {
            move |error: result::DriverError| GpuError::Driver { call, code: format!("{:?}", error.0) }
        };
        let count = result::device::get_count().map_err(refused("cuDeviceGetCount"))?;
        if c_int::from(ordinal) >= count {
            return Err(GpuError::NoSuchDevice { device: ordinal.into(), count: count.unsigned_abs() });
        }
        let device = result::device::get(ordinal.into()).map_err(refused("cuDeviceGet"))?;
        // SAFETY: the handle is a device's; `drop` releases the context that is retained here.
        let handle = unsafe { result::primary_ctx::retain(device) };
        let handle = handle.map_err(refused("cuDevicePrimaryCtxRetain"))? as usize;
        Ok(Self { ordinal, device, handle })
    }

    /// Returns the location of this device's memory.
    pub(crate) fn location(&self) -> sys::CUmemLocation {
        // SAFETY: all parts are integers or enumerations that have 0.
        let mut location: sys::CUmemLocation = unsafe { std::mem::zeroed() };
        location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        // SAFETY: in every version the device's number is an `int` right behind the type, also where it is part of a
        // union, so that it has no name of its own.
        unsafe { (&raw mut location).cast::<c_int>().add(1).write(self.device) };
        location
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained by `of`, and not used from here on. At the end of the process the driver may be gone, which
        // it reports.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// Returns the number of devices that this process may use. Starts the driver, and looks up the functions
/// that will be called.
pub(crate) fn device_count(needed: &[&'static str]) -> Result<u16, GpuError> {
    start_driver(needed)?;
    let count = result::device::get_count()
        .map_err(|error| GpuError::Driver { call: "cuDeviceGetCount", code: format!("{:?}", error.0) })?;
    Ok(u16::try_from(count).unwrap_or(u16::MAX))
}

//! A device's primary context and driver calls made in it, for all code that allocates on the device.
//!
//! **Why the relaxed capture mode?** PyTorch uses it too. In the default mode, allocating memory or querying events
//! would invalidate a graph capture on the calling thread.
#![allow(unsafe_code)]

use crate::memory::DeviceError;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};
use memtrack_cuda::{GpuError, start_driver};
use memtrack_model::MemoryInfo;
use std::ffi::c_int;
use std::ptr;

/// A reference to a device's primary context that keeps the context alive.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) ordinal: u16,
    pub(crate) device: sys::CUdevice,
    /// The driver's handle, which any thread may use.
    pub(crate) handle: usize,
}

pub(crate) fn call_error(call: &str, code: CUresult) -> DeviceError {
    match code {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory,
        code => DeviceError::Failed(format!("the CUDA driver failed: {call} returned {code:?}")),
    }
}

pub(crate) fn check(call: &str, code: CUresult) -> Result<(), DeviceError> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(call_error(call, code)) }
}

/// Returns whether a call failed because its stream is invalid or was destroyed. The driver does not always detect
/// this, so a stream must live for as long as memory belongs to it.
pub(crate) fn is_invalid_stream(code: CUresult) -> bool {
    code == CUresult::CUDA_ERROR_INVALID_HANDLE
}

/// Returns the free and the total memory of the device whose context is current.
pub(crate) fn current_memory_info() -> Result<MemoryInfo, DeviceError> {
    let (free, total) = result::mem_get_info().map_err(|error| call_error("cuMemGetInfo", error.0))?;
    Ok(MemoryInfo::new(free as u64, total as u64))
}

/// Runs an action while a context is current.
pub(crate) fn with_context<R>(
    context: usize,
    action: impl FnOnce() -> Result<R, DeviceError>,
) -> Result<R, DeviceError> {
    // SAFETY: a `Context` keeps the driver's context alive and outlives every use of the memory.
    check("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(context as sys::CUcontext) })?;
    let result = action();
    let mut popped = ptr::null_mut();
    // SAFETY: pops the context that was pushed above.
    check("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) })?;
    result
}

/// Runs an action in the relaxed capture mode, as PyTorch's allocator does. In the other modes, the driver does not
/// allow the action on a thread that is capturing a graph.
pub(crate) fn in_relaxed_capture_mode<R>(
    action: impl FnOnce() -> Result<R, DeviceError>,
) -> Result<R, DeviceError> {
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the parameter is a local variable; the call replaces its value with the thread's previous mode.
    check("cuThreadExchangeStreamCaptureMode", unsafe {
        sys::cuThreadExchangeStreamCaptureMode(&raw mut mode)
    })?;
    let result = action();
    // SAFETY: restores the previous mode.
    let restored = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    check("cuThreadExchangeStreamCaptureMode", restored).and(result)
}

impl Context {
    pub(crate) fn of(ordinal: u16, needed: &[&'static str]) -> Result<Self, GpuError> {
        start_driver(needed)?;
        let driver_error = |call| {
            move |error: result::DriverError| GpuError::Driver { call, code: format!("{:?}", error.0) }
        };
        let count = result::device::get_count().map_err(driver_error("cuDeviceGetCount"))?;
        if c_int::from(ordinal) >= count {
            return Err(GpuError::NoSuchDevice { device: ordinal.into(), count: count.unsigned_abs() });
        }
        let device = result::device::get(ordinal.into()).map_err(driver_error("cuDeviceGet"))?;
        // SAFETY: the driver returned the device's handle; `drop` releases the context that is retained here.
        let handle = unsafe { result::primary_ctx::retain(device) };
        let handle = handle.map_err(driver_error("cuDevicePrimaryCtxRetain"))? as usize;
        Ok(Self { ordinal, device, handle })
    }

    /// Returns the location of this device's memory.
    pub(crate) fn location(&self) -> sys::CUmemLocation {
        // SAFETY: all fields are integers, or enumerations that have a value of 0.
        let mut location: sys::CUmemLocation = unsafe { std::mem::zeroed() };
        location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        // SAFETY: in every version of CUDA, the device's number is an `int` right after the type. In some versions it
        // is in a union, where it cannot be accessed by name.
        unsafe { (&raw mut location).cast::<c_int>().add(1).write(self.device) };
        location
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `of` retained the context, and it is not used after this point. At the end of the process the driver
        // may already be unloaded; the resulting error is ignored.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// Returns the number of devices that this process may use. Initialises the driver and looks up the `needed` functions.
pub(crate) fn device_count(needed: &[&'static str]) -> Result<u16, GpuError> {
    start_driver(needed)?;
    let count = result::device::get_count()
        .map_err(|error| GpuError::Driver { call: "cuDeviceGetCount", code: format!("{:?}", error.0) })?;
    Ok(u16::try_from(count).unwrap_or(u16::MAX))
}

//! Driver queries through cudarc. cudarc panics if the library or a function is missing, even when it only formats an
//! error. Every function that it will call is therefore looked up first, and errors are formatted by the name of their
//! code.
#![allow(unsafe_code)]

use super::error::GpuError;
use super::memory::PoolStatistics;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUmemPool_attribute};
use libloading::Library;
use std::error::Error;
use std::ffi::c_int;
use std::ptr;
use std::sync::OnceLock;

/// The functions called below. The newest are the pool functions, from CUDA 11.2, and `cuDeviceGetUuid_v2`, from CUDA
/// 11.4.
const REQUIRED: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid",
    "cuDeviceGetUuid_v2",
    "cuDeviceGetMemPool",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuMemGetInfo_v2",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",
];

/// One of the driver's devices.
#[derive(Clone, Copy)]
pub(super) struct Device {
    number: u32,
    handle: sys::CUdevice,
}

/// Loads and initializes the driver, once per process.
fn start() -> Result<(), GpuError> {
    static STARTED: OnceLock<Result<(), GpuError>> = OnceLock::new();
    STARTED.get_or_init(|| open().and_then(|()| result::init().map_err(call_failed("cuInit")))).clone()
}

/// Initializes the driver and checks that it has the `required` functions in addition to those used in this file.
///
/// # Errors
/// Fails when there is no driver, or when the driver does not start or lacks a function.
pub fn start_driver(required: &[&'static str]) -> Result<(), GpuError> {
    start()?;
    // The libraries are already open, so this only opens them again.
    check_functions(required, &libraries()?)
}

/// Opens the driver's libraries permanently and checks that they have every required function.
fn open() -> Result<(), GpuError> {
    let libraries = libraries()?;
    check_functions(REQUIRED, &libraries)?;
    // Keep the libraries open, so that cudarc gets the same ones when it opens them.
    std::mem::forget(libraries);
    Ok(())
}

/// Returns the libraries that cudarc may call. cudarc prefers `libcuda.so`, unless the program is linked to
/// `libcuda.so.1`. The two are usually the same, but `libcuda.so` may be a stub from the toolkit.
fn libraries() -> Result<Vec<Library>, GpuError> {
    // SAFETY: every CUDA program runs the driver's start-up code.
    let open = |name| unsafe { Library::new(name) };
    // The loader's message is the error's source.
    let message = |error: libloading::Error| error.source().map_or(error.to_string(), ToString::to_string);
    match (open("libcuda.so.1"), open("libcuda.so")) {
        (Err(error), Err(_)) => Err(GpuError::NoDriver(message(error))),
        (first, second) => Ok(first.into_iter().chain(second).collect()),
    }
}

fn check_functions(required: &[&'static str], libraries: &[Library]) -> Result<(), GpuError> {
    for &missing in required {
        // SAFETY: the function is only looked up, never called through this type.
        let lacks =
            |library: &Library| unsafe { library.get::<unsafe extern "C" fn()>(missing.as_bytes()) }.is_err();
        if libraries.iter().any(lacks) {
            return Err(GpuError::OldDriver { missing });
        }
    }
    Ok(())
}

/// Converts a cudarc error, without the text that cudarc would query from the driver.
fn call_failed(call: &'static str) -> impl Fn(DriverError) -> GpuError {
    move |error| GpuError::Driver { call, code: format!("{:?}", error.0) }
}

/// Returns the newest CUDA version that the driver supports, such as `12.9`.
pub(super) fn version() -> Result<String, GpuError> {
    start()?;
    let mut version: c_int = 0;
    // SAFETY: the out-parameter is a local variable.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(call_failed("cuDriverGetVersion"))?;
    let version = version.unsigned_abs();
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}

/// Returns the number of devices that this process may use.
pub(super) fn count() -> Result<u32, GpuError> {
    start()?;
    result::device::get_count().map(c_int::unsigned_abs).map_err(call_failed("cuDeviceGetCount"))
}

impl Device {
    /// Returns the device with this number.
    ///
    /// # Errors
    /// Fails when there is no driver or no such device.
    pub(super) fn new(number: u32) -> Result<Self, GpuError> {
        let count = count()?;
        if number >= count {
            return Err(GpuError::NoSuchDevice { device: number, count });
        }
        let handle = result::device::get(number as c_int).map_err(call_failed("cuDeviceGet"))?;
        Ok(Self { number, handle })
    }

    pub(super) fn name(self) -> Result<String, GpuError> {
        result::device::get_name(self.handle).map_err(call_failed("cuDeviceGetName"))
    }

    /// Returns the UUID in the form that NVML uses.
    pub(super) fn uuid(self) -> Result<String, GpuError> {
        let uuid = result::device::get_uuid(self.handle).map_err(call_failed("cuDeviceGetUuid"))?;
        let hex: Vec<String> = uuid.bytes.iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
        let part = |range: std::ops::Range<usize>| hex[range].concat();
        Ok(format!("GPU-{}-{}-{}-{}-{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..16)))
    }

    /// Returns the free and total bytes. The query needs a context. It uses the thread's current context if that
    /// belongs to this device, and otherwise the primary context, which is created for the query if the process has
    /// none.
    pub(super) fn memory(self) -> Result<(u64, u64), GpuError> {
        if self.is_current() {
            return current_memory();
        }
        // SAFETY: the handle refers to a device; the context is released below.
        let context = unsafe { result::primary_ctx::retain(self.handle) };
        let context = context.map_err(call_failed("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: the context was just retained.
        let pushed =
            unsafe { sys::cuCtxPushCurrent_v2(context) }.result().map_err(call_failed("cuCtxPushCurrent"));
        let memory = pushed.and_then(|()| {
            let memory = current_memory();
            let mut popped = ptr::null_mut();
            // SAFETY: pops the context that was pushed above.
            let done = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) }.result();
            done.map_err(call_failed("cuCtxPopCurrent")).and(memory)
        });
        // SAFETY: the context was retained above, and it is not used after this point.
        let released = unsafe { result::primary_ctx::release(self.handle) };
        released.map_err(call_failed("cuDevicePrimaryCtxRelease")).and(memory)
    }

    fn is_current(self) -> bool {
        let mut device: sys::CUdevice = 0;
        let has_context = result::ctx::get_current().is_ok_and(|context| context.is_some());
        // SAFETY: the out-parameter is a local variable.
        has_context
            && unsafe { sys::cuCtxGetDevice(&raw mut device) }.result().is_ok()
            && device == self.handle
    }

    fn pool(self) -> Result<sys::CUmemoryPool, GpuError> {
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        // SAFETY: the handle refers to a device.
        let supported = unsafe { result::device::get_attribute(self.handle, attribute) };
        if supported.map_err(call_failed("cuDeviceGetAttribute"))? == 0 {
            return Err(GpuError::NoPools { device: self.number });
        }
        // SAFETY: the handle refers to a device.
        unsafe { result::device::get_mem_pool(self.handle) }.map_err(call_failed("cuDeviceGetMemPool"))
    }

    /// Returns the statistics of the pool that `cuMemAllocAsync` uses.
    pub(super) fn pool_statistics(self) -> Result<PoolStatistics, GpuError> {
        use CUmemPool_attribute as Attribute;
        let pool = self.pool()?;
        let get = |attribute| {
            let mut bytes = 0u64;
            // SAFETY: the pool belongs to the device, and these attributes are 64-bit numbers.
            let done = unsafe { result::mem_pool::get_attribute(pool, attribute, (&raw mut bytes).cast()) };
            done.map(|()| bytes).map_err(call_failed("cuMemPoolGetAttribute"))
        };
        Ok(PoolStatistics {
            reserved_bytes: get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_peak_bytes: get(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
            used_bytes: get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            used_peak_bytes: get(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            release_threshold_bytes: get(Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)?,
        })
    }

    /// Resets both peaks of the pool that `cuMemAllocAsync` uses. Writing 0 to a peak makes the driver set it to the
    /// current value.
    pub(super) fn reset_pool_highs(self) -> Result<(), GpuError> {
        let pool = self.pool()?;
        let highs = [
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
            CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        ];
        highs.into_iter().try_for_each(|attribute| {
            let mut zero = 0u64;
            // SAFETY: the pool belongs to the device, and these attributes are 64-bit numbers.
            let done = unsafe { result::mem_pool::set_attribute(pool, attribute, (&raw mut zero).cast()) };
            done.map_err(call_failed("cuMemPoolSetAttribute"))
        })
    }
}

/// Returns the free and total bytes of the device whose context is current.
fn current_memory() -> Result<(u64, u64), GpuError> {
    let (free, total) = result::mem_get_info().map_err(call_failed("cuMemGetInfo"))?;
    Ok((free as u64, total as u64))
}

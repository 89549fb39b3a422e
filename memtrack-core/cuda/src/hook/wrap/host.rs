//! Pinned host memory: allocated by the driver, or allocated by the program and registered with the driver.

use super::{CuResult, SUCCESS, allocate, free_by};
use crate::hook::watch::{AllocationDevice, HookedCall, Kind};
use memtrack_recorder::recorder::driver_memory::Origin;
use std::ffi::c_void;

const PINNED: Kind = Kind { origin: Origin::Context, stream: 0, device: AllocationDevice::Pinned };

/// `cuMemHostAlloc`.
pub(in crate::hook) unsafe fn alloc(
    real: unsafe extern "C" fn(*mut u64, usize, u32) -> CuResult,
    out: *mut u64,
    size: usize,
    flags: u32,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    unsafe { allocate(real as *const c_void, out, size as u64, PINNED, || real(out, size, flags)) }
}

/// `cuMemAllocHost_v2`.
pub(in crate::hook) unsafe fn alloc_plain(
    real: unsafe extern "C" fn(*mut u64, usize) -> CuResult,
    out: *mut u64,
    size: usize,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    unsafe { allocate(real as *const c_void, out, size as u64, PINNED, || real(out, size)) }
}

/// `cuMemHostRegister_v2`.
pub(in crate::hook) unsafe fn register(
    real: unsafe extern "C" fn(u64, usize, u32) -> CuResult,
    address: u64,
    size: usize,
    flags: u32,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    let call = || unsafe { real(address, size, flags) };
    let Some(watch) = HookedCall::enter(real as *const c_void) else { return call() };
    let result = call();
    watch.record_alloc_result(result, PINNED, if result == SUCCESS { address } else { 0 }, size as u64);
    result
}

/// `cuMemFreeHost` and `cuMemHostUnregister`.
pub(in crate::hook) unsafe fn free(real: unsafe extern "C" fn(u64) -> CuResult, address: u64) -> CuResult {
    // SAFETY: the caller's argument, passed on.
    free_by(real as *const c_void, address, || unsafe { real(address) })
}

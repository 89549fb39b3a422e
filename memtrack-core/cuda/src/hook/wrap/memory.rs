//! Plain and managed device memory. Managed memory counts as memory of the device whose context allocated it,
//! wherever its pages are.

use super::{CuResult, SUCCESS, allocate, free_by};
use crate::hook::watch::{AllocationDevice, HookedCall, Kind};
use memtrack_recorder::recorder::driver_memory::Origin;
use std::ffi::c_void;

pub(super) const PLAIN: Kind = Kind { origin: Origin::Context, stream: 0, device: AllocationDevice::Current };

/// `cuMemAlloc_v2`.
pub(in crate::hook) unsafe fn alloc(
    real: unsafe extern "C" fn(*mut u64, usize) -> CuResult,
    out: *mut u64,
    size: usize,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    unsafe { allocate(real as *const c_void, out, size as u64, PLAIN, || real(out, size)) }
}

/// `cuMemAllocManaged`.
pub(in crate::hook) unsafe fn alloc_managed(
    real: unsafe extern "C" fn(*mut u64, usize, u32) -> CuResult,
    out: *mut u64,
    size: usize,
    flags: u32,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    unsafe { allocate(real as *const c_void, out, size as u64, PLAIN, || real(out, size, flags)) }
}

/// `cuMemAllocPitch_v2`: the size is known only after the driver has chosen the pitch.
pub(in crate::hook) unsafe fn alloc_pitch(
    real: unsafe extern "C" fn(*mut u64, *mut usize, usize, usize, u32) -> CuResult,
    out: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    let call = || unsafe { real(out, pitch, width, height, element) };
    let Some(watch) = HookedCall::enter(real as *const c_void) else { return call() };
    let result = call();
    let (mut address, mut row) = (0, width);
    if result == SUCCESS && !out.is_null() && !pitch.is_null() {
        // SAFETY: the driver has just written both.
        (address, row) = unsafe { (out.read(), pitch.read()) };
    }
    watch.record_alloc_result(result, PLAIN, address, (row as u64).saturating_mul(height as u64));
    result
}

/// `cuMemFree_v2`, and the functions that destroy arrays.
pub(in crate::hook) unsafe fn free(real: unsafe extern "C" fn(u64) -> CuResult, address: u64) -> CuResult {
    // SAFETY: the caller's argument, passed on.
    free_by(real as *const c_void, address, || unsafe { real(address) })
}

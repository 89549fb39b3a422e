//! Requests for memory and frees. Managed memory counts as memory of the device whose context allocated it, wherever its
//! pages are. Pinned host memory is allocated by the driver, or allocated by the program and registered with the driver.

use super::{Call, CuResult, SUCCESS};
use crate::hook::watch::{AllocationDevice, Kind};
use memtrack_recorder::recorder::driver_memory::Origin;

/// Plain and managed device memory, and arrays.
pub(in crate::hook) const PLAIN: Kind =
    Kind { origin: Origin::Context, stream: 0, device: AllocationDevice::Current };
/// Pinned host memory.
pub(in crate::hook) const PINNED: Kind =
    Kind { origin: Origin::Context, stream: 0, device: AllocationDevice::Pinned };

/// Requests memory from the driver, which writes an address to `out` on success.
///
/// # Safety
/// `out` must be the pointer that the caller passed to the driver. The driver accepts only a pointer that it can write
/// to.
#[inline(always)]
pub(in crate::hook) unsafe fn allocate(
    call: Call<impl FnOnce() -> CuResult>,
    out: *const u64,
    size_bytes: u64,
    kind: Kind,
) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    let result = call.run();
    // SAFETY: the driver has just written it.
    let address = if result == SUCCESS && !out.is_null() { unsafe { out.read() } } else { 0 };
    watch.record_alloc_result(result, kind, address, size_bytes);
    result
}

/// `cuMemAllocPitch_v2`: the size is known only after the driver has chosen the pitch.
///
/// # Safety
/// As for [`allocate`], for both pointers.
pub(in crate::hook) unsafe fn allocate_pitch(
    call: Call<impl FnOnce() -> CuResult>,
    out: *mut u64,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    let result = call.run();
    let (mut address, mut row) = (0, width);
    if result == SUCCESS && !out.is_null() && !pitch.is_null() {
        // SAFETY: the driver has just written both.
        (address, row) = unsafe { (out.read(), pitch.read()) };
    }
    watch.record_alloc_result(result, PLAIN, address, (row as u64).saturating_mul(height as u64));
    result
}

/// `cuMemHostRegister_v2`.
pub(in crate::hook) fn register(
    call: Call<impl FnOnce() -> CuResult>,
    address: u64,
    size: usize,
) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    let result = call.run();
    watch.record_alloc_result(result, PINNED, if result == SUCCESS { address } else { 0 }, size as u64);
    result
}

/// Frees memory of any kind, or an array by its handle. A free that is ordered by a stream counts as completed when it is
/// requested, because the driver does not report when the stream reaches it.
#[inline(always)]
pub(in crate::hook) fn free(call: Call<impl FnOnce() -> CuResult>, address: u64) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    let freed = watch.before_free(address);
    let result = call.run();
    watch.record_free_result(result, freed);
    result
}

//! The wrappers, one file per family: each calls the driver's function once, with the caller's own arguments, and
//! reports the result to the recorder. No out-parameter is read before the driver has reported success.

pub(super) mod arrays;
pub(super) mod contexts;
pub(super) mod host;
pub(super) mod ipc;
pub(super) mod memory;
pub(super) mod physical;
pub(super) mod pools;
pub(super) mod procedures;

use super::watch::{HookedCall, Kind};
pub(super) use arrays::{ArrayDescriptor, ArrayDescriptor3d};
use std::ffi::c_void;

/// `CUresult`.
pub(super) type CuResult = i32;
/// `CUDA_SUCCESS`.
pub(super) const SUCCESS: CuResult = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: CuResult = 2;

/// Requests memory from the driver with `call`, which writes an address to `out` on success.
///
/// # Safety
/// `out` must be the pointer that the caller passed to the driver. The driver accepts only a pointer that it can write
/// to.
#[inline(always)]
unsafe fn allocate(
    real: *const c_void,
    out: *const u64,
    size: u64,
    kind: Kind,
    call: impl FnOnce() -> CuResult,
) -> CuResult {
    let Some(watch) = HookedCall::enter(real) else { return call() };
    let result = call();
    // SAFETY: the driver has just written it.
    let address = if result == SUCCESS && !out.is_null() { unsafe { out.read() } } else { 0 };
    watch.record_alloc_result(result, kind, address, size);
    result
}

/// Frees memory with `call`.
#[inline(always)]
fn free_by(real: *const c_void, address: u64, call: impl FnOnce() -> CuResult) -> CuResult {
    let Some(watch) = HookedCall::enter(real) else { return call() };
    let freed = watch.before_free(address);
    let result = call();
    watch.record_free_result(result, freed);
    result
}

/// `CUmemLocation`: a device, or a part of the host's memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::hook) struct Location {
    kind: i32,
    id: i32,
}

impl Location {
    /// Returns the device; `None` for memory of the host.
    fn device(self) -> Option<u16> {
        /// `CU_MEM_LOCATION_TYPE_DEVICE`.
        const DEVICE: i32 = 1;
        u16::try_from(self.id).ok().filter(|_| self.kind == DEVICE)
    }
}

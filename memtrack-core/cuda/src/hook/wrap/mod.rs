//! The wrappers, one file per family: each calls the driver's function once, with the caller's own arguments, and
//! reports the result to the recorder. No out-parameter is read before the driver has reported success. A wrapper
//! receives the call ([`Call`]) and those of its arguments that it needs, by `table`.

pub(super) mod arrays;
pub(super) mod contexts;
pub(super) mod ipc;
pub(super) mod memory;
pub(super) mod physical;
pub(super) mod pools;
pub(super) mod procedures;

use super::watch::{AllocationDevice, HookedCall};
use std::ffi::c_void;

/// `CUresult`.
pub(super) type CuResult = i32;
/// `CUDA_SUCCESS`.
pub(super) const SUCCESS: CuResult = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: CuResult = 2;

/// A call of the program to a function of the driver.
pub(super) struct Call<F> {
    /// The driver's function.
    pub(super) real: *const c_void,
    /// Calls it with the program's arguments.
    pub(super) run: F,
}

impl<F: FnOnce() -> CuResult> Call<F> {
    /// Begins to watch the call, as [`HookedCall::enter`] does.
    #[inline(always)]
    fn watch(&self) -> Option<HookedCall> {
        HookedCall::enter(self.real)
    }

    /// Calls the driver.
    #[inline(always)]
    fn run(self) -> CuResult {
        (self.run)()
    }
}

/// The beginning of `CUmemAllocationProp`, and of `CUmemPoolProps`.
#[repr(C)]
pub(super) struct Properties {
    allocation_type: i32,
    handle_types: i32,
    /// `CUmemLocation`: the kind and number of a device, or a part of the host's memory.
    location: [i32; 2],
}

impl Properties {
    fn device(&self) -> AllocationDevice {
        /// `CU_MEM_LOCATION_TYPE_DEVICE`.
        const DEVICE: i32 = 1;
        let [kind, id] = self.location;
        let device = u16::try_from(id).ok().filter(|_| kind == DEVICE);
        device.map_or(AllocationDevice::Pinned, AllocationDevice::Device)
    }
}

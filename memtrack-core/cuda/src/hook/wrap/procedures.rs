//! `cuGetProcAddress`, which cudart and newer programs use to find the driver's functions. The function found is
//! replaced with its wrapper.

use super::{Call, CuResult, SUCCESS};
use crate::hook::table;
use std::ffi::{CStr, c_char, c_void};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// `cuGetProcAddress` and `cuGetProcAddress_v2`: writes the wrapper of the function that the driver found to `out`.
///
/// # Safety
/// The pointers must be those that the caller passed to the driver.
pub(in crate::hook) unsafe fn get(
    call: Call<impl FnOnce() -> CuResult>,
    name: *const c_char,
    out: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> CuResult {
    let result = call.run();
    // cudart also requests the empty name; it is unknown what the driver writes to `out` in that case.
    if result != SUCCESS || name.is_null() || out.is_null() {
        return result;
    }
    // SAFETY: the driver has read the name and, if it knows the name, written the address.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes();
        let Some(hooked) = table::find_by_base(name, version, flags & PER_THREAD != 0) else { return result };
        let found = out.read();
        if !found.is_null() {
            out.write(table::wrap(hooked, found).cast_mut());
        }
    }
    result
}

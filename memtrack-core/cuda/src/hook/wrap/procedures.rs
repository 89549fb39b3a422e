//! `cuGetProcAddress`, which cudart and newer programs use to find the driver's functions. The function found is
//! replaced with its wrapper.

use super::{CuResult, SUCCESS};
use crate::hook::table;
use std::ffi::{CStr, c_char, c_void};

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// `cuGetProcAddress`.
pub(in crate::hook) unsafe fn get(
    real: unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64) -> CuResult,
    name: *const c_char,
    out: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { real(name, out, version, flags) };
    // SAFETY: the driver's arguments and result.
    unsafe { replace(result, name, out, version, flags) };
    result
}

/// `cuGetProcAddress_v2`.
pub(in crate::hook) unsafe fn get_v2(
    real: unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut i32) -> CuResult,
    name: *const c_char,
    out: *mut *mut c_void,
    version: i32,
    flags: u64,
    status: *mut i32,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { real(name, out, version, flags, status) };
    // SAFETY: the driver's arguments and result.
    unsafe { replace(result, name, out, version, flags) };
    result
}

/// Writes the wrapper of the function that the driver found to `out`.
///
/// # Safety
/// `result` must be the driver's result, and the other arguments those that the driver has just received.
unsafe fn replace(result: CuResult, name: *const c_char, out: *mut *mut c_void, version: i32, flags: u64) {
    // cudart also requests the empty name; it is unknown what the driver writes to `out` in that case.
    if result != SUCCESS || name.is_null() || out.is_null() {
        return;
    }
    // SAFETY: the driver has read the name and, if it knows the name, written the address.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes();
        let Some(hooked) = table::find_by_base(name, version, flags & PER_THREAD != 0) else { return };
        let found = out.read();
        if !found.is_null() {
            out.write(table::wrap(hooked, found).cast_mut());
        }
    }
}

//! Initialization, versions, errors, and addresses of functions.

use std::ffi::{CStr, c_char, c_void};

use crate::call::{entries, put};
use crate::machine;
use crate::proc_address::{chosen, named};
use crate::settings::settings;
use crate::status::{CuResult, Status};

entries! {
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        machine::start()
    }

    fn cuDriverGetVersion(version: *mut i32) {
        put(version, settings().driver_version)
    }

    fn cuGetErrorName(error: i32, name: *mut *const c_char) {
        describe(error, name, |(name, _)| name)
    }

    fn cuGetErrorString(error: i32, text: *mut *const c_char) {
        describe(error, text, |(_, text)| text)
    }

    fn cuGetProcAddress(symbol: *const c_char, address: *mut *const c_void, version: i32, flags: u64) {
        find(symbol, address, version, flags, std::ptr::null_mut())
    }

    fn cuGetProcAddress_v2(
        symbol: *const c_char, address: *mut *const c_void, version: i32, flags: u64, status: *mut i32,
    ) {
        find(symbol, address, version, flags, status)
    }

    fn cuProfilerStart() {
        Ok(())
    }

    fn cuProfilerStop() {
        Ok(())
    }
}

fn describe(
    error: i32,
    place: *mut *const c_char,
    choose: impl FnOnce((&'static CStr, &'static CStr)) -> &'static CStr,
) -> CuResult {
    match Status(error).known() {
        Some(known) => put(place, choose(known).as_ptr()),
        None => {
            put(place, std::ptr::null())?;
            Err(Status::INVALID_VALUE)
        }
    }
}

/// The result of a look-up: found, unknown, or too new for the driver.
const FOUND: i32 = 0;
const UNKNOWN: i32 = 1;
const TOO_NEW: i32 = 2;

fn find(
    symbol: *const c_char,
    address: *mut *const c_void,
    version: i32,
    flags: u64,
    status: *mut i32,
) -> CuResult {
    if symbol.is_null() || address.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the caller promises a null-terminated string.
    let name = unsafe { CStr::from_ptr(symbol) }.to_str().map_err(|_| Status::INVALID_VALUE)?;
    let put_status = |result| if status.is_null() { Ok(()) } else { put(status, result) };
    let found = if version > settings().driver_version { None } else { chosen(name, version, flags) };
    match found {
        Some(function) => {
            put_status(FOUND)?;
            put(address, function.0.cast())
        }
        None => {
            put(address, std::ptr::null())?;
            let exists = chosen(name, i32::MAX, flags).or_else(|| named(name)).is_some();
            put_status(if exists { TOO_NEW } else { UNKNOWN })?;
            // `cuGetProcAddress_v2` reports a missing function in `status`, the first version only in its result.
            if status.is_null() { Err(Status::NOT_FOUND) } else { Ok(()) }
        }
    }
}

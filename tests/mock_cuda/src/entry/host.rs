//! Page-locked host memory.

use std::ffi::c_void;

use crate::call::{entries, put};
use crate::context::Context;
use crate::counters::Kind;
use crate::machine::machine;
use crate::status::{CuResult, Status};

entries! {
    fn cuMemHostAlloc(place: *mut *mut c_void, bytes: usize, flags: u32) {
        let _ = flags;
        allocate(place, bytes)
    }

    fn cuMemAllocHost_v2(place: *mut *mut c_void, bytes: usize) {
        allocate(place, bytes)
    }

    fn cuMemFreeHost(place: *mut c_void) {
        machine()?.free(place.addr() as u64, &[Kind::Pinned])
    }

    fn cuMemHostRegister_v2(place: *mut c_void, bytes: usize, flags: u32) {
        let _ = flags;
        let context = Context::current()?;
        if place.is_null() || bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        machine()?.host().register(place.addr() as u64, bytes as u64, context.number)
    }

    fn cuMemHostUnregister(place: *mut c_void) {
        let freed = machine()?.host().free(place.addr() as u64, &[Kind::Registered]);
        freed.map_err(|_| Status::HOST_MEMORY_NOT_REGISTERED)
    }

    fn cuMemHostGetDevicePointer_v2(address: *mut u64, place: *mut c_void, flags: u32) {
        let _ = flags;
        let host = place.addr() as u64;
        machine()?.host().block_around(host).ok_or(Status::INVALID_VALUE)?;
        put(address, host)
    }

    fn cuMemHostGetFlags(flags: *mut u32, place: *mut c_void) {
        machine()?.host().block_around(place.addr() as u64).ok_or(Status::INVALID_VALUE)?;
        put(flags, 0)
    }
}

fn allocate(place: *mut *mut c_void, bytes: usize) -> CuResult {
    let context = Context::current()?;
    put(place, std::ptr::null_mut())?;
    let address = machine()?.allocate_host(context, bytes as u64)?;
    put(place, std::ptr::with_exposed_provenance_mut(address as usize))
}

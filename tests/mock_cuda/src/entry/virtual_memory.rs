//! Physical memory and address ranges as separate objects, as PyTorch's expandable segments use them.

use std::ffi::c_void;

use crate::call::{entries, get, put};
use crate::handle::{self, Tag};
use crate::machine::machine;
use crate::physical;
use crate::status::{CuResult, Status};
use crate::work;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: i32,
    handle_types: i32,
    location_type: i32,
    location: i32,
    metadata: u64,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Access {
    _location_type: i32,
    location: i32,
    flags: i32,
}

entries! {
    fn cuMemGetAllocationGranularity(granularity: *mut usize, properties: *const c_void, option: i32) {
        let _ = (properties, option);
        machine()?;
        put(granularity, physical::GRANULARITY as usize)
    }

    fn cuMemAddressReserve(address: *mut u64, bytes: usize, alignment: usize, wanted: u64, flags: u64) {
        // The requested address is only a hint.
        let _ = (wanted, flags);
        machine()?;
        put(address, 0)?;
        put(address, physical::reserve(bytes as u64, alignment as u64)?)
    }

    fn cuMemAddressFree(address: u64, bytes: usize) {
        physical::unreserve(address, bytes as u64)
    }

    fn cuMemCreate(memory: *mut u64, bytes: usize, properties: *const c_void, flags: u64) {
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let device = get(properties.cast::<Properties>())?.location;
        put(memory, 0)?;
        put_handle(memory, physical::create(device, bytes as u64)?)
    }

    fn cuMemRelease(memory: u64) {
        physical::release(number(memory)?)
    }

    fn cuMemRetainAllocationHandle(memory: *mut u64, address: u64) {
        put(memory, 0)?;
        put_handle(memory, physical::retain(address)?)
    }

    fn cuMemExportToShareableHandle(shared: *mut c_void, memory: u64, kind: i32, flags: u64) {
        // Only file descriptors are supported; the mock uses the memory's number instead of a real descriptor.
        if (kind, flags) != (1, 0) {
            return Err(Status::NOT_SUPPORTED);
        }
        put(shared.cast(), number(memory)? as i32)
    }

    fn cuMemImportFromShareableHandle(memory: *mut u64, shared: *mut c_void, kind: i32) {
        if kind != 1 {
            return Err(Status::NOT_SUPPORTED);
        }
        put_handle(memory, physical::import(shared.addr() as u32)?)
    }

    fn cuMemGetAllocationPropertiesFromHandle(properties: *mut c_void, memory: u64) {
        let device = physical::device_of(number(memory)?)?;
        let known = Properties {
            kind: 1,
            handle_types: 0,
            location_type: 1,
            location: device as i32,
            metadata: 0,
            flags: [0; 8],
        };
        put(properties.cast(), known)
    }

    fn cuMemMap(address: u64, bytes: usize, offset: usize, memory: u64, flags: u64) {
        if offset != 0 || flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        physical::map_piece(address, bytes as u64, number(memory)?)
    }

    fn cuMemUnmap(address: u64, bytes: usize) {
        work::check_free("cuMemUnmap", address, bytes as u64);
        physical::unmap_range(address, bytes as u64)
    }

    fn cuMemSetAccess(address: u64, bytes: usize, access: *const c_void, count: usize) {
        // All devices share the host's memory, so the widest access applies to all of them.
        let access = access.cast::<Access>();
        let mut widest = 0;
        for index in 0..count {
            let one = get(access.wrapping_add(index))?;
            machine()?.index(one.location)?;
            widest = widest.max(one.flags);
        }
        physical::set_access(address, bytes as u64, widest)
    }
}

fn number(memory: u64) -> CuResult<u32> {
    let handle = std::ptr::without_provenance_mut(memory as usize);
    handle::read(Tag::Physical, handle).map(|(_, number)| number).map_err(|_| Status::INVALID_VALUE)
}

fn put_handle(memory: *mut u64, (device, number): (u16, u32)) -> CuResult {
    put(memory, handle::make(Tag::Physical, device, number).addr() as u64)
}

//! Memory pools. A pool's handle contains its device and its number on that device.

use std::ffi::c_void;

use super::memory::has_pools;
use crate::call::{entries, get, put};
use crate::context::Context;
use crate::counters::Kind;
use crate::device::Device;
use crate::handle::{self, Tag};
use crate::machine::machine;
use crate::pool::Attribute;
use crate::settings::settings;
use crate::status::{CuResult, Status};

/// The first fields of `CUmemPoolProps`: the types and the location.
#[repr(C)]
#[derive(Clone, Copy)]
struct PoolProperties {
    _allocation_type: i32,
    _handle_types: i32,
    _location_type: i32,
    location: i32,
}

entries! {
    fn cuDeviceGetDefaultMemPool(pool: *mut *mut c_void, device: i32) {
        has_pools()?;
        machine()?.index(device)?;
        put(pool, handle::make(Tag::Pool, device as u16, 0))
    }

    fn cuDeviceGetMemPool(pool: *mut *mut c_void, device: i32) {
        has_pools()?;
        let current = machine()?.device(device)?.current_pool;
        put(pool, handle::make(Tag::Pool, device as u16, current as u32))
    }

    fn cuDeviceSetMemPool(device: i32, pool: *mut c_void) {
        has_pools()?;
        let (owner, number) = handle::read(Tag::Pool, pool)?;
        if i32::from(owner) != device {
            return Err(Status::INVALID_VALUE);
        }
        with(pool, |state| state.current_pool = number as usize)
    }

    fn cuMemPoolCreate(pool: *mut *mut c_void, properties: *const c_void) {
        has_pools()?;
        let device = get(properties.cast::<PoolProperties>())?.location;
        let number = machine()?.device(device)?.create_pool();
        put(pool, handle::make(Tag::Pool, device as u16, number))
    }

    fn cuMemPoolDestroy(pool: *mut c_void) {
        let (_, number) = handle::read(Tag::Pool, pool)?;
        if number == 0 {
            // The default pool cannot be destroyed.
            return Err(Status::INVALID_VALUE);
        }
        with(pool, |device| {
            // The pool's blocks stay live, as in the driver; unused memory is released.
            let chosen = &mut device.pools[number as usize];
            chosen.alive = false;
            chosen.trim(0, settings().pool_chunk);
            if device.current_pool == number as usize {
                device.current_pool = 0;
            }
        })
    }

    fn cuMemPoolTrimTo(pool: *mut c_void, keep: usize) {
        let (_, number) = handle::read(Tag::Pool, pool)?;
        with(pool, |device| device.pools[number as usize].trim(keep as u64, settings().pool_chunk))
    }

    fn cuMemPoolGetAttribute(pool: *mut c_void, attribute: i32, value: *mut c_void) {
        let (_, number) = handle::read(Tag::Pool, pool)?;
        let found = with(pool, |device| device.pools[number as usize].attribute(attribute))?;
        match found.ok_or(Status::INVALID_VALUE)? {
            Attribute::Switch(switch) => put(value.cast(), switch),
            Attribute::Bytes(bytes) => put(value.cast(), bytes),
        }
    }

    fn cuMemPoolSetAttribute(pool: *mut c_void, attribute: i32, value: *mut c_void) {
        let (_, number) = handle::read(Tag::Pool, pool)?;
        let value = if attribute < 4 { get(value.cast::<i32>())? as u64 } else { get(value.cast::<u64>())? };
        let done = with(pool, |device| device.pools[number as usize].set_attribute(attribute, value))?;
        if done { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }

    fn cuMemPoolSetAccess(pool: *mut c_void, access: *const c_void, count: usize) {
        let _ = (access, count);
        with(pool, |_| ())
    }

    fn cuMemAllocFromPoolAsync as cuMemAllocFromPoolAsync_ptsz(
        address: *mut u64, bytes: usize, pool: *mut c_void, stream: *mut c_void,
    ) {
        has_pools()?;
        let context = Context::of_stream(stream)?;
        let (device, number) = handle::read(Tag::Pool, pool)?;
        put(address, 0)?;
        let pool = Some(number as usize);
        put(address, machine()?.allocate_pooled(usize::from(device), pool, context.number, bytes as u64)?)
    }

    fn cuMemPoolExportPointer(data: *mut [u64; 8], address: u64) {
        has_pools()?;
        let area = machine()?.area_of(address).ok_or(Status::INVALID_VALUE)?;
        let (start, block) = machine()?.area(area).block_around(address).ok_or(Status::INVALID_VALUE)?;
        if block.kind != Kind::Pooled {
            return Err(Status::INVALID_VALUE);
        }
        put(data, [start, block.bytes, 0, 0, 0, 0, 0, 0])
    }
}

/// Calls `act` with the device of a pool that has not been destroyed.
fn with<T>(pool: *mut c_void, act: impl FnOnce(&mut Device) -> T) -> CuResult<T> {
    let (device, number) = handle::read(Tag::Pool, pool)?;
    let mut device = machine()?.device(i32::from(device))?;
    if !device.pools.get(number as usize).is_some_and(|pool| pool.alive) {
        return Err(Status::INVALID_HANDLE);
    }
    Ok(act(&mut device))
}

//! Device memory: linear, pitched, managed, from the current pool; and the free and total bytes.

use std::ffi::c_void;

use crate::call::{entries, put};
use crate::context::Context;
use crate::counters::Kind;
use crate::machine::machine;
use crate::settings::settings;
use crate::status::{CuResult, Status};
use crate::work;

/// Rows of pitched memory begin at multiples of this.
const PITCH: u64 = 512;

entries! {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        put(address, 0)?;
        let context = Context::current()?;
        put(address, machine()?.allocate(context, Kind::Linear, bytes as u64)?)
    }

    fn cuMemAllocPitch_v2(address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32) {
        let _ = element;
        let context = Context::current()?;
        put(address, 0)?;
        let row = (width as u64).checked_next_multiple_of(PITCH).ok_or(Status::OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height as u64).ok_or(Status::OUT_OF_MEMORY)?;
        put(pitch, row as usize)?;
        if settings().nested {
            return nested_alloc(address, bytes as usize);
        }
        put(address, machine()?.allocate(context, Kind::Pitched, bytes)?)
    }

    fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32) {
        let _ = flags;
        let context = Context::current()?;
        put(address, 0)?;
        put(address, machine()?.allocate(context, Kind::Managed, bytes as u64)?)
    }

    fn cuMemFree_v2(address: u64) {
        if address == 0 {
            return Ok(());
        }
        // Like the driver, waits for all work that may use the memory.
        if let Ok(context) = Context::current() {
            work::context_done(context.number);
        }
        machine()?.free(address, &[Kind::Linear, Kind::Pitched, Kind::Managed, Kind::Pooled])
    }

    fn cuMemAllocAsync as cuMemAllocAsync_ptsz(address: *mut u64, bytes: usize, stream: *mut c_void) {
        has_pools()?;
        let context = Context::of_stream(stream)?;
        put(address, 0)?;
        put(address, machine()?.allocate_pooled(context.device, None, context.number, bytes as u64)?)
    }

    fn cuMemFreeAsync as cuMemFreeAsync_ptsz(address: u64, stream: *mut c_void) {
        has_pools()?;
        let context = Context::of_stream(stream)?;
        if address == 0 {
            return Ok(());
        }
        let area = machine()?.area_of(address).ok_or(Status::INVALID_VALUE)?;
        if let Some((start, block)) = machine()?.area(area).block_around(address) {
            work::check_free_on("cuMemFreeAsync", start, block.bytes, context, stream);
        }
        machine()?.free(address, &[Kind::Pooled])
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let (available, all) = machine()?.area(Context::current()?.device).memory();
        put(free, available as usize)?;
        put(total, all as usize)
    }

    fn cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64) {
        let area = machine()?.area_of(address).ok_or(Status::NOT_FOUND)?;
        let (start, block) = machine()?.area(area).block_around(address).ok_or(Status::NOT_FOUND)?;
        if !base.is_null() {
            put(base, start)?;
        }
        if size.is_null() { Ok(()) } else { put(size, block.bytes as usize) }
    }

    fn cuMemAdvise(address: u64, bytes: usize, advice: i32, device: i32) {
        let _ = (address, bytes, advice, device);
        Context::current().map(drop)
    }

    fn cuMemAdvise_v2(address: u64, bytes: usize, advice: i32, location: u64) {
        let _ = (address, bytes, advice, location);
        Context::current().map(drop)
    }

    fn cuMemPrefetchAsync as cuMemPrefetchAsync_ptsz(address: u64, bytes: usize, device: i32, stream: *mut c_void) {
        let _ = (address, bytes, device);
        Context::of_stream(stream).map(drop)
    }

    fn cuMemPrefetchAsync_v2 as cuMemPrefetchAsync_v2_ptsz(
        address: u64, bytes: usize, location: u64, flags: u32, stream: *mut c_void,
    ) {
        let _ = (address, bytes, location, flags);
        Context::of_stream(stream).map(drop)
    }
}

/// Allocates memory with the `cuMemAlloc_v2` that `dlsym` finds.
///
/// # Errors
/// The error of that call; `UNKNOWN` if `dlsym` finds the mock's own function, because no hook would see the call.
fn nested_alloc(address: *mut u64, bytes: usize) -> CuResult {
    type Alloc = extern "C" fn(*mut u64, usize) -> i32;
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cuMemAlloc_v2".as_ptr()) };
    if found.is_null() || std::ptr::eq(found.cast_const().cast(), cuMemAlloc_v2 as *const ()) {
        return Err(Status::UNKNOWN);
    }
    // SAFETY: every function of this name has this signature.
    let alloc = unsafe { std::mem::transmute::<*mut c_void, Alloc>(found) };
    match alloc(address, bytes) {
        0 => Ok(()),
        code => Err(Status(code)),
    }
}

/// Checks that the devices have pools.
///
/// # Errors
/// `NOT_SUPPORTED` if they have none.
pub(super) fn has_pools() -> CuResult {
    if settings().pools { Ok(()) } else { Err(Status::NOT_SUPPORTED) }
}

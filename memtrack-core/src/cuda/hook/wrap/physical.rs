//! Physical memory that the program maps itself, as PyTorch's expandable segments do. It counts while it is mapped:
//! each mapping is a `segment_map`, and reserving addresses takes no memory.

use super::{CuResult, Location, SUCCESS};
use crate::cuda::hook::watch::{Kind, Watch, Where};
use crate::recorder::ForkCell;
use crate::recorder::driver::Origin;
use crate::reentry;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// Where the memory behind a handle lies; what was imported from another process is not here.
static HANDLES: ForkCell<Mutex<HashMap<u64, Where>>> = ForkCell::new(Mutex::default);

/// The beginning of `CUmemAllocationProp`.
#[repr(C)]
pub(in crate::cuda::hook) struct Properties {
    allocation_type: i32,
    handle_types: i32,
    location: Location,
}

fn kind(device: Where) -> Kind {
    Kind { origin: Origin::Mapping, stream: 0, device }
}

/// `cuMemCreate`.
pub(in crate::cuda::hook) unsafe fn create(
    real: unsafe extern "C" fn(*mut u64, usize, *const Properties, u64) -> CuResult,
    out: *mut u64,
    size: usize,
    properties: *const Properties,
    flags: u64,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    let call = || unsafe { real(out, size, properties, flags) };
    let Some(watch) = Watch::enter(real as *const c_void) else { return call() };
    let result = call();
    if out.is_null() || properties.is_null() {
        return result;
    }
    // SAFETY: the driver has just read it.
    let place = unsafe { (*properties).location }.device().map_or(Where::Pinned, Where::Device);
    if result == SUCCESS {
        // SAFETY: the driver has just written it.
        let handle = unsafe { out.read() };
        with_handles(|handles| handles.insert(handle, place));
    } else {
        watch.allocated(result, kind(place), 0, size as u64);
    }
    result
}

/// `cuMemRelease`: what is mapped stays mapped.
pub(in crate::cuda::hook) unsafe fn release(
    real: unsafe extern "C" fn(u64) -> CuResult,
    handle: u64,
) -> CuResult {
    let before = with_handles(|handles| handles.remove(&handle));
    // SAFETY: the caller's argument, passed on.
    let result = unsafe { real(handle) };
    if let Some(place) = before.filter(|_| result != SUCCESS) {
        with_handles(|handles| handles.insert(handle, place));
    }
    result
}

/// `cuMemMap`.
pub(in crate::cuda::hook) unsafe fn map(
    real: unsafe extern "C" fn(u64, usize, usize, u64, u64) -> CuResult,
    address: u64,
    size: usize,
    offset: usize,
    handle: u64,
    flags: u64,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    let call = || unsafe { real(address, size, offset, handle, flags) };
    let Some(watch) = Watch::enter(real as *const c_void) else { return call() };
    let place = with_handles(|handles| handles.get(&handle).copied()).unwrap_or(Where::Current);
    let result = call();
    watch.allocated(result, kind(place), if result == SUCCESS { address } else { 0 }, size as u64);
    result
}

/// `cuMemUnmap`: may end several mappings at once.
pub(in crate::cuda::hook) unsafe fn unmap(
    real: unsafe extern "C" fn(u64, usize) -> CuResult,
    address: u64,
    size: usize,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    let call = || unsafe { real(address, size) };
    let Some(watch) = Watch::enter(real as *const c_void) else { return call() };
    let freed = watch.unmap(address, size as u64);
    let result = call();
    watch.all_freed(result, freed);
    result
}

fn with_handles<R>(act: impl FnOnce(&mut HashMap<u64, Where>) -> R) -> R {
    let _inside = reentry::enter();
    act(&mut HANDLES.get().lock().unwrap_or_else(PoisonError::into_inner))
}

/// In the child of a fork: another thread may have held the lock.
pub(crate) fn reset_after_fork() {
    HANDLES.forget();
}

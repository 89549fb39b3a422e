//! Stream-ordered memory from the driver's pools. A free counts as completed when it is requested, because the driver
//! does not report when the stream reaches it.

use super::{CuResult, Location, SUCCESS, allocate, free_by};
use crate::hook::driver::Driver;
use crate::hook::watch::{AllocationDevice, Kind};
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::recorder::driver_memory::Origin;
use memtrack_recorder::reentry;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;

/// The devices of the pools that the program created; the default pools of the devices are not included.
static POOLS: ForkCell<Mutex<HashMap<u64, AllocationDevice>>> = ForkCell::new(Mutex::default);

/// Locked while the attributes of the program's pools are queried, and before a pool is destroyed, so that no pool is
/// destroyed during a query. Nothing else is done under this lock, because the driver is called while it is held.
static QUERYING: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

/// The beginning of `CUmemPoolProps`.
#[repr(C)]
pub(in crate::hook) struct Properties {
    allocation_type: i32,
    handle_types: i32,
    location: Location,
}

type AllocAsync = unsafe extern "C" fn(*mut u64, usize, u64) -> CuResult;
type AllocFromPool = unsafe extern "C" fn(*mut u64, usize, u64, u64) -> CuResult;

/// `cuMemAllocAsync`.
pub(in crate::hook) unsafe fn alloc(real: AllocAsync, out: *mut u64, size: usize, stream: u64) -> CuResult {
    let kind = Kind { origin: Origin::Pool, stream, device: AllocationDevice::StreamDevice };
    // SAFETY: the caller's arguments, passed on.
    unsafe { allocate(real as *const c_void, out, size as u64, kind, || real(out, size, stream)) }
}

/// `cuMemAllocAsync_ptsz`: stream 0 means the per-thread default stream.
pub(in crate::hook) unsafe fn alloc_per_thread(
    real: AllocAsync,
    out: *mut u64,
    size: usize,
    stream: u64,
) -> CuResult {
    let kind =
        Kind { origin: Origin::Pool, stream: per_thread(stream), device: AllocationDevice::StreamDevice };
    // SAFETY: the caller's arguments, passed on.
    unsafe { allocate(real as *const c_void, out, size as u64, kind, || real(out, size, stream)) }
}

/// `cuMemAllocFromPoolAsync`.
pub(in crate::hook) unsafe fn alloc_from(
    real: AllocFromPool,
    out: *mut u64,
    size: usize,
    pool: u64,
    stream: u64,
) -> CuResult {
    let kind = Kind { origin: Origin::Pool, stream, device: device_of(pool) };
    // SAFETY: the caller's arguments, passed on.
    unsafe { allocate(real as *const c_void, out, size as u64, kind, || real(out, size, pool, stream)) }
}

/// `cuMemAllocFromPoolAsync_ptsz`.
pub(in crate::hook) unsafe fn alloc_from_per_thread(
    real: AllocFromPool,
    out: *mut u64,
    size: usize,
    pool: u64,
    stream: u64,
) -> CuResult {
    let kind = Kind { origin: Origin::Pool, stream: per_thread(stream), device: device_of(pool) };
    // SAFETY: the caller's arguments, passed on.
    unsafe { allocate(real as *const c_void, out, size as u64, kind, || real(out, size, pool, stream)) }
}

/// `cuMemFreeAsync` and `cuMemFreeAsync_ptsz`.
pub(in crate::hook) unsafe fn free(
    real: unsafe extern "C" fn(u64, u64) -> CuResult,
    address: u64,
    stream: u64,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    free_by(real as *const c_void, address, || unsafe { real(address, stream) })
}

/// `cuMemPoolCreate`.
pub(in crate::hook) unsafe fn create(
    real: unsafe extern "C" fn(*mut u64, *const Properties) -> CuResult,
    out: *mut u64,
    properties: *const Properties,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { real(out, properties) };
    if result == SUCCESS && !out.is_null() && !properties.is_null() {
        // SAFETY: the driver has just read `properties` and written `out`.
        let (pool, location) = unsafe { (out.read(), (*properties).location) };
        let device = location.device().map_or(AllocationDevice::Pinned, AllocationDevice::Device);
        with_pools(|pools| pools.insert(pool, device));
    }
    result
}

/// `cuMemPoolDestroy`: allocations from the pool stay until they are freed.
pub(in crate::hook) unsafe fn destroy(real: unsafe extern "C" fn(u64) -> CuResult, pool: u64) -> CuResult {
    let before = {
        let _no_query = lock_queries();
        with_pools(|pools| pools.remove(&pool))
    };
    // SAFETY: the caller's argument, passed on.
    let result = unsafe { real(pool) };
    if let Some(device) = before.filter(|_| result != SUCCESS) {
        with_pools(|pools| pools.insert(pool, device));
    }
    result
}

/// Calls `visit` with each known pool of a device: its default and current pools, and those that the program created.
pub(in crate::hook) fn with_pools_of(driver: &Driver, device: u16, mut visit: impl FnMut(u64)) {
    let _inside = reentry::enter();
    let _no_destruction = lock_queries();
    let is_here = |place: &AllocationDevice| matches!(place, AllocationDevice::Device(of) if *of == device);
    let mut known: Vec<u64> =
        with_pools(|pools| pools.iter().filter(|(_, place)| is_here(place)).map(|(&pool, _)| pool).collect());
    known.extend(driver.pools_of(device));
    known.sort_unstable();
    known.dedup();
    known.into_iter().for_each(&mut visit);
}

/// Removes the pools of a device whose primary context was destroyed.
pub(in crate::hook) fn remove_pools_of(device: u16) {
    with_pools(|pools| {
        pools.retain(|_, place| !matches!(place, AllocationDevice::Device(of) if *of == device))
    });
}

fn lock_queries() -> MutexGuard<'static, ()> {
    let _inside = reentry::enter();
    QUERYING.get().lock().unwrap_or_else(PoisonError::into_inner)
}

fn device_of(pool: u64) -> AllocationDevice {
    with_pools(|pools| pools.get(&pool).copied()).unwrap_or(AllocationDevice::StreamDevice)
}

fn per_thread(stream: u64) -> u64 {
    if stream == 0 { PER_THREAD } else { stream }
}

fn with_pools<R>(act: impl FnOnce(&mut HashMap<u64, AllocationDevice>) -> R) -> R {
    let _inside = reentry::enter();
    act(&mut POOLS.get().lock().unwrap_or_else(PoisonError::into_inner))
}

//! The driver's pools, whose memory is ordered by streams.

use super::{Call, CuResult, Properties, SUCCESS};
use crate::hook::driver::Driver;
use crate::hook::watch::{AllocationDevice, Kind};
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::recorder::driver_memory::Origin;
use memtrack_recorder::reentry;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;

/// The devices of the pools that the program created; the default pools of the devices are not included.
static POOLS: ForkCell<Mutex<HashMap<u64, AllocationDevice>>> = ForkCell::new(Mutex::default);

/// Locked while the attributes of the program's pools are queried, and before a pool is destroyed, so that no pool is
/// destroyed during a query. Nothing else is done under this lock, because the driver is called while it is held.
static QUERYING: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

/// Returns the properties of an allocation from the current pool of a stream's device.
pub(in crate::hook) fn from_current(stream: u64) -> Kind {
    Kind { origin: Origin::Pool, stream, device: AllocationDevice::StreamDevice }
}

/// Returns the properties of an allocation from a pool.
pub(in crate::hook) fn from_pool(pool: u64, stream: u64) -> Kind {
    let device = with_pools(|pools| pools.get(&pool).copied());
    Kind { origin: Origin::Pool, stream, device: device.unwrap_or(AllocationDevice::StreamDevice) }
}

/// Returns the stream of a function whose stream 0 is the per-thread default stream.
pub(in crate::hook) fn per_thread(stream: u64) -> u64 {
    if stream == 0 { PER_THREAD } else { stream }
}

/// `cuMemPoolCreate`.
///
/// # Safety
/// The pointers must be those that the caller passed to the driver.
pub(in crate::hook) unsafe fn create(
    call: Call<impl FnOnce() -> CuResult>,
    out: *mut u64,
    properties: *const Properties,
) -> CuResult {
    let result = call.run();
    if result == SUCCESS && !out.is_null() && !properties.is_null() {
        // SAFETY: the driver has just read `properties` and written `out`.
        let (pool, device) = unsafe { (out.read(), (*properties).device()) };
        with_pools(|pools| pools.insert(pool, device));
    }
    result
}

/// `cuMemPoolDestroy`: allocations from the pool stay until they are freed.
pub(in crate::hook) fn destroy(call: Call<impl FnOnce() -> CuResult>, pool: u64) -> CuResult {
    let before = {
        let _no_query = lock_queries();
        with_pools(|pools| pools.remove(&pool))
    };
    let result = call.run();
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
    QUERYING.lock()
}

fn with_pools<R>(act: impl FnOnce(&mut HashMap<u64, AllocationDevice>) -> R) -> R {
    let _inside = reentry::enter();
    act(&mut POOLS.lock())
}

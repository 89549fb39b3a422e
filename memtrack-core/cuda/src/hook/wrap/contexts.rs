//! The functions that destroy contexts, and with them all of their memory.

use super::{Call, CuResult, SUCCESS, ipc, pools};
use memtrack_recorder::recorder::driver_memory::Teardown;
use std::sync::atomic::{AtomicU64, Ordering};

/// The primary contexts by device; 0 if unknown.
static PRIMARY: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

fn primary_of(device: i32) -> Option<&'static AtomicU64> {
    usize::try_from(device).ok().and_then(|device| PRIMARY.get(device))
}

fn teardown_of(device: i32) -> Teardown {
    let context =
        primary_of(device).map(|primary| primary.load(Ordering::Relaxed)).filter(|&known| known != 0);
    Teardown::Primary { device: u16::try_from(device).unwrap_or(u16::MAX), context }
}

/// `cuDevicePrimaryCtxRetain`: returns a device's primary context.
///
/// # Safety
/// `out` must be the pointer that the caller passed to the driver.
pub(in crate::hook) unsafe fn retain(
    call: Call<impl FnOnce() -> CuResult>,
    out: *mut u64,
    device: i32,
) -> CuResult {
    let result = call.run();
    if let Some(primary) = primary_of(device).filter(|_| result == SUCCESS && !out.is_null()) {
        // SAFETY: the driver has just written it.
        primary.store(unsafe { out.read() }, Ordering::Relaxed);
    }
    result
}

/// `cuDevicePrimaryCtxReset_v2`.
pub(in crate::hook) fn reset(call: Call<impl FnOnce() -> CuResult>, device: i32) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    watch.read_before_teardown();
    let freed = watch.before_teardown(teardown_of(device));
    let result = call.run();
    watch.record_free_results(result, freed);
    if result == SUCCESS {
        remove_handles_of(teardown_of(device));
    }
    result
}

/// `cuDevicePrimaryCtxRelease_v2`: other code usually still retains the context, so the wrapper checks afterwards
/// whether the context was destroyed. Its addresses cannot have been allocated again by then, because that would
/// require a new context.
pub(in crate::hook) fn release(call: Call<impl FnOnce() -> CuResult>, device: i32) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    watch.read_before_teardown();
    let result = call.run();
    if result == SUCCESS && !watch.driver.primary_context_is_alive(device) {
        let freed = watch.before_teardown(teardown_of(device));
        watch.record_free_results(result, freed);
        remove_handles_of(teardown_of(device));
    }
    result
}

/// Removes the handles that were destroyed with a context.
fn remove_handles_of(teardown: Teardown) {
    ipc::remove_allocations_of(teardown);
    if let Teardown::Primary { device, .. } = teardown {
        pools::remove_pools_of(device);
    }
}

/// `cuCtxDestroy_v2`.
pub(in crate::hook) fn destroy(call: Call<impl FnOnce() -> CuResult>, context: u64) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    watch.read_before_teardown();
    let freed = watch.before_teardown(Teardown::Context(context));
    let result = call.run();
    watch.record_free_results(result, freed);
    if result == SUCCESS {
        remove_handles_of(Teardown::Context(context));
    }
    result
}

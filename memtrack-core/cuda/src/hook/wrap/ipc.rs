//! Allocations of other processes that the program opens. Their memory is counted where it was allocated, so they
//! are not segments here; each reading of a device includes the number of open allocations, and their total size.

use super::{Call, CuResult, SUCCESS};
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::recorder::driver_memory::Teardown;
use memtrack_recorder::reentry;
use std::collections::HashMap;
use std::sync::Mutex;

/// `CUipcMemHandle`: 64 bytes that only the driver reads, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::hook) struct Handle([u8; 64]);

/// An open allocation.
#[derive(Clone, Copy)]
struct OpenAllocation {
    device: u16,
    /// The context whose destruction closes the allocation; 0 for a mapping, which belongs to no context.
    context: u64,
    bytes: u64,
}

/// The open allocations, by address.
static OPEN_ALLOCATIONS: ForkCell<Mutex<HashMap<u64, OpenAllocation>>> = ForkCell::new(Mutex::default);

/// `cuIpcOpenMemHandle_v2`.
///
/// # Safety
/// `out` must be the pointer that the caller passed to the driver.
pub(in crate::hook) unsafe fn open(call: Call<impl FnOnce() -> CuResult>, out: *mut u64) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    let result = call.run();
    if result == SUCCESS && !out.is_null() {
        // SAFETY: the driver has just written `out`.
        let address = unsafe { out.read() };
        let current = watch.driver.current_context();
        let device = watch.driver.device_of(address).unwrap_or(current.device);
        let bytes = watch.driver.size_of(address);
        with_open_allocations(|opened| {
            opened.insert(address, OpenAllocation { device, context: current.context, bytes })
        });
    }
    result
}

/// `cuIpcCloseMemHandle`.
pub(in crate::hook) fn close(call: Call<impl FnOnce() -> CuResult>, address: u64) -> CuResult {
    let Some(_watch) = call.watch() else { return call.run() };
    let before = with_open_allocations(|opened| opened.remove(&address));
    let result = call.run();
    if let Some(before) = before.filter(|_| result != SUCCESS) {
        with_open_allocations(|opened| opened.insert(address, before));
    }
    result
}

/// Records that memory of another process was mapped.
pub(super) fn add_mapping(address: u64, device: u16, bytes: u64) {
    with_open_allocations(|opened| opened.insert(address, OpenAllocation { device, context: 0, bytes }));
}

/// Records that the mappings that begin in this address range were unmapped.
pub(super) fn remove_mappings(addresses: std::ops::Range<u64>) {
    with_open_allocations(|opened| {
        opened.retain(|address, opened| opened.context != 0 || !addresses.contains(address));
    });
}

/// Removes the allocations that were open in a destroyed context.
pub(super) fn remove_allocations_of(teardown: Teardown) {
    with_open_allocations(|opened| {
        opened.retain(|_, opened| match teardown {
            Teardown::Context(context) => opened.context != context,
            Teardown::Primary { device, context } => {
                opened.device != device
                    || opened.context == 0
                    || context.is_some_and(|context| opened.context != context)
            }
        });
    });
}

/// Returns the number of open allocations on a device, and their total bytes.
pub(in crate::hook) fn open_allocations_on(device: u16) -> (u32, u64) {
    with_open_allocations(|opened| {
        let of_device = opened.values().filter(|opened| opened.device == device);
        of_device.fold((0, 0), |(count, bytes), opened| (count + 1, opened.bytes.saturating_add(bytes)))
    })
}

fn with_open_allocations<R>(act: impl FnOnce(&mut HashMap<u64, OpenAllocation>) -> R) -> R {
    let _inside = reentry::enter();
    act(&mut OPEN_ALLOCATIONS.lock())
}

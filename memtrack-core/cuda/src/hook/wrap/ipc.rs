//! Allocations of other processes that the program opens. Their memory is counted where it was allocated, so here
//! they are no segments; each reading of the device includes how many are open, and their size.

use super::{CuResult, SUCCESS};
use crate::hook::watch::HookedCall;
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::recorder::driver_memory::Teardown;
use memtrack_recorder::reentry;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// `CUipcMemHandle`: 64 bytes that only the driver reads, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::hook) struct Handle([u8; 64]);

/// An open allocation.
#[derive(Clone, Copy)]
struct Opened {
    device: u16,
    /// The context that it ends with; 0 for a mapping, which ends with none.
    context: u64,
    bytes: u64,
}

/// The open allocations, by address.
static OPENED: ForkCell<Mutex<HashMap<u64, Opened>>> = ForkCell::new(Mutex::default);

/// `cuIpcOpenMemHandle_v2`.
pub(in crate::hook) unsafe fn open(
    real: unsafe extern "C" fn(*mut u64, Handle, u32) -> CuResult,
    out: *mut u64,
    handle: Handle,
    flags: u32,
) -> CuResult {
    // SAFETY: the caller's arguments, passed on.
    let call = || unsafe { real(out, handle, flags) };
    let Some(watch) = HookedCall::enter(real as *const c_void) else { return call() };
    let result = call();
    if result == SUCCESS && !out.is_null() {
        // SAFETY: the driver has just written there.
        let address = unsafe { out.read() };
        let place = watch.driver.place();
        let device = watch.driver.device_of(address).unwrap_or(place.device);
        let bytes = watch.driver.size_of(address);
        with_opened(|opened| opened.insert(address, Opened { device, context: place.context, bytes }));
    }
    result
}

/// `cuIpcCloseMemHandle`.
pub(in crate::hook) unsafe fn close(real: unsafe extern "C" fn(u64) -> CuResult, address: u64) -> CuResult {
    // SAFETY: the caller's argument, passed on.
    let call = || unsafe { real(address) };
    let Some(_watch) = HookedCall::enter(real as *const c_void) else { return call() };
    let before = with_opened(|opened| opened.remove(&address));
    let result = call();
    if let Some(before) = before.filter(|_| result != SUCCESS) {
        with_opened(|opened| opened.insert(address, before));
    }
    result
}

/// Notes that memory of another process was mapped.
pub(super) fn mapped(address: u64, device: u16, bytes: u64) {
    with_opened(|opened| opened.insert(address, Opened { device, context: 0, bytes }));
}

/// Notes that mappings that begin in these addresses were unmapped.
pub(super) fn unmapped(addresses: std::ops::Range<u64>) {
    with_opened(|opened| {
        opened.retain(|address, opened| opened.context != 0 || !addresses.contains(address));
    });
}

/// Removes the allocations that were open in a context that has ended.
pub(super) fn ended(teardown: Teardown) {
    with_opened(|opened| {
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

/// Returns how many are open on a device, and their bytes.
pub(in crate::hook) fn opened_on(device: u16) -> (u32, u64) {
    with_opened(|opened| {
        let of_device = opened.values().filter(|opened| opened.device == device);
        of_device.fold((0, 0), |(count, bytes), opened| (count + 1, opened.bytes.saturating_add(bytes)))
    })
}

fn with_opened<R>(act: impl FnOnce(&mut HashMap<u64, Opened>) -> R) -> R {
    let _inside = reentry::enter();
    act(&mut OPENED.get().lock().unwrap_or_else(PoisonError::into_inner))
}

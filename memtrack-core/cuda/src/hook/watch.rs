//! A hooked call as the recorder sees it: the work that every wrapper does before and after the driver's function.

use super::driver::{CallContext, Driver};
use super::driver_reading;
use super::entry;
use super::wrap::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::run;
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_recorder::recorder::driver_memory::{DriverAllocation, DriverFreed, Origin, Teardown};
use memtrack_recorder::recorder::{Hook, record_oom};
use memtrack_recorder::switch;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static IN_HOOKED_CALL: Cell<bool> = const { Cell::new(false) };
}

static UNKNOWN_FREES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of frees of memory whose allocation the hook had not seen.
pub(crate) fn unknown_frees() -> u64 {
    UNKNOWN_FREES.load(Ordering::Relaxed)
}

/// A hooked call in progress. Calls that the driver makes to its own functions on the same thread in the meantime are
/// part of the hooked call.
pub(super) struct HookedCall {
    pub(super) driver: &'static Driver,
}

/// The properties of an allocation, apart from its address and size.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) origin: Origin,
    pub(super) stream: u64,
    pub(super) device: AllocationDevice,
}

/// The device of an allocation.
#[derive(Clone, Copy)]
pub(super) enum AllocationDevice {
    /// The device of the current context.
    Current,
    /// The device of the allocation's stream or pool, which need not be the current one.
    StreamDevice,
    /// The device with this number.
    Device(u16),
    /// Pinned host memory.
    Pinned,
}

impl HookedCall {
    /// Begins a call, unless the thread is in a hooked call already or hooks are suspended on it.
    #[inline(always)]
    pub(super) fn enter(real: *const c_void) -> Option<Self> {
        run::begin_if_requested();
        // Calls are watched even while nothing is recorded, because out-of-memory observers are always notified.
        if IN_HOOKED_CALL.get() || !entry::is_in_place() {
            return None;
        }
        IN_HOOKED_CALL.set(true);
        Some(Self { driver: Driver::of(real) })
    }

    /// Records the result that the driver returned for a request for memory.
    #[inline(always)]
    pub(super) fn record_alloc_result(&self, result: CuResult, kind: Kind, address: u64, size: u64) {
        match result {
            SUCCESS => self.record(kind, address, size),
            OUT_OF_MEMORY => self.out_of_memory(kind, size),
            _ => {}
        }
    }

    #[inline(always)]
    fn record(&self, kind: Kind, address: u64, size_bytes: u64) {
        if address == 0 || !switch::is_on(switch::EVENTS) {
            return;
        }
        let call_context = self.context_of(kind, address);
        let device = if matches!(kind.device, AllocationDevice::Pinned) {
            DeviceId::PINNED
        } else {
            call_context.device_id()
        };
        let Some(hook) = Hook::enter() else { return };
        let CallContext { context, device: of_device } = call_context;
        let (stream, origin) = (StreamId(kind.stream), kind.origin);
        let ticks = hook.driver_alloc(
            address,
            DriverAllocation { device, of_device, context, stream, size_bytes, origin },
        );
        let due = hook.recorder.readings.is_due(device, ticks);
        drop(hook);
        if due {
            driver_reading::take_due_reading(self.driver, device, ticks);
        }
    }

    fn context_of(&self, kind: Kind, address: u64) -> CallContext {
        let current = self.driver.current_context();
        let device = match kind.device {
            AllocationDevice::Current | AllocationDevice::Pinned => None,
            AllocationDevice::StreamDevice if self.driver.has_several_devices() => {
                self.driver.device_of(address)
            }
            AllocationDevice::StreamDevice => None,
            AllocationDevice::Device(device) => Some(device),
        };
        CallContext { device: device.unwrap_or(current.device), ..current }
    }

    #[cold]
    fn out_of_memory(&self, kind: Kind, size: u64) {
        driver_reading::take_reading(self.driver, true);
        let (device, (free, total)) = match kind.device {
            AllocationDevice::Pinned => (DeviceId::PINNED, host_memory()),
            AllocationDevice::Device(device) if device != self.driver.current_context().device => {
                (DeviceId(device), (0, 0))
            }
            _ => (self.driver.current_context().device_id(), self.driver.memory_info()),
        };
        record_oom(device, StreamId(kind.stream), size, free, total);
    }

    /// Records that memory is about to be freed.
    #[inline(always)]
    pub(super) fn before_free(&self, address: u64) -> Option<DriverFreed> {
        if address == 0 {
            return None;
        }
        let freed = Hook::enter()?.driver_free(address);
        if freed.is_none() {
            UNKNOWN_FREES.fetch_add(1, Ordering::Relaxed);
        }
        freed
    }

    /// Records the result that the driver returned for a free recorded by [`Self::before_free`].
    #[inline(always)]
    pub(super) fn record_free_result(&self, result: CuResult, freed: Option<DriverFreed>) {
        let Some(freed) = freed else { return };
        let Some(hook) = Hook::enter() else { return };
        if result != SUCCESS {
            return hook.driver_not_freed(freed);
        }
        let (device, ticks) = freed.moment();
        hook.driver_freed(freed);
        let due = hook.recorder.readings.is_due(device, ticks);
        drop(hook);
        if due {
            driver_reading::take_due_reading(self.driver, device, ticks);
        }
    }

    /// Records that everything in a range of mapped addresses is about to be unmapped.
    pub(super) fn before_unmap(&self, address: u64, size: u64) -> Vec<DriverFreed> {
        let Some(hook) = Hook::enter() else { return Vec::new() };
        let inside = hook.recorder.driver.mappings_within(address..address.saturating_add(size));
        inside.into_iter().filter_map(|address| hook.driver_free(address)).collect()
    }

    /// Takes a last reading of a device whose context may be about to be destroyed.
    pub(super) fn read_before_teardown(&self) {
        driver_reading::take_reading(self.driver, false);
    }

    /// Records that all memory of a context is about to be freed with it.
    pub(super) fn before_teardown(&self, teardown: Teardown) -> Vec<DriverFreed> {
        let Some(hook) = Hook::enter() else { return Vec::new() };
        let ended = hook.recorder.driver.ended_by(teardown);
        ended.into_iter().filter_map(|address| hook.driver_free(address)).collect()
    }

    /// Records the result that the driver returned for frees recorded by [`Self::before_unmap`] or
    /// [`Self::before_teardown`].
    pub(super) fn record_free_results(&self, result: CuResult, mut freed: Vec<DriverFreed>) {
        // If blocks that a pool reported are freed with a segment, the segment's free gets a new, later stamp. Such frees
        // are recorded last, because this thread's events would be out of order otherwise.
        freed.sort_by_key(DriverFreed::ends_others);
        freed.into_iter().for_each(|freed| self.record_free_result(result, Some(freed)));
    }
}

impl Drop for HookedCall {
    #[inline(always)]
    fn drop(&mut self) {
        IN_HOOKED_CALL.set(false);
    }
}

/// A guard. While it exists, hooked calls on this thread count as memtrack's own and are not recorded.
#[must_use = "hooked calls are recorded again when the guard is dropped"]
pub(super) struct HooksSuspended {
    was_in_call: bool,
}

impl HooksSuspended {
    pub(super) fn begin() -> Self {
        Self { was_in_call: IN_HOOKED_CALL.replace(true) }
    }
}

impl Drop for HooksSuspended {
    fn drop(&mut self) {
        IN_HOOKED_CALL.set(self.was_in_call);
    }
}

/// Returns the free and total bytes of the machine's memory.
fn host_memory() -> (u64, u64) {
    // SAFETY: `sysconf` may be called with any number; −1 means that the value is unknown.
    let [free, all, page] = [libc::_SC_AVPHYS_PAGES, libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE]
        .map(|what| unsafe { libc::sysconf(what) });
    let bytes = |pages: i64| (pages.max(0) as u64).saturating_mul(page.max(0) as u64);
    (bytes(free), bytes(all))
}

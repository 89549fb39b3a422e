//! Reads from the driver how much of a device is in use and how much its pools cache. This is done on threads of the
//! program that are in a hooked call, or that request a snapshot: there the context is current, so that it cannot end
//! meanwhile. No lock of memtrack's is held, except one that keeps the program's pools alive.

use super::driver::Driver;
use super::watch::HooksSuspended;
use super::wrap::{ipc, pools};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::DriverReading;
use memtrack_recorder::recorder::{RECORDER, ticks};
use memtrack_recorder::{reentry, switch};
use std::sync::atomic::{AtomicBool, Ordering};

/// `CUmemPool_attribute`: reserved and used bytes, each now and at most.
const POOL_ATTRIBUTES: [i32; 4] = [5, 6, 7, 8];

/// Takes the reading that is due at an event of that device.
#[cold]
pub(super) fn when_due(driver: &Driver, device: DeviceId, now: u64) {
    let _inside = reentry::enter();
    let readings = &RECORDER.get().readings;
    if !readings.claim(device, now) {
        return;
    }
    let begun = ticks();
    take(driver, false);
    readings.schedule_next(device, begun, ticks());
}

/// Takes a reading now, of the device whose context is current.
#[cold]
pub(super) fn now(driver: &Driver, out_of_memory: bool) {
    if switch::is_on(switch::EVENTS) {
        let _inside = reentry::enter();
        take(driver, out_of_memory);
    }
}

/// Set when the process exits: the driver may have ended earlier, and is not queried any more without a request.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Stops readings because the process exits.
pub(crate) fn no_more() {
    EXITING.store(true, Ordering::Relaxed);
}

/// Takes a reading on a thread of the program that is in no hooked call, if the driver is known and has a context
/// there.
pub(crate) fn on_this_thread() {
    let Some(driver) = Driver::known().filter(|_| !EXITING.load(Ordering::Relaxed)) else { return };
    let _quiet = HooksSuspended::begin();
    now(driver, false);
}

fn take(driver: &Driver, out_of_memory: bool) {
    let place = driver.place();
    if place.context == 0 {
        return;
    }
    // These queries belong to no stream, and must not invalidate a graph that is being captured.
    let reading = driver.aside_from_captures(|| read(driver, place.device));
    if let Some(reading) = reading {
        RECORDER.get().readings.keep(reading, out_of_memory);
    }
}

fn read(driver: &Driver, device: u16) -> Option<DriverReading> {
    let (free_bytes, total_bytes) = driver.memory_info();
    if total_bytes == 0 {
        return None;
    }
    let mut sums = [0_u64; 4];
    let mut count = 0;
    pools::with_pools_of(driver, device, |pool| {
        let bytes = POOL_ATTRIBUTES.map(|attribute| driver.pool_attribute(pool, attribute));
        if let [Some(_), Some(_), Some(_), Some(_)] = bytes {
            count += 1;
            for (sum, bytes) in sums.iter_mut().zip(bytes) {
                *sum = sum.saturating_add(bytes.unwrap_or(0));
            }
        }
    });
    let [pool_reserved_bytes, pool_reserved_peak_bytes, pool_used_bytes, pool_used_peak_bytes] = sums;
    let (opened, opened_bytes) = ipc::opened_on(device);
    Some(DriverReading {
        device: DeviceId(device),
        ticks: ticks(),
        free_bytes,
        total_bytes,
        pools: count,
        pool_reserved_bytes,
        pool_reserved_peak_bytes,
        pool_used_bytes,
        pool_used_peak_bytes,
        opened,
        opened_bytes,
        ..DriverReading::default()
    })
}

//! Reads from the driver how much of a device is in use and how much its pools cache. The queries run on the program's
//! own threads, in a hooked call or a request for a snapshot. The context is current on such a thread, so it cannot be
//! destroyed during a query. memtrack holds no lock during the queries, except the one that prevents the program's
//! pools from being destroyed.

use super::driver::Driver;
use super::watch::HooksSuspended;
use super::wrap::{ipc, pools};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::DriverReading;
use memtrack_recorder::recorder::{RECORDER, ticks};
use memtrack_recorder::{reentry, switch};
use std::sync::atomic::{AtomicBool, Ordering};

/// The values of `CUmemPool_attribute` for reserved and used bytes: the current number and the peak of each.
const POOL_ATTRIBUTES: [i32; 4] = [5, 6, 7, 8];

/// Takes the reading that is due at an event on `device`, unless another thread has already claimed that reading.
#[cold]
pub(super) fn take_due_reading(driver: &Driver, device: DeviceId, now: u64) {
    let _inside = reentry::enter();
    let readings = &RECORDER.get().readings;
    if !readings.claim(device, now) {
        return;
    }
    let begun = ticks();
    read_current_device(driver, false);
    readings.schedule_next(device, begun, ticks());
}

/// Takes a reading of the device whose context is current.
#[cold]
pub(super) fn take_reading(driver: &Driver, out_of_memory: bool) {
    if switch::is_on(switch::EVENTS) {
        let _inside = reentry::enter();
        read_current_device(driver, out_of_memory);
    }
}

/// Whether the process is exiting. If so, the driver may already have shut down and is queried only in hooked calls.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Stops taking readings for snapshots, because the process is exiting.
pub(crate) fn stop_readings() {
    EXITING.store(true, Ordering::Relaxed);
}

/// Takes a reading on a program thread that is not in a hooked call, if an earlier call was hooked and the thread has a
/// context.
pub(crate) fn read_on_this_thread() {
    let Some(driver) = Driver::get().filter(|_| !EXITING.load(Ordering::Relaxed)) else { return };
    let _suspended = HooksSuspended::begin();
    take_reading(driver, false);
}

fn read_current_device(driver: &Driver, out_of_memory: bool) {
    let current = driver.current_context();
    if current.context == 0 {
        return;
    }
    // These queries belong to no stream, and must not invalidate a graph that is being captured.
    let reading = driver.outside_captures(|| read(driver, current.device));
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
    let (opened, opened_bytes) = ipc::open_allocations_on(device);
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

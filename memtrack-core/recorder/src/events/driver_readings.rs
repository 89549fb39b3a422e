//! The CUDA driver's figures for the memory of its devices, and the schedule for reading them. The hook reads them on
//! threads of the program that are calling the driver anyway; this module decides when to read them, and stores the
//! readings.
//!
//! **Why only on the program's threads?** Only a thread that is calling the driver has a current context that cannot be
//! destroyed meanwhile. The stream thread and exit handlers use the last reading. The next reading is due after 512
//! times the duration of a reading, so that readings take 0.2 % of the time with any driver. The check is a load and a
//! comparison with the event's stamp.

use super::threads::{self, DEVICE_SLOTS, device_of, slot_of};
use super::totals::Sums;
use crate::shared_memory::{self, log::Record};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{DriverReading, ReadingMoment};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The time between two readings, relative to the duration of the fastest reading: readings take 0.2 % of the program's
/// time.
const SPACING: u64 = 512;
/// The spacing of the first two readings. It then doubles up to [`SPACING`], so that short programs also have readings.
const FIRST_SPACING: u64 = 8;
/// The maximum duration used for the schedule, relative to the fastest reading: a thread may be descheduled during a
/// reading.
const MAX_DURATION_RATIO: u64 = 4;

/// No reading is due, either because the device never has readings or because one is being taken.
const NOT_DUE: u64 = u64::MAX;

/// The function that reads the figures of the device that is current on the calling thread.
static READ: OnceLock<fn()> = OnceLock::new();

/// Registers the function that reads the driver's figures before a snapshot. Later registrations have no effect.
pub fn set_reader(read: fn()) {
    // There is only one hook in a process.
    let _ = READ.set(read);
}

/// Reads the driver's figures, if the hook has registered a function for it. Must be called while no lock is held.
pub(super) fn read() {
    if let Some(read) = READ.get() {
        read();
    }
}

/// The readings of all devices.
pub struct Readings {
    /// The stamp at which the next reading is due, by device slot.
    due: [AtomicU64; DEVICE_SLOTS],
    /// The total bytes of the segments that existed when the session began, by device slot.
    reserved_at_start: [AtomicI64; DEVICE_SLOTS],
    stored: Mutex<Stored>,
}

#[derive(Default)]
struct Stored {
    readings: BTreeMap<(DeviceId, ReadingMoment), DriverReading>,
    /// The schedules by device slot.
    schedules: BTreeMap<usize, Schedule>,
    /// Increases with each reading.
    version: u64,
}

struct Schedule {
    shortest_ticks: u64,
    spacing: u64,
}

impl Default for Readings {
    fn default() -> Self {
        Self {
            due: std::array::from_fn(|slot| AtomicU64::new(first_due(slot))),
            reserved_at_start: std::array::from_fn(|_| AtomicI64::new(0)),
            stored: Mutex::default(),
        }
    }
}

/// Returns the stamp at which the first reading of a slot is due. Only accelerators have readings.
fn first_due(slot: usize) -> u64 {
    if device_of(slot).is_accelerator() { 0 } else { NOT_DUE }
}

impl Readings {
    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all readings, for a session that begins with these sums.
    pub(super) fn begin(&self, sums: &[Sums; DEVICE_SLOTS]) {
        *self.lock() = Stored::default();
        for (slot, sums) in sums.iter().enumerate() {
            self.reserved_at_start[slot].store(sums.reserved(), Ordering::Relaxed);
            self.due[slot].store(first_due(slot), Ordering::Relaxed);
        }
    }

    /// Returns whether a reading is due at an event with this stamp.
    #[inline(always)]
    pub fn is_due(&self, device: DeviceId, ticks: u64) -> bool {
        slot_of(device).is_some_and(|slot| ticks >= self.due[slot].load(Ordering::Relaxed))
    }

    /// Claims the due reading for the calling thread, which must call [`Self::schedule_next`] afterwards; returns false
    /// if another thread has claimed it.
    pub fn claim(&self, device: DeviceId, ticks: u64) -> bool {
        let Some(slot) = slot_of(device) else { return false };
        let due = self.due[slot].load(Ordering::Relaxed);
        let claimed =
            |due| self.due[slot].compare_exchange(due, NOT_DUE, Ordering::Relaxed, Ordering::Relaxed);
        ticks >= due && claimed(due).is_ok()
    }

    /// Notes that a claimed reading was taken between these two stamps, and schedules the next one.
    pub fn schedule_next(&self, device: DeviceId, begun: u64, ended: u64) {
        let Some(slot) = slot_of(device) else { return };
        let took = ended.saturating_sub(begun).max(1);
        let mut stored = self.lock();
        let schedule =
            stored.schedules.entry(slot).or_insert(Schedule { shortest_ticks: took, spacing: FIRST_SPACING });
        schedule.shortest_ticks = schedule.shortest_ticks.min(took);
        let wait = took
            .min(schedule.shortest_ticks.saturating_mul(MAX_DURATION_RATIO))
            .saturating_mul(schedule.spacing);
        schedule.spacing = (schedule.spacing * 2).min(SPACING);
        self.due[slot].store(ended.saturating_add(wait).min(NOT_DUE - 1), Ordering::Relaxed);
    }

    /// Stores a reading as the device's last one. Also stores it as the reading at which memory ran out if
    /// `out_of_memory` is set, and as the fullest reading if more memory was used than at all earlier readings.
    pub fn keep(&self, reading: DriverReading, out_of_memory: bool) {
        let Some(slot) = slot_of(reading.device) else { return };
        let tracked = threads::sums(slot).reserved() - self.reserved_at_start[slot].load(Ordering::Relaxed);
        let reading = DriverReading { tracked_bytes: u64::try_from(tracked).unwrap_or(0), ..reading };
        let mut stored = self.lock();
        stored.version += 1;
        let mut new = Vec::new();
        let mut store = |moment| {
            let reading = DriverReading { moment, ..reading };
            stored.readings.insert((reading.device, moment), reading);
            new.push(reading);
        };
        store(ReadingMoment::Last);
        if out_of_memory {
            store(ReadingMoment::OutOfMemory);
        }
        let fullest = stored.readings.get(&(reading.device, ReadingMoment::Fullest));
        if fullest.is_none_or(|fullest| fullest.used_bytes() < reading.used_bytes()) {
            let reading = DriverReading { moment: ReadingMoment::Fullest, ..reading };
            stored.readings.insert((reading.device, reading.moment), reading);
            new.push(reading);
        }
        drop(stored);
        new.into_iter().for_each(|reading| {
            shared_memory::append(&Record::Driver(reading));
        });
    }

    /// Returns the stored readings, ordered by device and then by kind of moment (last, fullest, out of memory).
    pub(super) fn all(&self) -> Vec<DriverReading> {
        self.lock().readings.values().copied().collect()
    }

    /// Returns the stored readings if they have changed since `version`, and updates `version`.
    pub(super) fn changed_since(&self, version: &mut u64) -> Option<Vec<DriverReading>> {
        let stored = self.lock();
        let before = std::mem::replace(version, stored.version);
        (before != stored.version).then(|| stored.readings.values().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceId = DeviceId(3);

    fn reading(used: u64) -> DriverReading {
        DriverReading {
            device: DEVICE,
            free_bytes: 1000 - used,
            total_bytes: 1000,
            ..DriverReading::default()
        }
    }

    #[test]
    fn readings_stay_few_with_many_events() {
        let readings = Readings::default();
        let (mut now, mut taken) = (0, 0);
        // There is an event every 10 ticks, and a reading takes 100.
        while now < 100 * 10_000 {
            now += 10;
            if readings.is_due(DEVICE, now) && readings.claim(DEVICE, now) {
                assert!(!readings.is_due(DEVICE, now), "one at a time");
                readings.schedule_next(DEVICE, now, now + 100);
                (now, taken) = (now + 100, taken + 1);
            }
        }
        // After 8 + 16 + … + 256 times the duration, then after every 512 times.
        assert!((6 + 17..=6 + 20).contains(&taken), "{taken}");
        assert!(!readings.is_due(DeviceId::PINNED, now) && !readings.is_due(DeviceId::HOST, now));
        // An interrupted reading does not delay the next one for long.
        readings.schedule_next(DEVICE, now, now + 1_000_000);
        assert!(readings.is_due(DEVICE, now + 1_000_000 + 512 * 400));
    }

    #[test]
    fn the_last_fullest_and_out_of_memory_readings_are_kept() {
        let readings = Readings::default();
        let mut version = 0;
        assert!(readings.changed_since(&mut version).is_none());
        readings.keep(reading(10), false);
        readings.keep(reading(900), true);
        readings.keep(reading(30), false);
        let kept = readings.changed_since(&mut version).expect("there are new ones");
        let used: Vec<_> = kept.iter().map(|reading| (reading.moment, reading.used_bytes())).collect();
        use ReadingMoment::{Fullest, Last, OutOfMemory};
        assert_eq!(used, [(Last, 30), (Fullest, 900), (OutOfMemory, 900)]);
        assert!(readings.changed_since(&mut version).is_none());
        assert_eq!(readings.all(), kept);
    }
}

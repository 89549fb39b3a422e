//! The CUDA driver's memory figures for its devices, and when to read them again. The hook reads them, on threads of
//! the program that are calling the driver anyway; this module sets the pace, and keeps the readings.
//!
//! **Why only on the program's threads?** Only there is a context current that cannot end meanwhile. The
//! stream's thread and exit handlers use the last reading. A reading is due after 512 times the cost of one,
//! 0.2 % of the time with any driver; the check is a load and a comparison with the event's stamp.

use super::threads::{self, DEVICE_SLOTS, device_of, slot_of};
use super::totals::Sums;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{DriverReading, ReadingMoment};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A reading follows after this many times the duration of the fastest one: 0.2 % of the program's time.
const SPACING: u64 = 512;
/// The first ones come faster, each after twice as long as the one before: short programs have readings, too.
const FIRST_SPACING: u64 = 8;
/// The longest duration used for the pace, relative to the fastest one: a thread may lose its processor during a
/// reading.
const MAX_TIMES_CHEAPEST: u64 = 4;

/// Not due: never, or while a reading is being taken.
const NOT_DUE: u64 = u64::MAX;

/// Reads the figures of the device that is current on the calling thread.
static READ: OnceLock<fn()> = OnceLock::new();

/// Registers the function that reads the driver's figures before a snapshot. The first one registered stays.
pub fn read_with(read: fn()) {
    // There is one hook in a process.
    let _ = READ.set(read);
}

/// Reads the driver's figures, if its hook registered how. Called before any lock.
pub(super) fn read() {
    if let Some(read) = READ.get() {
        read();
    }
}

/// The readings of all devices.
pub struct Readings {
    /// The stamp from which on a reading is due, by device slot.
    due: [AtomicU64; DEVICE_SLOTS],
    /// The segment bytes that were counted before the session, by device slot.
    before: [AtomicI64; DEVICE_SLOTS],
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    readings: BTreeMap<(DeviceId, ReadingMoment), DriverReading>,
    /// By device slot.
    pace: BTreeMap<usize, Pace>,
    /// Grows with each reading.
    version: u64,
}

struct Pace {
    cheapest_ticks: u64,
    spacing: u64,
}

impl Default for Readings {
    fn default() -> Self {
        Self {
            due: std::array::from_fn(|slot| AtomicU64::new(first_due(slot))),
            before: std::array::from_fn(|_| AtomicI64::new(0)),
            kept: Mutex::default(),
        }
    }
}

/// Returns when the first reading is due: only devices have readings.
fn first_due(slot: usize) -> u64 {
    if device_of(slot).is_accelerator() { 0 } else { NOT_DUE }
}

impl Readings {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clears everything; a session begins with these sums.
    pub(super) fn begin(&self, sums: &[Sums; DEVICE_SLOTS]) {
        *self.kept() = Kept::default();
        for (slot, sums) in sums.iter().enumerate() {
            self.before[slot].store(sums.reserved(), Ordering::Relaxed);
            self.due[slot].store(first_due(slot), Ordering::Relaxed);
        }
    }

    /// Returns whether a reading is due at an event with that stamp.
    #[inline(always)]
    pub fn is_due(&self, device: DeviceId, ticks: u64) -> bool {
        slot_of(device).is_some_and(|slot| ticks >= self.due[slot].load(Ordering::Relaxed))
    }

    /// Claims the reading for the calling thread; `false` if another thread has claimed it. Ended by [`Self::pace`].
    pub fn claim(&self, device: DeviceId, ticks: u64) -> bool {
        let Some(slot) = slot_of(device) else { return false };
        let due = self.due[slot].load(Ordering::Relaxed);
        let claimed =
            |due| self.due[slot].compare_exchange(due, NOT_DUE, Ordering::Relaxed, Ordering::Relaxed);
        ticks >= due && claimed(due).is_ok()
    }

    /// Notes that a claimed reading was taken between these two stamps, and sets when the next one is due.
    pub fn pace(&self, device: DeviceId, begun: u64, ended: u64) {
        let Some(slot) = slot_of(device) else { return };
        let took = ended.saturating_sub(begun).max(1);
        let mut kept = self.kept();
        let pace = kept.pace.entry(slot).or_insert(Pace { cheapest_ticks: took, spacing: FIRST_SPACING });
        pace.cheapest_ticks = pace.cheapest_ticks.min(took);
        let wait =
            took.min(pace.cheapest_ticks.saturating_mul(MAX_TIMES_CHEAPEST)).saturating_mul(pace.spacing);
        pace.spacing = (pace.spacing * 2).min(SPACING);
        self.due[slot].store(ended.saturating_add(wait).min(NOT_DUE - 1), Ordering::Relaxed);
    }

    /// Keeps a reading.
    pub fn keep(&self, reading: DriverReading, out_of_memory: bool) {
        let Some(slot) = slot_of(reading.device) else { return };
        let tracked = threads::sums(slot).reserved() - self.before[slot].load(Ordering::Relaxed);
        let reading = DriverReading { tracked_bytes: u64::try_from(tracked).unwrap_or(0), ..reading };
        let mut kept = self.kept();
        kept.version += 1;
        let mut put = |moment| {
            kept.readings.insert((reading.device, moment), DriverReading { moment, ..reading });
        };
        put(ReadingMoment::Last);
        if out_of_memory {
            put(ReadingMoment::OutOfMemory);
        }
        let fullest = kept.readings.get(&(reading.device, ReadingMoment::Fullest));
        if fullest.is_none_or(|fullest| fullest.used_bytes() < reading.used_bytes()) {
            let moment = ReadingMoment::Fullest;
            kept.readings.insert((reading.device, moment), DriverReading { moment, ..reading });
        }
    }

    /// Returns the kept readings, by device and moment.
    pub(super) fn all(&self) -> Vec<DriverReading> {
        self.kept().readings.values().copied().collect()
    }

    /// Returns the kept readings if they have changed since `version`, which is updated.
    pub(super) fn changed_since(&self, version: &mut u64) -> Option<Vec<DriverReading>> {
        let kept = self.kept();
        let before = std::mem::replace(version, kept.version);
        (before != kept.version).then(|| kept.readings.values().copied().collect())
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
        // An event every 10 ticks, and a reading takes 100.
        while now < 100 * 10_000 {
            now += 10;
            if readings.is_due(DEVICE, now) && readings.claim(DEVICE, now) {
                assert!(!readings.is_due(DEVICE, now), "one at a time");
                readings.pace(DEVICE, now, now + 100);
                (now, taken) = (now + 100, taken + 1);
            }
        }
        // 8 + 16 + … + 256 times, then every 512 times.
        assert!((6 + 17..=6 + 20).contains(&taken), "{taken}");
        assert!(!readings.is_due(DeviceId::PINNED, now) && !readings.is_due(DeviceId::HOST, now));
        // An interrupted reading does not delay the next one for long.
        readings.pace(DEVICE, now, now + 1_000_000);
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
        let used: Vec<_> = kept.iter().map(|one| (one.moment, one.used_bytes())).collect();
        use ReadingMoment::{Fullest, Last, OutOfMemory};
        assert_eq!(used, [(Last, 30), (Fullest, 900), (OutOfMemory, 900)]);
        assert!(readings.changed_since(&mut version).is_none());
        assert_eq!(readings.all(), kept);
    }
}

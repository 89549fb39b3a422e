//! What the CUDA driver said of its devices, and when it is to be asked again. The hook asks it, on threads of the
//! program that are calling it anyway; here is the pace, and what is kept of the answers.
//!
//! **Why only on the program's threads?** Only there is a context current that cannot end meanwhile. The stream's thread
//! and exit handlers use the last reading. A reading is due after 512 times the cost of one, 0.2 % of the time whatever
//! the driver; to check that is a load and a comparison with the event's stamp.

use super::threads::{self, DEVICE_SLOTS, device_of, slot_of};
use super::totals::Sums;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{DriverReading, ReadingMoment};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A reading comes after this many times the time that the cheapest one took: 0.2 % of the program's time.
const SPACING: u64 = 512;
/// The first ones come faster, each after twice as long as the one before: short programs have their readings too.
const FIRST_SPACING: u64 = 8;
/// What one took at most of the cheapest one's time, as far as the pace goes: a thread may lose its processor meanwhile.
const MOST_OF_CHEAPEST: u64 = 4;

/// Not due: never, or while one is being taken.
const NOT_DUE: u64 = u64::MAX;

/// How the driver is asked for a reading of the device that is current on the calling thread.
static ASK: OnceLock<fn()> = OnceLock::new();

/// Has snapshots ask the driver by `ask` before they are taken. The first one that is named stays.
pub fn asked_by(ask: fn()) {
    // There is one hook in a process.
    let _ = ASK.set(ask);
}

/// Asks the driver, if its hook said how. Before any lock.
pub(super) fn ask() {
    if let Some(ask) = ASK.get() {
        ask();
    }
}

/// The readings of all devices.
pub struct Readings {
    /// By device slot, the stamp from which on a reading is due.
    due: [AtomicU64; DEVICE_SLOTS],
    /// By device slot, the segment bytes that were counted before the session.
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

/// Only devices have readings.
fn first_due(slot: usize) -> u64 {
    if device_of(slot).is_accelerator() { 0 } else { NOT_DUE }
}

impl Readings {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything; a session begins with these sums.
    pub(super) fn begin(&self, sums: &[Sums; DEVICE_SLOTS]) {
        *self.kept() = Kept::default();
        for (slot, sums) in sums.iter().enumerate() {
            self.before[slot].store(sums.reserved(), Ordering::Relaxed);
            self.due[slot].store(first_due(slot), Ordering::Relaxed);
        }
    }

    /// Whether a reading is due at an event with that stamp.
    #[inline(always)]
    pub fn is_due(&self, device: DeviceId, ticks: u64) -> bool {
        slot_of(device).is_some_and(|slot| ticks >= self.due[slot].load(Ordering::Relaxed))
    }

    /// Takes the reading on; `false` when another thread has. It is over with [`Self::pace`].
    pub fn claim(&self, device: DeviceId, ticks: u64) -> bool {
        let Some(slot) = slot_of(device) else { return false };
        let due = self.due[slot].load(Ordering::Relaxed);
        let claimed =
            |due| self.due[slot].compare_exchange(due, NOT_DUE, Ordering::Relaxed, Ordering::Relaxed);
        ticks >= due && claimed(due).is_ok()
    }

    /// A reading that was claimed has been taken between these two stamps: says when the next one is due.
    pub fn pace(&self, device: DeviceId, begun: u64, ended: u64) {
        let Some(slot) = slot_of(device) else { return };
        let took = ended.saturating_sub(begun).max(1);
        let mut kept = self.kept();
        let pace = kept.pace.entry(slot).or_insert(Pace { cheapest_ticks: took, spacing: FIRST_SPACING });
        pace.cheapest_ticks = pace.cheapest_ticks.min(took);
        let wait =
            took.min(pace.cheapest_ticks.saturating_mul(MOST_OF_CHEAPEST)).saturating_mul(pace.spacing);
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

    /// What is kept, by device and moment.
    pub(super) fn all(&self) -> Vec<DriverReading> {
        self.kept().readings.values().copied().collect()
    }

    /// What is kept if that has changed since `version`, which becomes the present one.
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
    fn readings_are_few_however_many_events_there_are() {
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
        // One that was interrupted does not put the next one off for long.
        readings.pace(DEVICE, now, now + 1_000_000);
        assert!(readings.is_due(DEVICE, now + 1_000_000 + 512 * 400));
    }

    #[test]
    fn the_last_the_fullest_and_the_one_at_out_of_memory_are_kept() {
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

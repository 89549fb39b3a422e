//! The sums of the running session, for a caller that reads them often, such as a scraper of metrics. Reading them needs
//! neither a snapshot nor the session's lock, which is held while a snapshot is taken: the baseline of the session is kept
//! a second time, under a lock that is held only to copy it.

use super::collect::Baseline;
use super::fork::ForkCell;
use super::inherit::inherited_options;
use super::totals::Sums;
use super::{Options, RECORDER, counted_peak, threads};
use crate::{clock, host, shared_memory};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{CountedPeak, Folded, Sampling};
use std::sync::Mutex;

/// The sums of the running session at one time.
#[derive(Clone, Debug)]
pub struct RunningSums {
    /// The time at which the session began, in nanoseconds since the Unix epoch.
    pub started_ns: u64,
    /// The share of processor time that recording may take, or 0 if it has no such limit.
    pub budget: f64,
    /// The devices that have had events in the session, with the host heap first.
    pub devices: Vec<DeviceSums>,
    /// How small blocks of the heap were sampled; `None` if the options record every block.
    pub sampling: Option<Sampling>,
    /// The bounds on the heap's peak; `None` while every block has been recorded.
    pub peak: Option<CountedPeak>,
    /// The number of blocks in the table of live blocks.
    pub tracked_blocks: u64,
    /// Counts of items that did not fit into the recorder's tables.
    pub folded: Folded,
}

/// The sums of one device since the session began.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSums {
    /// The device.
    pub device: DeviceId,
    /// The sums, which are exact up to the blocks that other threads allocate and free during the reading.
    pub sums: Sums,
    /// The number of events that the ring has dropped.
    pub dropped: u64,
}

impl DeviceSums {
    /// Returns the bytes allocated since the session began.
    pub fn allocated_bytes(&self) -> u64 {
        self.sums.allocated_bytes
    }

    /// Returns the bytes freed since the session began, including those of blocks from before.
    pub fn freed_bytes(&self) -> u64 {
        self.sums.freed_bytes
    }

    /// Returns the number of blocks allocated since the session began.
    pub fn allocations(&self) -> u64 {
        self.sums.allocations
    }

    /// Returns the number of blocks freed since the session began.
    pub fn frees(&self) -> u64 {
        self.sums.frees
    }
}

/// The beginning of the running session.
#[derive(Clone, Copy)]
struct Running {
    baseline: Baseline,
    budget: f64,
    samples: bool,
}

static RUNNING: ForkCell<Mutex<Option<Running>>> = ForkCell::new(|| Mutex::new(inherited()));

impl Running {
    fn of(options: &Options, baseline: &Baseline) -> Self {
        Self { baseline: *baseline, budget: options.budget_share(), samples: options.samples_host_heap() }
    }
}

/// A forked child's sums begin at 0.
fn inherited() -> Option<Running> {
    let sums = [Sums::default(); threads::DEVICE_SLOTS];
    Some(Running::of(&inherited_options()?, &Baseline { clock: clock::first_reading(), sums }))
}

/// Notes that a session has begun.
pub(super) fn begin(options: &Options, baseline: &Baseline) {
    let running = Running::of(options, baseline);
    *RUNNING.lock() = Some(running);
}

/// Notes that the session has ended.
pub(super) fn end() {
    *RUNNING.lock() = None;
}

/// Returns the sums of the running session; `None` if no session runs, or if its events go to the `memtrack` command.
///
/// The time that this takes depends on the number of live threads and on the devices with events, and not on what was
/// recorded: some 20 µs.
pub fn running_sums() -> Option<RunningSums> {
    let _inside = crate::reentry::enter();
    let running = (*RUNNING.lock()).filter(|_| !shared_memory::is_connected())?;
    let recorder = RECORDER.get();
    let dropped: [u64; threads::DEVICE_SLOTS] = {
        let store = recorder.store();
        std::array::from_fn(|slot| store.rings[slot].evicted())
    };
    let devices = dropped.iter().enumerate().filter_map(|(slot, &dropped)| {
        let sums = threads::sums(slot).since(&running.baseline.sums[slot]);
        let device = threads::device_of(slot);
        (sums != Sums::default()).then_some(DeviceSums { device, sums, dropped })
    });
    let devices: Vec<DeviceSums> = devices.collect();
    let sampling = running.samples.then(|| {
        let heap = devices.iter().find(|row| row.device.is_host());
        let Sampling { unrecorded_blocks, unrecorded_bytes, .. } =
            heap.map(|row| row.sums.unrecorded()).unwrap_or_default();
        Sampling { unrecorded_blocks, unrecorded_bytes, ..host::sampling_so_far() }
    });
    Some(RunningSums {
        started_ns: running.baseline.clock.1,
        budget: running.budget,
        devices,
        sampling,
        peak: counted_peak::so_far(clock::ticks()),
        tracked_blocks: super::live_blocks(),
        folded: recorder.folded(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::session;
    use super::*;
    use crate::record::{record_alloc, record_free};
    use memtrack_model::event::StreamId;

    /// A device that no other test uses.
    const DEVICE: DeviceId = DeviceId(23);

    #[test]
    fn sums_are_read_while_the_session_is_locked() {
        let options = Options::new().without_host_heap();
        session::start(&options).unwrap();
        record_alloc(DEVICE, StreamId(0), 0x1000, 700);
        record_alloc(DEVICE, StreamId(0), 0x2000, 300);
        record_free(DEVICE, StreamId(0), 0x1000, 700);
        let session = session::SESSION.lock();
        let running = running_sums().expect("a session runs");
        drop(session);
        let row = running.devices.iter().find(|row| row.device == DEVICE).expect("it has events");
        assert_eq!(
            [row.allocated_bytes(), row.freed_bytes(), row.allocations(), row.frees()],
            [1000, 700, 2, 1]
        );
        assert_eq!((row.sums.allocated(), row.sums.recorded, row.dropped), (300, 3, 0));
        session::stop().1.unwrap();
    }
}

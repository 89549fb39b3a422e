//! Supplies the information about allocations that a recording's operator trace lacks: the operator and
//! module names that [`top`](memtrack_report::top) uses, and the number of blocks that each sampled
//! block represents. All commands on operator traces use these names and errors, so that they agree with the
//! commands that read the recording directly.

use super::RecordedTrace;
use super::builder::device_name;
use foldhash::HashMap;
use memtrack_blocks::estimate::{Estimate, Precision, Sum};
use memtrack_blocks::lifetimes::{is_estimate, lifetimes};
use memtrack_blocks::net::{HeldAtEnd, counted_at_end};
use memtrack_blocks::peak::Peak;
use memtrack_frames::attribution::EventNames;
use memtrack_model::optrace::{DeviceIndex, RecordId};
use memtrack_model::snapshot::{Snapshot, WeighedBlock};

/// The names and errors of a recording's allocations.
#[derive(Clone, Debug)]
pub struct Attribution {
    names: EventNames,
    /// For each record, the row of its event in the recording, or `None` if it has no event.
    rows: Vec<Option<u32>>,
    /// The blocks that each sampled block represents, keyed by the record of the sampled block.
    samples: HashMap<RecordId, WeighedBlock>,
    devices: HashMap<DeviceIndex, DeviceAttribution>,
}

#[derive(Clone, Copy, Debug)]
struct DeviceAttribution {
    precision: Precision,
    is_estimate: bool,
    /// The record at which the most memory was allocated on the device.
    peak: Option<RecordId>,
    peak_error: Estimate,
    at_end: Option<HeldAtEnd>,
}

impl Attribution {
    /// Creates a recording's attribution from its operator trace and the names of its allocations.
    pub fn of(snapshot: &Snapshot, recorded: &RecordedTrace, names: EventNames) -> Self {
        let mut record_of_row: Vec<Option<RecordId>> = vec![None; snapshot.events.len()];
        let mut samples: HashMap<RecordId, WeighedBlock> = HashMap::default();
        for (record, row) in (0..).zip(&recorded.rows).filter_map(|(record, row)| Some((record, (*row)?))) {
            record_of_row[row as usize] = Some(record);
            let weighed = snapshot.weighed_event(row as usize);
            if weighed.estimated {
                samples.insert(record, weighed);
            }
        }
        let mut devices: HashMap<DeviceIndex, DeviceAttribution> = HashMap::default();
        for device in snapshot.device_ids() {
            let name = device_name(device);
            let Some(place) = recorded.trace.devices.iter().position(|other| *other == name) else {
                continue;
            };
            let lifetimes = lifetimes(snapshot, device);
            let peak = Peak::of(snapshot, device, &lifetimes);
            let of_device = DeviceAttribution {
                precision: Precision::of(snapshot, device, &lifetimes),
                is_estimate: is_estimate(snapshot, device, &lifetimes),
                // Events of zero bytes have no record, so use the last record up to the peak.
                peak: peak.row.and_then(|row| record_of_row[..=row].iter().rev().find_map(|record| *record)),
                peak_error: peak.error,
                at_end: counted_at_end(snapshot, device, &lifetimes),
            };
            devices.insert(DeviceIndex(place as u16), of_device);
        }
        Self { names, rows: recorded.rows.clone(), samples, devices }
    }

    /// Returns the name that `top` uses for the operator that made an allocation.
    pub fn operator(&self, record: RecordId) -> Option<&str> {
        self.names.operator(self.row(record)?)
    }

    /// Returns the name that `top` uses for the module that made an allocation.
    pub fn module(&self, record: RecordId) -> Option<&str> {
        self.names.module(self.row(record)?)
    }

    /// Returns whether sums over a device's blocks are estimates.
    pub fn is_estimate(&self, device: DeviceIndex) -> bool {
        self.devices.get(&device).is_some_and(|of| of.is_estimate)
    }

    /// Returns the estimate of a device's peak that all reports on the recording show, or `None` if the peak
    /// is exact.
    pub fn peak_error(&self, device: DeviceIndex) -> Option<Estimate> {
        self.devices.get(&device).filter(|of| of.is_estimate).map(|of| of.peak_error)
    }

    /// Returns the record at which the most memory was allocated on a device.
    pub(crate) fn peak_record(&self, device: DeviceIndex) -> Option<RecordId> {
        self.devices.get(&device)?.peak
    }

    /// Returns the recorder's count of the bytes and blocks that were live at the end, or `None` if sums over blocks are
    /// exact.
    pub(crate) fn count_at_end(&self, device: DeviceIndex) -> Option<HeldAtEnd> {
        self.devices.get(&device)?.at_end
    }

    /// Returns the blocks that a record's block represents, or `None` if the block was not sampled.
    pub(crate) fn sample(&self, record: RecordId) -> Option<WeighedBlock> {
        self.samples.get(&record).copied()
    }

    /// Returns the error of a sum of bytes on a device. Sums on unknown devices are exact.
    pub(crate) fn bytes(&self, device: DeviceIndex, sum: &Sum) -> Estimate {
        self.devices.get(&device).map_or(Estimate::exact(sum.value()), |of| of.precision.bytes(sum))
    }

    /// Returns the error of a block count on a device. Counts on unknown devices are exact.
    pub(crate) fn blocks(&self, device: DeviceIndex, sum: &Sum) -> Estimate {
        self.devices.get(&device).map_or(Estimate::exact(sum.value()), |of| of.precision.blocks(sum))
    }

    fn row(&self, record: RecordId) -> Option<usize> {
        Some(self.rows.get(record as usize).copied().flatten()? as usize)
    }
}

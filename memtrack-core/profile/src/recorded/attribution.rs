//! What reports on a recording know of each allocation beyond its operator trace: what [`top`](memtrack_report::analysis::top) calls
//! its operator and module, and how many blocks it stands for where small ones were sampled. Every verb on operator traces takes
//! names and errors from here, so that they agree with the verbs that read the recording itself.

use super::RecordedTrace;
use super::builder::device_name;
use foldhash::fast::RandomState;
use memtrack_model::optrace::{DeviceIndex, RecordId};
use memtrack_model::snapshot::{Snapshot, Weighed};
use memtrack_report::analysis::attribution::EventNames;
use memtrack_report::analysis::estimate::{Estimate, Precision, Sum};
use memtrack_report::analysis::lifetimes::{is_estimate, lifetimes};
use memtrack_report::analysis::net::{AtEnd, counted_at_end};
use memtrack_report::analysis::peak::Peak;
use std::collections::HashMap;

/// Names and errors of a recording's allocations.
#[derive(Clone, Debug)]
pub struct Attribution {
    names: EventNames,
    /// By record: the row of its event.
    rows: Vec<Option<u32>>,
    /// By record of a sampled block: what it stands for.
    samples: HashMap<RecordId, Weighed, RandomState>,
    devices: HashMap<DeviceIndex, OfDevice, RandomState>,
}

/// What is known of one device.
#[derive(Clone, Copy, Debug)]
struct OfDevice {
    precision: Precision,
    is_estimate: bool,
    /// The record at which most was allocated.
    peak: Option<RecordId>,
    peak_error: Estimate,
    at_end: Option<AtEnd>,
}

impl Attribution {
    /// Of a recording, its operator trace and the names of its allocations.
    pub fn of(snapshot: &Snapshot, recorded: &RecordedTrace, names: EventNames) -> Self {
        let mut record_of_row: Vec<Option<RecordId>> = vec![None; snapshot.events.len()];
        let mut samples: HashMap<RecordId, Weighed, RandomState> = HashMap::default();
        for (record, row) in (0..).zip(&recorded.rows).filter_map(|(record, row)| Some((record, (*row)?))) {
            record_of_row[row as usize] = Some(record);
            let weighed = snapshot.weighed_event(row as usize);
            if weighed.estimated {
                samples.insert(record, weighed);
            }
        }
        let mut devices: HashMap<DeviceIndex, OfDevice, RandomState> = HashMap::default();
        for device in snapshot.device_ids() {
            let name = device_name(device);
            let Some(place) = recorded.trace.devices.iter().position(|other| *other == name) else {
                continue;
            };
            let lifetimes = lifetimes(snapshot, device);
            let peak = Peak::of(snapshot, device, &lifetimes);
            let of_device = OfDevice {
                precision: Precision::of(snapshot, device, &lifetimes),
                is_estimate: is_estimate(snapshot, device, &lifetimes),
                // An event without bytes is no record.
                peak: peak.row.and_then(|row| record_of_row[..=row].iter().rev().find_map(|record| *record)),
                peak_error: peak.error,
                at_end: counted_at_end(snapshot, device, &lifetimes),
            };
            devices.insert(DeviceIndex(place as u16), of_device);
        }
        Self { names, rows: recorded.rows.clone(), samples, devices }
    }

    /// What `top` calls the operator of an allocation's record.
    pub fn operator(&self, record: RecordId) -> Option<&str> {
        self.names.operator(self.row(record)?)
    }

    /// What `top` calls its module.
    pub fn module(&self, record: RecordId) -> Option<&str> {
        self.names.module(self.row(record)?)
    }

    /// Whether sums over the blocks of a device are estimates.
    pub fn is_estimate(&self, device: DeviceIndex) -> bool {
        self.devices.get(&device).is_some_and(|of| of.is_estimate)
    }

    /// How high the peak of a device is, as all reports on the recording have it; `None` where it is exact.
    pub fn peak_error(&self, device: DeviceIndex) -> Option<Estimate> {
        self.devices.get(&device).filter(|of| of.is_estimate).map(|of| of.peak_error)
    }

    /// The record at which most of a device was allocated.
    pub(crate) fn peak(&self, device: DeviceIndex) -> Option<RecordId> {
        self.devices.get(&device)?.peak
    }

    /// What the recorder counted at the end, where sums over blocks are estimates.
    pub(crate) fn at_end(&self, device: DeviceIndex) -> Option<AtEnd> {
        self.devices.get(&device)?.at_end
    }

    /// What the block of a record stands for, if it was sampled.
    pub(crate) fn sample(&self, record: RecordId) -> Option<Weighed> {
        self.samples.get(&record).copied()
    }

    /// What a sum of bytes of a device is known to; exact for a device that is not known.
    pub(crate) fn bytes(&self, device: DeviceIndex, sum: &Sum) -> Estimate {
        self.devices.get(&device).map_or(Estimate::exact(sum.value()), |of| of.precision.bytes(sum))
    }

    /// What a sum of blocks is known to.
    pub(crate) fn blocks(&self, device: DeviceIndex, sum: &Sum) -> Estimate {
        self.devices.get(&device).map_or(Estimate::exact(sum.value()), |of| of.precision.blocks(sum))
    }

    fn row(&self, record: RecordId) -> Option<usize> {
        Some(self.rows.get(record as usize).copied().flatten()? as usize)
    }
}

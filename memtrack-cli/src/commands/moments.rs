//! Resolves the moment that a report covers.

use crate::args::At;
use crate::error::CliError;
use memtrack_core::analysis::moment::Moment;
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;

/// Returns the requested moment on one device.
///
/// # Errors
/// Returns a usage error if the device had no such moment.
pub(super) fn find_moment(snapshot: &Snapshot, device: DeviceId, at: At) -> Result<Moment, CliError> {
    let name = snapshot.device_name(device);
    match at {
        At::Peak => Ok(Moment::Peak),
        At::End => Ok(Moment::End),
        At::Oom => Moment::last_oom(snapshot, device)
            .ok_or_else(|| CliError::Usage(format!("{name} never ran out of memory in this file"))),
        At::Event(number) => Moment::event(snapshot, device, number).ok_or_else(|| {
            let count = Moment::events(snapshot, device);
            CliError::Usage(format!("{name} has no event {number}; it has {count}, counted from 0"))
        }),
    }
}

/// Removes the devices that do not have the moment, unless none of them has it.
pub(super) fn keep_devices_with_moment(snapshot: &Snapshot, devices: &mut Vec<DeviceId>, at: Option<At>) {
    let has = |device: DeviceId| at.is_none_or(|at| find_moment(snapshot, device, at).is_ok());
    if devices.iter().any(|&device| has(device)) {
        devices.retain(|&device| has(device));
    }
}

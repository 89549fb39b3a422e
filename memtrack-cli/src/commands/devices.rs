//! The devices a report is about.

use crate::error::CliError;
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;

/// The device asked for, or all that the snapshot has.
///
/// # Errors
/// A usage error when it has no such device.
pub(super) fn chosen(snapshot: &Snapshot, asked: Option<u16>) -> Result<Vec<DeviceId>, CliError> {
    let Some(ordinal) = asked else { return Ok(snapshot.device_ids()) };
    snapshot.device_at(ordinal).map(|device| vec![device]).ok_or_else(|| {
        let there: Vec<_> =
            snapshot.device_ids().iter().map(|&device| snapshot.ordinal(device).to_string()).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        CliError::Usage(format!("the file has no device {ordinal}; it has: {there}"))
    })
}

//! Selects the devices that a report covers.

use crate::args::device::{DeviceSelector, selector_name};
use crate::error::CliError;
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;

/// Returns the requested device, or all devices in the snapshot if none is requested.
///
/// # Errors
/// Returns a usage error if the snapshot has no such device.
pub(super) fn select_devices(
    snapshot: &Snapshot,
    requested: Option<DeviceSelector>,
) -> Result<Vec<DeviceId>, CliError> {
    let available = snapshot.device_ids();
    let Some(requested) = requested else { return Ok(available) };
    let is_requested = |&device: &DeviceId| match requested {
        DeviceSelector::Ordinal(ordinal) => snapshot.ordinal(device) == ordinal,
        DeviceSelector::Kind(kind) => snapshot.device_kind(device) == kind,
    };
    available.iter().copied().find(is_requested).map(|device| vec![device]).ok_or_else(|| {
        let number = |device: &DeviceId| {
            let number = snapshot.ordinal(*device);
            match selector_name(snapshot.device_kind(*device)) {
                Some(name) => format!("{number} ({name})"),
                None => number.to_string(),
            }
        };
        let available: Vec<_> = available.iter().map(number).collect();
        let available = if available.is_empty() { "none".to_owned() } else { available.join(", ") };
        CliError::Usage(format!("the file has no {requested}; it has: {available}"))
    })
}

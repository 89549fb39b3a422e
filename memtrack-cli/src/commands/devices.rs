//! The devices a report is about.

use crate::args::device::DeviceSelector;
use crate::error::CliError;
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;

/// Returns the requested device, or all that the snapshot has.
///
/// # Errors
/// A usage error when it has no such device.
pub(super) fn chosen(
    snapshot: &Snapshot,
    requested: Option<DeviceSelector>,
) -> Result<Vec<DeviceId>, CliError> {
    let there = snapshot.device_ids();
    let Some(requested) = requested else { return Ok(there) };
    let is_it = |&device: &DeviceId| match requested {
        DeviceSelector::Ordinal(ordinal) => snapshot.ordinal(device) == ordinal,
        DeviceSelector::Host => snapshot.is_heap(device),
        DeviceSelector::Pinned => snapshot.is_pinned(device),
    };
    there.iter().copied().find(is_it).map(|device| vec![device]).ok_or_else(|| {
        let number = |device: &DeviceId| {
            let number = snapshot.ordinal(*device);
            match (snapshot.is_heap(*device), snapshot.is_pinned(*device)) {
                (true, _) => format!("{number} (host)"),
                (_, true) => format!("{number} (pinned)"),
                _ => number.to_string(),
            }
        };
        let there: Vec<_> = there.iter().map(number).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        CliError::Usage(format!("the file has no {requested}; it has: {there}"))
    })
}

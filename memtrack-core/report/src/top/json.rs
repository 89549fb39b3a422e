//! What a ranking's JSON has in another form: the recorder's counts. Unknown numbers are null, such as exact counts that the
//! recorder did not keep.

use super::TopReport;
use memtrack_model::snapshot::DeviceStatistics;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The recorder's counts for a device.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(super) struct Counts {
    /// The number of the device's recorded events.
    recorded_events: u64,
    /// The number of older events that the recorder dropped.
    dropped_events: u64,
    /// The requested bytes of all allocations by the recorder's own count; null if the recorder did not count them.
    exact_requested_bytes: Option<u64>,
    /// The number of all allocations by the recorder's own count; null if the recorder did not count them.
    exact_allocations: Option<u64>,
}

pub(super) fn serialize_counts<S: Serializer>(of: &DeviceStatistics, to: S) -> Result<S::Ok, S::Error> {
    let exact = |count: u64| of.counted.then_some(count);
    let counts = Counts {
        recorded_events: of.recorded,
        dropped_events: of.dropped,
        exact_requested_bytes: exact(of.allocated_bytes),
        exact_allocations: exact(of.allocations),
    };
    counts.serialize(to)
}

impl TopReport {
    /// Returns the report as JSON, as `memtrack top --json` prints it.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

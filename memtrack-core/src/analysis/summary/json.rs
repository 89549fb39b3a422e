//! A summary as JSON: bytes and counts as integers, times in seconds, shares from 0 to 1.

use super::{DeviceSummary, DriverMoment, Oom};
use serde_json::{Value, json};

impl DeviceSummary {
    /// The summary as JSON.
    pub fn to_json(&self) -> Value {
        let held = &self.held;
        json!({
            "device": self.device,
            "is_host": self.is_host,
            "is_pinned": self.is_pinned,
            "segments": held.segments,
            "expandable_segments": held.expandable,
            "reserved_bytes": held.reserved,
            "allocated_bytes": held.allocated,
            "allocated_blocks": held.blocks,
            "requested_bytes": held.requested,
            "active_bytes": held.active(),
            "inactive_bytes": held.inactive,
            "inactive_split_bytes": held.inactive_split,
            "largest_inactive_bytes": held.largest_inactive,
            "largest_inactive_split_bytes": held.largest_inactive_split,
            "fragmentation": held.fragmentation(),
            "internal_free_bytes": held.rounding(),
            "external_free_bytes": held.inactive,
            "pending_free_bytes": held.pending,
            "pending_free_blocks": held.pending_blocks,
            "releasable_bytes": held.free_segment_bytes,
            "peak": {
                "allocated_bytes": self.peak.allocated_bytes,
                "event": self.peak.event,
                "seconds": self.peak.seconds,
                "reserved_bytes": self.peak.reserved_bytes,
            },
            "reserved_peak_bytes": self.reserved_peak.bytes,
            "events": self.events,
            "dropped_events": self.dropped,
            "dropped_parts": self.earlier_parts,
            "older_blocks": self.older.0,
            "older_bytes": self.older.1,
            "frees_without_allocation": self.frees_without_allocation,
            "live_at_end_bytes": self.kept.0,
            "live_at_end_blocks": self.kept.1,
            "out_of_memory_events": self.oom_count,
            "out_of_memory": self.ooms.iter().map(oom).collect::<Vec<_>>(),
            "contradictions": self.contradictions(),
            "driver": self.driver.iter().map(DriverMoment::as_json).collect::<Vec<_>>(),
            "look_first": self.look_first(),
        })
    }
}

fn oom(oom: &Oom) -> Value {
    json!({
        "event": oom.event,
        "seconds": oom.seconds,
        "requested_bytes": oom.requested_bytes,
        "device_free_bytes": oom.device_free_bytes,
        "live_bytes": oom.live_bytes,
        "live_blocks": oom.live_blocks,
    })
}

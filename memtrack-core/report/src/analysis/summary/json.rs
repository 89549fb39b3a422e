//! A summary as JSON: bytes and counts as integers, times in seconds, shares from 0 to 1. `allocated` is what PyTorch's
//! statistics call so, rounded; `requested`, and every sum over the trace, is what its sizes add up to. What has no
//! meaning on a heap, or is not known, is `null`.

use super::{DeviceSummary, DriverMoment, Held, Oom};
use memtrack_model::snapshot::Since;
use serde_json::{Value, json};

impl DeviceSummary {
    /// The summary as JSON.
    pub fn to_json(&self) -> Value {
        let held = &self.held;
        let (allocated_bytes, allocated_blocks, estimated) = self.allocated();
        let requested_bytes =
            if !self.tells_reserved { allocated_bytes.into() } else { Value::from(held.requested) };
        let active_bytes = allocated_bytes.saturating_add_unsigned(held.pending);
        // A heap's blocks lie in no segments: what is said of those has no meaning there.
        let of_segments = |number: u64| self.tells_reserved.then_some(number);
        let mut value = json!({
            "device": self.device,
            "is_host": self.is_host,
            "is_pinned": self.is_pinned,
            "segments": of_segments(held.segments),
            "expandable_segments": of_segments(held.expandable),
            "reserved_bytes": of_segments(held.reserved),
            "resident_bytes": self.resident_bytes,
            "allocated_bytes": allocated_bytes,
            "allocated_blocks": allocated_blocks,
            "requested_bytes": requested_bytes,
            "active_bytes": active_bytes,
            "estimated": estimated,
            "inactive_bytes": of_segments(held.inactive),
            "inactive_split_bytes": of_segments(held.inactive_split),
            "largest_inactive_bytes": of_segments(held.largest_inactive),
            "largest_inactive_split_bytes": of_segments(held.largest_inactive_split),
            "fragmentation": self.tells_reserved.then(|| held.fragmentation()),
            "internal_free_bytes": of_segments(held.rounding()),
            "external_free_bytes": of_segments(held.inactive),
            "pending_free_bytes": held.pending,
            "pending_free_blocks": held.pending_blocks,
            "releasable_bytes": of_segments(held.free_segment_bytes),
            "peak": {
                "requested_bytes": self.peak_bytes(),
                "estimated": self.peak.estimated,
                "event": self.peak.event,
                "seconds": self.peak.seconds,
                "seconds_since": self.peak.since.name(),
                "reserved_bytes": of_segments(self.peak.reserved_bytes),
                "categories": self.peak.made_of.as_ref().map(|report| report.to_json()["rows"].clone()),
            },
            "reserved_peak_bytes": of_segments(self.reserved_peak.bytes),
            "events": self.events,
            "dropped_events": self.dropped,
            "dropped_parts": self.earlier_parts,
            "older_blocks": self.older.blocks,
            "older_bytes": self.older.bytes,
            "older_estimated": self.older.estimated,
            "frees_without_allocation": self.frees_without_allocation,
            "live_at_end_bytes": self.kept.bytes,
            "live_at_end_blocks": self.kept.blocks,
            "live_at_end_estimated": self.kept.estimated,
            "out_of_memory_events": self.oom_count,
            "out_of_memory": self.ooms.iter().map(oom).collect::<Vec<_>>(),
            "contradictions": self.contradictions(),
            "driver": self.driver.iter().map(DriverMoment::as_json).collect::<Vec<_>>(),
            "look_first": self.look_first(),
        });
        let pools = || self.private_pools.iter().map(pool).collect::<Vec<_>>();
        value["private_pools"] = json!(self.tells_reserved.then(pools));
        // Of what a PyTorch program could not keep nothing is said.
        let is_ours = self.peak.since == Since::Start;
        value["folded_scopes"] = is_ours.then_some(self.folded_scopes).into();
        value["folded"] = json!(is_ours.then_some(self.folded));
        self.peak_error().put("requested_bytes", &mut value["peak"]);
        self.older.bytes_error.put("older_bytes", &mut value);
        self.older.blocks_error.put("older_blocks", &mut value);
        self.kept.bytes_error.put("live_at_end_bytes", &mut value);
        self.kept.blocks_error.put("live_at_end_blocks", &mut value);
        value
    }
}

fn pool(&((first, second), held): &((u64, u64), Held)) -> Value {
    json!({
        "pool": [first, second],
        "segments": held.segments,
        "reserved_bytes": held.reserved,
        "allocated_bytes": held.allocated,
        "allocated_blocks": held.blocks,
        "requested_bytes": held.requested,
        "pending_free_bytes": held.pending,
        "inactive_bytes": held.inactive,
    })
}

fn oom(oom: &Oom) -> Value {
    let mut value = json!({
        "event": oom.event,
        "seconds": oom.seconds,
        "seconds_since": oom.since.name(),
        "requested_bytes": oom.requested_bytes,
        "device_free_bytes": oom.device_free_bytes,
        "live_bytes": oom.live.bytes,
        "live_blocks": oom.live.blocks,
        "live_estimated": oom.live.estimated,
    });
    oom.live.bytes_error.put("live_bytes", &mut value);
    oom.live.blocks_error.put("live_blocks", &mut value);
    value
}

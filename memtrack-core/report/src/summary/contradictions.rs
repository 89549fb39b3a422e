//! Contradictions between a snapshot's trace and its segments. They show that the two were captured at different
//! moments or that one of them is incomplete. Numbers that depend on both are then unreliable, so the summary lists the
//! contradictions.

use super::DeviceSummary;
use memtrack_blocks::lifetimes::Lifetime;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::units::{counted, human_bytes, human_count};
use std::collections::HashSet;

/// Returns the number and bytes of blocks that are live at the end of the trace of `device` but are in no segment.
pub(super) fn count_outside_segments(
    snapshot: &Snapshot,
    device: DeviceId,
    lifetimes: &[Lifetime],
) -> (u64, u64) {
    let of_device = snapshot.blocks.iter().filter(|block| block.device == device);
    let held: HashSet<u64> = of_device.map(|block| block.address).collect();
    let retained = lifetimes.iter().filter(|one| one.to.is_none());
    let missing =
        retained.filter(|one| one.from.is_some_and(|row| !held.contains(&snapshot.events.address[row])));
    missing.fold((0, 0u64), |(blocks, bytes), one| (blocks + 1, bytes.saturating_add(one.bytes)))
}

impl DeviceSummary {
    /// Describes the contradictions, with their numbers. The host heap has none: no segments are reserved for it, and
    /// its blocks may exceed its resident pages, because allocated memory need not have been touched.
    pub fn contradictions(&self) -> Vec<String> {
        if !self.has_reserved_bytes || self.held.segments == 0 {
            return Vec::new();
        }
        let mut all = Vec::new();
        let (peak, reserved) = (self.peak.highest.requested_bytes, self.reserved_peak.bytes);
        if peak > reserved {
            all.push(format!(
                "the trace has {} live at its peak, but its segments never came to more than {}",
                format_distinct_bytes(peak, reserved),
                format_distinct_bytes(reserved, peak)
            ));
        }
        let now = self.held.requested().filter(|_| !self.held.estimated).unwrap_or(0);
        if now > peak {
            all.push(format!(
                "the segments hold {} requested, but the peak of the trace is {}",
                format_distinct_bytes(now, peak),
                format_distinct_bytes(peak, now)
            ));
        }
        let (blocks, bytes) = self.outside_segments;
        if blocks > 0 {
            all.push(format!(
                "the trace leaves {} in {} live that no segment holds",
                human_bytes(bytes),
                counted(blocks, "block")
            ));
        }
        all
    }
}

/// Formats `bytes` for human readers, but as an exact number if it would otherwise look the same as `other`.
fn format_distinct_bytes(bytes: u64, other: u64) -> String {
    let text = human_bytes(bytes);
    if text == human_bytes(other) { format!("{} bytes", human_count(bytes)) } else { text }
}

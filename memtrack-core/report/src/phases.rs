//! A short report on the memory that each phase requested and held at the peak, and on the phase and operator of the
//! peak. Programs print it after a run; the numbers are those of [`top`](crate::top) by phase.

use crate::top::{By, TopOptions, TopReport, TopRow, top_with};
use memtrack_blocks::estimate::Estimate;
use memtrack_blocks::peak::Peak;
use memtrack_model::answer::NameAnswer;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_symbols::Symbolizer;
use serde::Serialize;
use std::fmt;

/// The phases and the peak of one device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PhaseReport {
    /// One row for each phase that allocated memory or had live memory at the peak: forward, backward, optimizer,
    /// `(no phase)`, and blocks that are older than the recording.
    pub rows: Vec<TopRow>,
    /// The peak of the device's live bytes.
    pub peak: Peak,
}

/// Adds up the memory of each phase on `device`.
pub fn phases(snapshot: &Snapshot, device: DeviceId) -> PhaseReport {
    let options = TopOptions::new().limit(usize::MAX);
    let symbols = &mut Symbolizer::of(snapshot);
    let TopReport { mut rows, peak, .. } = top_with(snapshot, symbols, By::Phase, device, &options);
    // Sort in the order of a training step, not by size.
    let order = ["forward", "backward", "optimizer", "(no phase)"];
    rows.sort_by_key(|row| order.iter().position(|&phase| phase == row.name).unwrap_or(order.len()));
    PhaseReport { rows, peak }
}

impl PhaseReport {
    /// Returns the report as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let row = |row: &TopRow| PhaseAnswer {
            phase: NameAnswer::from_text(&row.name).name,
            requested_bytes: row.allocated_bytes,
            requested_bytes_error: row.allocated_error,
            live_at_peak_bytes: row.live_at_peak_bytes,
            live_at_peak_bytes_error: row.live_at_peak_error,
            count: row.count,
            count_error: row.count_error,
            estimated: row.estimated,
            live_at_peak_estimated: row.live_estimated,
        };
        serde_json::to_value(PhasesAnswer { phases: self.rows.iter().map(row).collect(), peak: &self.peak })
            .unwrap_or_default()
    }
}

/// The memory that each phase requested and held.
#[derive(Serialize)]
struct PhasesAnswer<'a> {
    phases: Vec<PhaseAnswer>,
    peak: &'a Peak,
}

/// A phase has only some of what a ranking's row has: no stack, no owner and no age.
#[derive(Serialize)]
struct PhaseAnswer {
    phase: Option<String>,
    requested_bytes: u64,
    requested_bytes_error: Estimate,
    live_at_peak_bytes: u64,
    live_at_peak_bytes_error: Estimate,
    count: u64,
    count_error: Estimate,
    estimated: bool,
    live_at_peak_estimated: bool,
}

impl fmt::Display for PhaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            writeln!(
                f,
                "{:width$}  {:>12} requested  {:>12} live at the peak  {:>10} blocks",
                row.name,
                row.allocated_error.as_bytes(row.allocated_bytes),
                row.live_at_peak_error.as_bytes(row.live_at_peak_bytes),
                row.count_error.as_count(row.count),
            )?;
        }
        writeln!(f, "{}", self.peak.format_line())
    }
}

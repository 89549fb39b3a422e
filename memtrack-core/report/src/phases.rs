//! A short report on the memory that each phase requested and held at the peak, and on the phase and operator of the
//! peak. Programs print it after a run; the numbers are those of [`top`](crate::top) by phase.

use crate::top::{By, TopOptions, TopReport, TopRow, top_with};
use memtrack_blocks::peak::{Peak, PeakAnswer};
use memtrack_model::answer::{ErrorAnswer, NameAnswer};
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
    /// The phase and operator of the event that reached the peak; `None` if the peak was before the first event.
    pub peak_phase_and_operator: Option<(String, String)>,
}

/// Adds up the memory of each phase on `device`.
pub fn phases(snapshot: &Snapshot, device: DeviceId) -> PhaseReport {
    let options = TopOptions::new().limit(usize::MAX);
    let symbols = &mut Symbolizer::of(snapshot);
    let TopReport { mut rows, peak, peak_phase_and_operator, .. } =
        top_with(snapshot, symbols, By::Phase, device, &options);
    // Sort in the order of a training step, not by size.
    let order = ["forward", "backward", "optimizer", "(no phase)"];
    rows.sort_by_key(|row| order.iter().position(|&phase| phase == row.name).unwrap_or(order.len()));
    PhaseReport { rows, peak, peak_phase_and_operator }
}

impl PhaseReport {
    /// Returns the report as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let row = |row: &TopRow| PhaseAnswer {
            phase: NameAnswer::from_text(&row.name).name,
            requested_bytes: row.allocated_bytes,
            requested_bytes_error: row.errors.allocated_bytes.answer(),
            live_at_peak_bytes: row.live_at_peak_bytes,
            live_at_peak_bytes_error: row.errors.live_at_peak_bytes.answer(),
            count: row.count,
            count_error: row.errors.count.answer(),
            estimated: row.estimated,
            live_at_peak_estimated: row.live_estimated,
        };
        let (phases, peak) =
            (self.rows.iter().map(row).collect(), self.peak.answer(self.peak_phase_and_operator.as_ref()));
        serde_json::to_value(PhasesAnswer { phases, peak }).unwrap_or_default()
    }
}

/// The memory that each phase requested and held.
#[derive(Serialize)]
struct PhasesAnswer {
    phases: Vec<PhaseAnswer>,
    peak: PeakAnswer,
}

#[derive(Serialize)]
struct PhaseAnswer {
    phase: Option<String>,
    requested_bytes: u64,
    requested_bytes_error: Option<ErrorAnswer>,
    live_at_peak_bytes: u64,
    live_at_peak_bytes_error: Option<ErrorAnswer>,
    count: u64,
    count_error: Option<ErrorAnswer>,
    estimated: bool,
    live_at_peak_estimated: bool,
}

impl fmt::Display for PhaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            let errors = &row.errors;
            writeln!(
                f,
                "{:width$}  {:>12} requested  {:>12} live at the peak  {:>10} blocks",
                row.name,
                errors.allocated_bytes.as_bytes(row.allocated_bytes),
                errors.live_at_peak_bytes.as_bytes(row.live_at_peak_bytes),
                errors.count.as_count(row.count),
            )?;
        }
        writeln!(f, "{}", self.peak.format_line(self.peak_phase_and_operator.as_ref()))
    }
}

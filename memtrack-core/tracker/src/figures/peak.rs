//! Text that describes the peak of a run: its height, and its distance above the highest sample. The peak can lie above
//! all samples, because the series are sampled only when operators end.

use super::marks::display_name;
use crate::{AllocatedPeak, TrackerStats};
use memtrack_model::units::human_bytes;

/// The peak of a run, with the texts that describe it in a figure.
pub(super) struct PeakLabel<'a> {
    peak: &'a AllocatedPeak,
    stats: &'a TrackerStats,
    /// The highest sample, in MiB.
    sampled_mib: f64,
}

impl<'a> PeakLabel<'a> {
    /// Returns the peak of a run, if it is known and can be drawn on an axis.
    pub(super) fn of(stats: &'a TrackerStats) -> Option<Self> {
        let peak = stats.peak.as_ref().filter(|peak| super::steps::is_drawable(peak.least_mib))?;
        let samples = stats.memories_allocated.iter().map(|sample| sample.mib);
        let folded = (stats.folded.operators > 0).then_some(stats.folded.peak_allocated_mib);
        let sampled_mib = samples.chain(folded).fold(f64::NEG_INFINITY, f64::max);
        Some(Self { peak, stats, sampled_mib })
    }

    /// Returns the height of the peak in MiB, which is never below a sample.
    pub(super) fn height_mib(&self) -> f64 {
        self.peak.least_mib.max(self.sampled_mib)
    }

    /// Returns the index of the operator during which the peak was reached, or of the next operator to end.
    pub(super) fn call_index(&self) -> Option<f64> {
        self.peak.op_index.map(|index| index as f64)
    }

    /// Formats only the height of the peak, as in `peak 77.7 MiB`.
    pub(super) fn format_short(&self) -> String {
        format!("peak {}{}", self.bound_prefix(), format_mib(self.height_mib()))
    }

    /// Formats the peak with its operator and its height above the highest sample.
    pub(super) fn format_long(&self) -> String {
        let above = self.height_mib() - self.sampled_mib;
        let above = match format_mib(above) {
            _ if !(above > 0.0 && self.sampled_mib.is_finite()) => String::new(),
            above => format!(": {}{above} above the highest value after an operator", self.bound_prefix()),
        };
        format!("{}{}{above}", self.format_short(), self.format_position())
    }

    /// Returns the prefix that marks a number as a lower bound, or an empty string if the peak is exact.
    fn bound_prefix(&self) -> &'static str {
        if self.peak.is_exact() { "" } else { "at least " }
    }

    fn format_position(&self) -> String {
        let Some(index) = self.peak.op_index else {
            return ", before the operators that were kept".to_owned();
        };
        let sample = usize::try_from(index).ok().and_then(|index| self.stats.memories_allocated.get(index));
        match sample {
            Some(sample) if self.peak.is_inside => format!(" inside {}", display_name(&sample.operator)),
            Some(sample) => format!(" before {} ended", display_name(&sample.operator)),
            None => " after the last operator".to_owned(),
        }
    }
}

/// Formats an amount of memory, given in MiB, with a suitable unit.
fn format_mib(mib: f64) -> String {
    let sign = if mib < 0.0 { "−" } else { "" };
    format!("{sign}{}", human_bytes((mib.abs() * 1_048_576.0).round() as u64))
}

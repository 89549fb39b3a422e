//! The peak of a run as text: its height, and the part of it that is missing in the series, which are sampled
//! when operators end.

use super::marks::readable;
use crate::tracker::{AllocatedPeak, TrackerStats};
use memtrack_model::units::human_bytes;

/// The peak of a run beside its samples.
pub(super) struct ShownPeak<'a> {
    peak: &'a AllocatedPeak,
    stats: &'a TrackerStats,
    /// The highest sample, in MiB.
    sampled_mib: f64,
}

impl<'a> ShownPeak<'a> {
    /// Returns the peak, if it is known and has a place on an axis.
    pub(super) fn of(stats: &'a TrackerStats) -> Option<Self> {
        let peak = stats.peak.as_ref().filter(|peak| super::steps::is_drawable(peak.least_mib))?;
        let samples = stats.memories_allocated.iter().map(|sample| sample.mib);
        let folded = (stats.folded.operators > 0).then_some(stats.folded.peak_allocated_mib);
        let sampled_mib = samples.chain(folded).fold(f64::NEG_INFINITY, f64::max);
        Some(Self { peak, stats, sampled_mib })
    }

    /// Returns its height in MiB. No peak is below a sample.
    pub(super) fn mib(&self) -> f64 {
        self.peak.least_mib.max(self.sampled_mib)
    }

    /// Returns the index of the operator to which it belongs.
    pub(super) fn call(&self) -> Option<f64> {
        self.peak.op_index.map(|index| index as f64)
    }

    /// Formats `peak 77.7 MiB`.
    pub(super) fn short(&self) -> String {
        format!("peak {}{}", self.mark(), shown(self.mib()))
    }

    /// Formats the same with its operator, and its distance above the highest sample.
    pub(super) fn long(&self) -> String {
        let above = self.mib() - self.sampled_mib;
        let above = match shown(above) {
            _ if !(above > 0.0 && self.sampled_mib.is_finite()) => String::new(),
            above => format!(": {}{above} above the highest value after an operator", self.mark()),
        };
        format!("{}{}{above}", self.short(), self.place())
    }

    /// Returns the prefix of a number that may be higher.
    fn mark(&self) -> &'static str {
        if self.peak.is_exact() { "" } else { "at least " }
    }

    fn place(&self) -> String {
        let Some(index) = self.peak.op_index else {
            return ", before the operators that were kept".to_owned();
        };
        let sample = usize::try_from(index).ok().and_then(|index| self.stats.memories_allocated.get(index));
        match sample {
            Some(sample) if self.peak.is_inside => format!(" inside {}", readable(&sample.operator)),
            Some(sample) => format!(" before {} ended", readable(&sample.operator)),
            None => " after the last operator".to_owned(),
        }
    }
}

/// Formats MiB for people.
fn shown(mib: f64) -> String {
    let sign = if mib < 0.0 { "−" } else { "" };
    format!("{sign}{}", human_bytes((mib.abs() * 1_048_576.0).round() as u64))
}

//! Compares a file's peaks with the peaks of a base file, within a tolerance, for `memtrack check --against`.

use super::json;
use super::{DeviceDiff, Diff, UnmatchedDevice};
use crate::check::Verdict;
use memtrack_blocks::change::{Amount, Change};
use memtrack_model::answer::DeviceAnswer;
use serde::Serialize;

/// The growth of one device's peak from the earlier file to the later one, and the verdict on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Growth {
    /// The device whose peak is compared.
    pub device: DeviceAnswer,
    /// The result of comparing the growth with the tolerance. For estimates, the verdict is certain only if the whole
    /// confidence interval lies on one side of the tolerance.
    pub verdict: Verdict,
    /// The highest peak of the later file that is still within the tolerance.
    pub limit_bytes: u64,
    /// The groups that made the peak grow, or a note that the earlier file lacks the device, as text; null if there is
    /// neither.
    pub reasons: Option<String>,
    /// The device's peak in both files.
    #[serde(flatten, serialize_with = "json::serialize_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "json::BytesChangeAnswer"))]
    pub bytes: Change,
}

/// The device peaks in a file, compared with those in an earlier file, as `memtrack check --against --json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PeakComparison {
    /// The allowed growth of a device's peak, as a share of its earlier peak.
    pub tolerance: f64,
    /// The peak growth of each device in the later file.
    pub devices: Vec<Growth>,
    /// A line of text for each device whose peak grew by more than the tolerance.
    pub exceeded: Vec<String>,
    /// A line of text for each device whose verdict is uncertain because of the margin of error of an estimate.
    pub cannot_tell: Vec<String>,
}

impl Growth {
    fn of(device: &DeviceAnswer, bytes: Change, tolerance: f64, reasons: String) -> Self {
        Self {
            device: device.clone(),
            verdict: judge(&bytes, tolerance),
            limit_bytes: tolerated_bytes(bytes.before.value as f64, tolerance).floor() as u64,
            reasons: Some(reasons).filter(|reasons| !reasons.is_empty()),
            bytes,
        }
    }

    /// Formats a sentence such as `peak of device 0 grew by 3.00 GiB (+25.0 %, 12.0 GiB → 15.0 GiB; tolerance 5 %):
    /// softmax … +3.00 GiB`.
    fn to_line(&self, tolerance: f64) -> String {
        let Change { before, after } = &self.bytes;
        let by = self.bytes.format_bytes();
        let percent = match before.value {
            0 => "from nothing".to_owned(),
            value => format!("{:+.1} %", self.bytes.by() as f64 / value as f64 * 100.0),
        };
        let shown = |amount: &Amount| amount.error.as_bytes(amount.value);
        let reasons = self.reasons.as_ref().map_or(String::new(), |reasons| format!(": {reasons}"));
        format!(
            "peak of {} grew by {} ({percent}, {} → {}; tolerance {}){reasons}",
            self.device.name,
            by.trim_start_matches('+'),
            shown(before),
            shown(after),
            format_percentage(tolerance),
        )
    }
}

impl PeakComparison {
    /// Judges the growth of each device's peak. A device that is missing from the earlier file counts as 0 bytes there.
    pub fn of(diff: &Diff, tolerance: f64) -> Self {
        let grown = |device: &DeviceDiff| {
            let grew: Vec<_> = device.rows.iter().filter(|row| row.bytes.by() > 0).cloned().collect();
            let grew = DeviceDiff { rows_in_all: grew.len(), rows: grew, ..device.clone() };
            Growth::of(&device.device, device.bytes, tolerance, grew.format_reasons())
        };
        let new = |new: &UnmatchedDevice| {
            let bytes = Change { before: Amount::exact(0), after: Amount::new(new.bytes, new.error) };
            Growth::of(&new.device, bytes, tolerance, "the base does not have this device".into())
        };
        let devices: Vec<Growth> =
            diff.devices.iter().map(grown).chain(diff.only_after.iter().map(new)).collect();
        let lines = |verdict| {
            let judged = devices.iter().filter(|growth| growth.verdict == verdict);
            judged.map(|growth| growth.to_line(tolerance)).collect()
        };
        let (exceeded, cannot_tell) = (lines(Verdict::Exceeded), lines(Verdict::CannotTell));
        Self { tolerance, devices, exceeded, cannot_tell }
    }

    /// Formats each device's peak growth relative to the base.
    pub fn to_text(&self) -> String {
        let device =
            |growth: &Growth| format!("peak of {} {}", growth.device.name, growth.bytes.format_bytes());
        let devices: Vec<String> = self.devices.iter().map(device).collect();
        format!("{} against the base", devices.join(", "))
    }
}

/// Returns the highest number of bytes that is still within the tolerance of `before`.
fn tolerated_bytes(before: f64, tolerance: f64) -> f64 {
    before * (1.0 + tolerance)
}

/// Compares a change with the tolerance. For estimates, the errors of both numbers are taken into account.
fn judge(bytes: &Change, tolerance: f64) -> Verdict {
    let Change { before, after } = bytes;
    if bytes.is_exact() {
        let above = after.value as f64 > tolerated_bytes(before.value as f64, tolerance)
            && after.value > before.value;
        return if above { Verdict::Exceeded } else { Verdict::Within };
    }
    // The allowed number is the earlier number times a constant, so it has the same relative error as the earlier number.
    let mut allowed = before.error;
    for number in [&mut allowed.value, &mut allowed.standard_error, &mut allowed.low, &mut allowed.high] {
        *number = tolerated_bytes(*number, tolerance);
    }
    let above = after.error.minus(&allowed);
    match (above.low > 0.0, above.high > 0.0) {
        (true, _) => Verdict::Exceeded,
        (_, true) => Verdict::CannotTell,
        _ => Verdict::Within,
    }
}

/// Formats a tolerance as a percentage.
fn format_percentage(tolerance: f64) -> String {
    let percent = format!("{:.1}", tolerance * 100.0);
    format!("{} %", percent.strip_suffix(".0").unwrap_or(&percent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_blocks::estimate::Estimate;

    fn estimated(low: f64, value: f64, high: f64) -> Amount {
        Amount::new(
            value as u64,
            Estimate { value, standard_error: 1.0, low, high, bound: high, counted: false },
        )
    }

    #[test]
    fn growth_is_judged_with_its_error() {
        let judged = |before, after| judge(&Change { before, after }, 0.05);
        assert_eq!(judged(Amount::exact(1000), Amount::exact(1050)), Verdict::Within);
        assert_eq!(judged(Amount::exact(1000), Amount::exact(1051)), Verdict::Exceeded);
        assert_eq!(judged(Amount::exact(0), Amount::exact(1)), Verdict::Exceeded);
        assert_eq!(
            judged(estimated(990.0, 1000.0, 1010.0), estimated(990.0, 1000.0, 1010.0)),
            Verdict::Within
        );
        assert_eq!(
            judged(estimated(900.0, 1000.0, 1100.0), estimated(950.0, 1040.0, 1150.0)),
            Verdict::CannotTell
        );
        assert_eq!(
            judged(estimated(990.0, 1000.0, 1010.0), estimated(1190.0, 1200.0, 1210.0)),
            Verdict::Exceeded
        );
    }

    #[test]
    fn tolerance_is_shown_as_it_was_written() {
        assert_eq!([0.05, 0.0, 0.125, 1.0].map(format_percentage), ["5 %", "0 %", "12.5 %", "100 %"]);
    }
}

//! Axis ticks and their labels. An axis has only a handful of ticks, all at round numbers, and a label has no more
//! digits than the distance between ticks requires.

use memtrack_model::units::human_count;

/// The range of values along an axis, with its ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The lower end.
    pub from: f64,
    /// The upper end.
    pub to: f64,
    /// The tick positions, each with its label.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Creates an axis for operator calls that runs from 0 to `count`.
    pub fn of_calls(count: usize) -> Self {
        let to = count.max(1) as f64;
        let step = round_up_step(to / 8.0).max(1.0);
        Self { from: 0.0, to, ticks: compute_ticks(0.0, to, step) }
    }

    /// Creates an axis that runs from 0 to at least `to`, with about `tick_count` ticks. If `ends_at_tick` is set, the
    /// axis ends at its last tick.
    pub fn from_zero(to: f64, tick_count: f64, ends_at_tick: bool) -> Self {
        let to = if to > 0.0 { to } else { 1.0 };
        let step = round_up_step(to / tick_count);
        let to = if ends_at_tick { (to / step - 1e-9).ceil() * step } else { to };
        Self { from: 0.0, to, ticks: compute_ticks(0.0, to, step) }
    }

    /// Creates a memory axis that contains `low..=high`. It includes 0 unless all values are so far from 0 that their
    /// graph would be a flat line.
    pub fn of_memory(low: f64, high: f64) -> Self {
        let (mut from, mut to) = (low.min(0.0), high.max(0.0));
        if low > 0.0 && low > 0.75 * high {
            from = low;
        }
        if high < 0.0 && high < 0.75 * low {
            to = high;
        }
        // A constant value is drawn in the middle of the axis.
        if to - from <= to.abs().max(from.abs()) * 1e-9 {
            let half = if to == 0.0 { 1.0 } else { to.abs() * 0.05 };
            (from, to) = (from - half, to + half);
        }
        let step = round_up_step((to - from) / 5.0);
        // Both ends are ticks, so there is a label above the highest value.
        let (from, to) = ((from / step).floor() * step, (to / step).ceil() * step);
        Self { from, to, ticks: compute_ticks(from, to, step) }
    }

    /// Returns the position of a value on the axis, from 0 to 1.
    pub fn position(&self, value: f64) -> f64 {
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }
}

/// Returns the smallest number that is at least `min` and is 1, 2 or 5 times a power of ten.
fn round_up_step(min: f64) -> f64 {
    let power = 10f64.powi(min.log10().floor() as i32);
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= min * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

fn compute_ticks(from: f64, to: f64, step: f64) -> Vec<(f64, String)> {
    let count = ((to - from) / step + 1e-6).floor().clamp(0.0, 20.0) as usize;
    let values = (0..=count).map(|index| from + index as f64 * step);
    values.map(|value| (value, format_label(value, step))).collect()
}

/// Formats a number with as many decimals as the distance between ticks requires, and commas as thousands separators.
fn format_label(value: f64, step: f64) -> String {
    if value.abs() >= 1e9 || step < 1e-4 {
        return if value == 0.0 { "0".to_owned() } else { format!("{value:.3e}") };
    }
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    // Rounding errors may turn 0 into a tiny negative number, which must not be labelled -0.
    let value = if value.abs() < step / 2.0 { 0.0 } else { value };
    let plain = format!("{value:.decimals$}");
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    format!("{sign}{}{rest}", human_count(digits.parse().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.1.as_str()).collect()
    }

    #[test]
    fn ticks_of_calls_are_whole_numbers() {
        assert_eq!(labels(&Axis::of_calls(3)), ["0", "1", "2", "3"]);
        assert_eq!(
            labels(&Axis::of_calls(70_000)),
            ["0", "10,000", "20,000", "30,000", "40,000", "50,000", "60,000", "70,000"]
        );
        assert_eq!(labels(&Axis::of_calls(0)), ["0", "1"]);
    }

    #[test]
    fn memory_axis_starts_at_zero_unless_values_are_far_from_it() {
        assert_eq!(labels(&Axis::of_memory(0.3, 1.1)), ["0.0", "0.5", "1.0", "1.5"]);
        assert_eq!(
            labels(&Axis::of_memory(1000.0, 1010.0)),
            ["1,000", "1,002", "1,004", "1,006", "1,008", "1,010"]
        );
        assert_eq!(labels(&Axis::of_memory(-1.0, 3.0)), ["-1", "0", "1", "2", "3"]);
    }

    #[test]
    fn flat_and_extreme_values_have_axis() {
        for (low, high) in
            [(0.0, 0.0), (5.0, 5.0), (-2.0, -2.0), (1e16, 1e16 + 2.0), (-1e300, 1e300), (1e-300, 2e-300)]
        {
            let axis = Axis::of_memory(low, high);
            assert!(axis.from < axis.to && axis.from <= low && axis.to >= high, "{axis:?}");
            assert!((2..=21).contains(&axis.ticks.len()), "{axis:?}");
        }
    }
}

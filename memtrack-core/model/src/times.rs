//! Times formatted for people, each with its unit. The forms differ because what they are for does: ages are compared within a
//! column, so all have one digit after the point; periods and what was held earlier are rounded as people say them; moments of
//! operators are distinguished by their last digits.

/// Formats an age, as in `850 ns`, `12.3 ms`, `12.3 s`, `2.5 h` or `10.4 d`.
pub fn human_age(ns: u64) -> String {
    let shown = |number: f64, unit: &str| {
        let digits = usize::from(number < 999.95);
        format!("{number:.digits$} {unit}")
    };
    match ns as f64 {
        ns if ns < 1e3 => format!("{ns} ns"),
        ns if ns < 1e6 => shown(ns / 1e3, "µs"),
        ns if ns < 1e9 => shown(ns / 1e6, "ms"),
        ns if ns < 120e9 => shown(ns / 1e9, "s"),
        ns if ns < 7200e9 => shown(ns / 60e9, "min"),
        ns if ns < 172_800e9 => shown(ns / 3600e9, "h"),
        ns => shown(ns / 86_400e9, "d"),
    }
}

/// Formats the length of a period, as in `12.3 ms`, `1.50 s`, `10 min` or `2.5 h`.
pub fn human_period(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.2} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Formats a time for a sentence, as in `12.3 ms`, `1.5 s`, `10 minutes` or `2.5 hours`.
pub fn human_time_in_words(seconds: f64) -> String {
    match seconds {
        s if s < 0.1 => format!("{:.1} ms", s * 1000.0),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s => format!("{:.1} hours", s / 3600.0),
    }
}

/// Formats a moment in an operator trace, as in `850 ns`, `1.5 µs`, `12.34 ms` or `1.234 s`.
pub fn human_moment(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_digit_after_point() {
        for (ns, text) in [
            (0, "0 ns"),
            (850, "850 ns"),
            (1500, "1.5 µs"),
            (12_345_678, "12.3 ms"),
            (999_999_999, "1000 ms"),
            (12_300_000_000, "12.3 s"),
            (119_000_000_000, "119.0 s"),
            (150_000_000_000, "2.5 min"),
            (9_000_000_000_000, "2.5 h"),
            (900_000_000_000_000, "10.4 d"),
        ] {
            assert_eq!(human_age(ns), text);
        }
    }

    #[test]
    fn periods_and_times_have_suitable_units() {
        let shown = [3e-9, 2.5e-6, 0.0123, 1.5, 600.0, 9000.0].map(human_period);
        assert_eq!(shown, ["3 ns", "2.5 µs", "12.3 ms", "1.50 s", "10 min", "2.5 h"]);
        let shown = [0.0123, 1.5, 600.0, 9000.0].map(human_time_in_words);
        assert_eq!(shown, ["12.3 ms", "1.5 s", "10 minutes", "2.5 hours"]);
        let shown = [850, 1500, 12_345_678, 1_234_567_890].map(human_moment);
        assert_eq!(shown, ["850 ns", "1.5 µs", "12.35 ms", "1.235 s"]);
    }
}

//! The recommendation based on a table of replays: which settings to use, or why none are recommended.

use super::results::{ReplayReport, ReplayRow};
use memtrack_model::units::{counted, human_bytes, human_count, human_share, printable};

/// The minimum number of requests that a trace must have for a recommendation. With fewer, reserved memory depends
/// mostly on requests from before the trace.
const MIN_REQUESTS: usize = 20;
/// The maximum relative difference between the recording and a replay under the recorded settings. If the
/// difference is larger, the replay does not reproduce the recording.
const MAX_RELATIVE_DIFFERENCE: f64 = 0.02;
/// The minimum share of reserved memory that new settings must save.
const MIN_GAIN: f64 = 0.01;

impl ReplayReport {
    /// Adds the recommendation, or the reason why there is none, unless there are no replays.
    pub(super) fn with_advice(mut self) -> Self {
        if let Some(best) = self.rows.first() {
            let (recommended, advice) = match find_refusal_reason(&self, best) {
                Some(reason) => (None, reason),
                None => recommend(&self, best),
            };
            self.recommended = recommended;
            self.advice = Some(advice);
        }
        self
    }
}

/// Returns the reason why no settings can be recommended, or `None` if settings can be recommended.
fn find_refusal_reason(report: &ReplayReport, best: &ReplayRow) -> Option<String> {
    let requests = report.requests;
    if let Some(failed) = best.fails_at_request {
        let after = match best.outcome.failed_requests.saturating_sub(1) {
            0 => String::new(),
            later => format!(
                "; {} after it failed too, but most programs would have ended at the first",
                counted(later, "request")
            ),
        };
        let place = match failed {
            0 => "the memory allocated before the first event already does not fit".to_owned(),
            number => format!(
                "the best one first fails at request {} of {}",
                human_count(number),
                human_count(requests as u64)
            ),
        };
        return Some(format!("None of these settings fits: {place}{after}."));
    }
    if report.driver_calls {
        let reserved = report.recorded_peak_reserved_bytes.map_or(String::new(), |bytes| {
            format!(" The program itself took at most {} from the driver.", human_bytes(bytes))
        });
        return Some(format!(
            "No recommendation: the recording contains calls of the driver, one for each block. The table \
             shows what PyTorch's caching allocator would have reserved instead.{reserved}"
        ));
    }
    if requests < MIN_REQUESTS {
        return Some(format!(
            "No recommendation: {} within the trace {} too few to distinguish settings.",
            counted(requests as u64, "request"),
            if requests == 1 { "is" } else { "are" }
        ));
    }
    let (Some(replayed), Some(recorded)) =
        (report.reproduced_peak_reserved_bytes, report.recorded_peak_reserved_bytes)
    else {
        return None;
    };
    let off = replayed.abs_diff(recorded);
    (off as f64 > MAX_RELATIVE_DIFFERENCE * recorded as f64).then(|| {
        let under = match report.rows.iter().any(|row| row.recorded) {
            true => "the recorded settings",
            false => "the defaults (the file does not name its settings)",
        };
        format!(
            "No recommendation: the replay does not reproduce the recording. Under {under} it reserves {}, \
             the recording itself {}; the cause of the difference is not in the trace.",
            human_bytes(replayed),
            human_bytes(recorded)
        )
    })
}

/// Returns the recommended settings, if any, and the reason as a single line, provided that the replays reproduce the
/// recording.
fn recommend(report: &ReplayReport, best: &ReplayRow) -> (Option<String>, String) {
    let none = |text: String| (None, text);
    if best.recorded {
        return none("The recorded settings are as good as any of these.".to_owned());
    }
    let (settings, mut why) = (&best.outcome.settings, String::new());
    let base = report.rows.iter().find(|row| row.recorded);
    let base = base.or_else(|| report.rows.iter().find(|row| row.outcome.settings.is_empty()));
    if let Some(base) = base.map(|row| &row.outcome) {
        let of = base.peak_reserved_bytes;
        let gain = of.saturating_sub(best.outcome.peak_reserved_bytes);
        let share = if of == 0 { 0.0 } else { gain as f64 / of as f64 };
        let saved = format!("{} ({})", human_bytes(gain), human_share(share));
        let has_fewer_failures =
            base.num_ooms > best.outcome.num_ooms || base.num_alloc_retries > best.outcome.num_alloc_retries;
        let off = match (report.reproduced_peak_reserved_bytes, report.recorded_peak_reserved_bytes) {
            (Some(replayed), Some(recorded)) => replayed.abs_diff(recorded),
            _ => 0,
        };
        if has_fewer_failures {
            why = format!(
                "{} instead of {}",
                format_row_failures(best),
                format_failures(base.num_ooms, base.num_alloc_retries)
            );
        } else if share < MIN_GAIN {
            return none(format!("No recommendation: the best of these saves {saved}, not worth a change."));
        } else if gain <= off {
            return none(format!(
                "No recommendation: the best of these saves {saved}, no more than the {} by which the replay under the \
                 recorded settings is off.",
                human_bytes(off)
            ));
        } else {
            why = format!("reserves {saved} less");
        }
    }
    let name = match settings.as_str() {
        "" => "the defaults".to_owned(),
        settings => format!("PYTORCH_CUDA_ALLOC_CONF={}", printable(settings)),
    };
    let why = if why.is_empty() { why } else { format!(" ({why})") };
    (Some(settings.clone()), format!("Recommended: {name}{why}"))
}

fn format_row_failures(row: &ReplayRow) -> String {
    format_failures(row.outcome.num_ooms, row.outcome.num_alloc_retries)
}

/// Formats the number of failed requests and the number of retried requests.
fn format_failures(failures: i64, retries: i64) -> String {
    let count = |number: i64| human_count(u64::try_from(number).unwrap_or(0));
    format!("{} failed and {} retried", count(failures), count(retries))
}

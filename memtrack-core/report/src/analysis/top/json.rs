//! A ranking as JSON: bytes as integers, addresses as `"0x…"`.

use super::{By, RowErrors, RowText, TopReport, TopRow};
use memtrack_model::Frame;
use serde_json::{Value, json};

impl TopReport {
    /// The report as JSON. Bytes and counts are integers, addresses strings as `"0x7f00"`, shares numbers from 0 to 1,
    /// times seconds. Each number that may be an estimate is accompanied by its standard error, as `…_se`, and the
    /// interval that holds the truth in 95 of 100 cases, as `…_interval`.
    ///
    /// Bytes are requested ones. What is not known is `null`, such as exact counts that the recorder did not make.
    pub fn to_json(&self) -> Value {
        let exact = |count: u64| self.statistics.counted.then_some(count);
        let mut value = json!({
            "device": self.device,
            "is_host": self.is_host,
            "is_pinned": self.is_pinned,
            "by": self.by.name(),
            "at": self.at.map(|moment| moment.name()),
            "rows": self.rows.iter().map(|one| row(one, self.by)).collect::<Vec<_>>(),
            "rows_in_all": self.rows_in_all,
            "totals": {
                "requested_bytes": self.totals.allocated_bytes,
                "count": self.totals.count,
                "estimated": self.totals.estimated,
            },
            "exact_scopes": self.exact_scopes,
            "sums_at_seconds": self.sums_at_seconds,
            "folded_scopes": self.folded_scopes,
            "folded": self.folded,
            "attribution": self.attribution,
            "peak": self.peak.to_json(self.peak_place.as_ref()),
            "recorded_events": self.statistics.recorded,
            "dropped_events": self.statistics.dropped,
            "exact_requested_bytes": exact(self.statistics.allocated_bytes),
            "exact_allocations": exact(self.statistics.allocations),
            "sample_threshold_bytes": self.sample_threshold_bytes,
            "sample_mean_bytes": self.sample_mean_bytes,
            "sample_block_bytes": self.sample_block_bytes,
            "budget": self.budget,
            "sampling": self.sampling,
            "detection_limit_bytes": self.detection_limit_bytes,
        });
        self.totals.bytes_error.put("requested_bytes", &mut value["totals"]);
        self.totals.count_error.put("count", &mut value["totals"]);
        let names = ["annotated_bytes", "named_from_stacks_bytes", "unattributed_bytes"];
        for (name, error) in names.iter().zip(&self.attribution_errors) {
            error.put(name, &mut value["attribution"]);
        }
        value
    }
}

fn row(row: &TopRow, by: By) -> Value {
    let mut value = json!({
        "name": row.name,
        "requested_bytes": row.allocated_bytes,
        "live_at_peak_bytes": row.live_at_peak_bytes,
        "count": row.count,
        "largest_bytes": row.largest_bytes,
        "share": row.share,
        "estimated": row.estimated,
        "live_at_peak_estimated": row.live_estimated,
    });
    row.errors.put(&mut value);
    if !row.stack.is_empty() {
        let lines = row.stack.iter().map(|line| {
            json!({
                "address": format!("{:#x}", line.address),
                "function": line.frame.function,
                "file": line.frame.file,
                "line": line.frame.line,
            })
        });
        value["stack"] = lines.collect();
        value["stacks"] = row.stacks.into();
    }
    if !row.stack.is_empty() || row.owned.mine.is_some() {
        value["mine"] = row.owned.mine.as_ref().map_or(Value::Null, frame);
        value["calls"] = row.owned.called.as_ref().map_or(Value::Null, frame);
    }
    if by == By::Line {
        let part = |one: &RowText| {
            // Of samples, the error of a part is not known.
            let known = |number: u64| (!row.estimated).then_some(number);
            json!({ "name": one.text, "requested_bytes": known(one.bytes), "count": known(one.blocks) })
        };
        value["called"] = row.called.iter().map(part).collect();
        value["called_in_all"] = row.called_in_all.into();
    }
    if !row.texts.is_empty() {
        let texts = row.texts.iter();
        let text =
            |one: &RowText| json!({ "text": one.text, "requested_bytes": one.bytes, "count": one.blocks });
        value["user_metadata"] = texts.map(text).collect();
        value["user_metadata_in_all"] = row.texts_in_all.into();
    }
    value
}

/// A function, what is not known of it as `null`.
pub(in crate::analysis) fn frame(frame: &Frame) -> Value {
    json!({ "function": frame.function, "file": frame.file, "line": frame.line })
}

impl RowErrors {
    /// Puts standard errors and intervals beside the numbers of a row.
    pub(in crate::analysis) fn put(&self, row: &mut Value) {
        self.allocated_bytes.put("requested_bytes", row);
        self.live_at_peak_bytes.put("live_at_peak_bytes", row);
        self.count.put("count", row);
    }
}

//! A diff as JSON: bytes and blocks as integers, differences with their sign.

use super::change::Amount;
use super::{DeviceDiff, Diff, DiffRow, Kind};
use serde_json::{Value, json};

impl Diff {
    /// The report as JSON. Each number is there as `before_…`, `after_…` and `change_…`, with its standard error as
    /// `…_se` and the interval that holds the truth in 95 of 100 cases as `…_interval`. Bytes are requested ones.
    pub fn to_json(&self) -> Value {
        let alone = |devices: &[(String, Amount)]| -> Value {
            let device = |(name, amount): &(String, Amount)| {
                let mut value = json!({ "name": name, "requested_bytes": amount.value });
                amount.error.put("requested_bytes", &mut value);
                value
            };
            devices.iter().map(device).collect()
        };
        json!({
            "by": self.by.name(),
            "at": self.at.name(),
            "different": self.is_different(),
            "answer": self.answer(),
            "devices": self.devices.iter().map(device).collect::<Vec<_>>(),
            "only_before": alone(&self.alone[0]),
            "only_after": alone(&self.alone[1]),
            "notes": self.notes,
        })
    }
}

fn device(device: &DeviceDiff) -> Value {
    let mut value = json!({
        "device": device.device,
        "name": device.device_name,
        "is_host": device.is_host,
        "is_pinned": device.is_pinned,
        "rows": device.rows.iter().map(row).collect::<Vec<_>>(),
        "rows_in_all": device.rows_in_all,
        "unchanged": device.unchanged,
        "within_error": device.within_error,
    });
    device.bytes.put("requested_bytes", &mut value);
    device.blocks.put("count", &mut value);
    value
}

fn row(row: &DiffRow) -> Value {
    let kind = row.kind();
    debug_assert_ne!(kind, Kind::Same, "what is the same is no row");
    let mut value = json!({
        "name": row.name,
        "change": kind.name(),
        "before_members": row.members[0],
        "after_members": row.members[1],
    });
    row.bytes.put("requested_bytes", &mut value);
    row.blocks.put("count", &mut value);
    if !row.stack.is_empty() {
        let lines = row.stack.iter().map(|line| &line.frame);
        let frame = |frame: &memtrack_model::Frame| json!({ "function": frame.function, "file": frame.file, "line": frame.line });
        value["stack"] = lines.map(frame).collect();
        value["line_before"] = json!(row.line_before);
    }
    value
}

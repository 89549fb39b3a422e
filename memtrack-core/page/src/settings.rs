//! The allocator's settings as JSON.

use memtrack_model::snapshot::pytorch::{Key, PyTorch};
use memtrack_model::snapshot::{Snapshot, Value};
use serde_json::json;

/// The maximum depth of nested values in the settings.
const MAX_DEPTH: usize = 32;

/// Returns the settings in the file, or null if the file contains none.
pub(crate) fn settings_to_json(snapshot: &Snapshot, pytorch: &PyTorch) -> serde_json::Value {
    let value = pytorch.root_value(Key::AllocatorSettings);
    value.map_or(serde_json::Value::Null, |value| remove_memtrack(setting_to_json(snapshot, value, 0)))
}

/// Converts a setting to JSON. Values that JSON cannot represent become text.
fn setting_to_json(snapshot: &Snapshot, value: &Value, depth: usize) -> serde_json::Value {
    let inner = |value: &Value| setting_to_json(snapshot, value, depth + 1);
    if depth > MAX_DEPTH {
        return json!("…");
    }
    let text = |value: &Value| match inner(value) {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    match value {
        Value::None => serde_json::Value::Null,
        Value::Bool(truth) => json!(truth),
        Value::Int(number) => json!(number),
        Value::Float(number) if number.is_finite() => json!(number),
        Value::Float(number) => json!(number.to_string()),
        Value::Str(id) => json!(snapshot.strings.get(*id)),
        Value::Tuple(of) | Value::List(of) | Value::Set(of) | Value::FrozenSet(of) => {
            of.iter().map(inner).collect()
        }
        Value::Dict(entries) => {
            let entries = entries.iter().map(|(key, value)| (text(key), inner(value)));
            serde_json::Value::Object(entries.collect())
        }
        Value::Big(_) => {
            value.as_i128().map_or_else(|| json!("a large integer"), |big| json!(big.to_string()))
        }
        Value::Bytes(_) | Value::Stack(_) | Value::Frame(_) => json!(value.type_name()),
    }
}

/// Removes the settings that memtrack adds to the files that it writes. The result is null if there are no other
/// settings.
fn remove_memtrack(mut settings: serde_json::Value) -> serde_json::Value {
    match settings.as_object_mut().map(|entries| (entries.remove("memtrack").is_some(), entries.is_empty())) {
        Some((true, true)) => serde_json::Value::Null,
        _ => settings,
    }
}

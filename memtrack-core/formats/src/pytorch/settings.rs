//! Handles `allocator_settings.memtrack`, the settings that memtrack adds to a PyTorch snapshot. No other program reads
//! them.

use super::StringInterner;
use memtrack_model::snapshot::{StringTable, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

const MEMTRACK: &str = "memtrack";

/// Returns settings with the given parts. The settings are empty if there are no parts.
pub(super) fn build_settings<'a>(
    parts: impl IntoIterator<Item = (&'a str, Option<Value>)>,
    strings: &mut StringInterner,
) -> Value {
    let mut text = |text: &str| Value::Str(strings.intern(text.as_bytes()));
    let values = parts.into_iter().filter_map(|(name, part)| Some((text(name), part?)));
    let present: Vec<(Value, Value)> = values.collect();
    if present.is_empty() {
        return Value::Dict([].into());
    }
    Value::Dict([(text(MEMTRACK), Value::Dict(present.into()))].into())
}

/// Returns one part of the settings that memtrack added.
pub(super) fn memtrack_part<'a>(settings: &'a Value, part: &str, strings: &StringTable) -> Option<&'a Value> {
    value_of(value_of(settings, MEMTRACK, strings)?, part, strings)
}

/// The maximum number of fields that are read from a record.
const MAX_FIELDS: usize = 64;

/// Converts a record of numbers and words to a list of `[name, value]`, because a dictionary with a key such as
/// `action` would be read as an event. Integers larger than `largest` are written as `largest`.
pub(super) fn record_to_value(fields: &impl Serialize, largest: u64, strings: &mut StringInterner) -> Value {
    let mut text = |text: &str| Value::Str(strings.intern(text.as_bytes()));
    let Ok(Json::Object(fields)) = serde_json::to_value(fields) else { return Value::List([].into()) };
    let pairs = fields.iter().map(|(name, field)| {
        let field = match field {
            Json::String(word) => text(word),
            Json::Number(number) if number.is_f64() => Value::Float(number.as_f64().unwrap_or(0.0)),
            other => Value::integer(other.as_u64().unwrap_or(0).min(largest).into()),
        };
        Value::List([text(name), field].into())
    });
    Value::List(pairs.collect())
}

/// Reads a record written by [`record_to_value`], or returns `None` if it is invalid. Unknown names are ignored and
/// stay in the file.
pub(super) fn read_record<T: DeserializeOwned>(value: &Value, strings: &StringTable) -> Option<T> {
    let Value::List(pairs) = value else { return None };
    let mut fields = Map::new();
    for pair in pairs.iter().take(MAX_FIELDS) {
        let Value::List(pair) = pair else { return None };
        let [Value::Str(name), field] = &pair[..] else { return None };
        let field = match field {
            Value::Str(word) => Json::from(strings.get(*word).into_owned()),
            Value::Float(number) => Json::from(*number),
            other => Json::from(u64::try_from(other.as_i128()?).ok()?),
        };
        fields.insert(strings.get(*name).into_owned(), field);
    }
    serde_json::from_value(Json::Object(fields)).ok()
}

/// Returns the value for a string key in a dictionary.
fn value_of<'a>(dictionary: &'a Value, name: &str, strings: &StringTable) -> Option<&'a Value> {
    let Value::Dict(entries) = dictionary else { return None };
    let is_name = |key: &Value| matches!(key, Value::Str(id) if strings.bytes(*id) == name.as_bytes());
    entries.iter().find(|(key, _)| is_name(key)).map(|(_, value)| value)
}

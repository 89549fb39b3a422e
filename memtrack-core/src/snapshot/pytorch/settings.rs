//! What memtrack adds to a PyTorch snapshot's settings, where nothing else looks: `allocator_settings.memtrack`.

use super::StringInterner;
use crate::snapshot::{StringTable, Value};

const MEMTRACK: &str = "memtrack";

/// The settings that hold these parts; empty where there are none.
pub(super) fn with_parts<'a>(
    parts: impl IntoIterator<Item = (&'a str, Option<Value>)>,
    strings: &mut StringInterner,
) -> Value {
    let mut text = |text: &str| Value::Str(strings.intern(text.as_bytes()));
    let there = parts.into_iter().filter_map(|(name, part)| Some((text(name), part?)));
    let ours: Vec<(Value, Value)> = there.collect();
    if ours.is_empty() {
        return Value::Dict([].into());
    }
    Value::Dict([(text(MEMTRACK), Value::Dict(ours.into()))].into())
}

/// One of the parts.
pub(super) fn of_memtrack<'a>(settings: &'a Value, part: &str, strings: &StringTable) -> Option<&'a Value> {
    under(under(settings, MEMTRACK, strings)?, part, strings)
}

/// What a dictionary holds under a name that is in no vocabulary.
fn under<'a>(dictionary: &'a Value, name: &str, strings: &StringTable) -> Option<&'a Value> {
    let Value::Dict(entries) = dictionary else { return None };
    let is_it = |key: &Value| matches!(key, Value::Str(id) if strings.bytes(*id) == name.as_bytes());
    entries.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value)
}

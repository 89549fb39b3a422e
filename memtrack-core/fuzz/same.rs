//! Compares two pickles by their values.

use memtrack_core::__pickle::{Document, Value};

/// The maximum number of visited values. A shared value is visited once for each path to it.
const MAX_VALUES: usize = 100_000;

/// Returns whether the two documents have equal values of equal types. Only the first [`MAX_VALUES`] are compared.
pub fn same(before: &Document, after: &Document) -> bool {
    let mut open = vec![(before.root(), after.root())];
    let mut seen = 0;
    while let Some((one, other)) = open.pop() {
        seen += 1;
        if seen > MAX_VALUES {
            return true;
        }
        let (before, after) = match (one.as_entries(), other.as_entries()) {
            (Some(before), Some(after)) => (unique(before), unique(after)),
            _ => (items(one), items(other)),
        };
        if before.len() != after.len() || !same_kind(one, other) || !same_plain(one, other) {
            return false;
        }
        open.extend(before.into_iter().zip(after));
    }
    true
}

/// Returns whether the second value may stand for the first. Tuples that Python only iterates over are read, and
/// written, as lists.
fn same_kind(one: Value<'_>, other: Value<'_>) -> bool {
    one.type_name() == other.type_name() || one.as_tuple().is_some() && other.as_list().is_some()
}

/// Returns whether two values that are not containers are equal.
fn same_plain(one: Value<'_>, other: Value<'_>) -> bool {
    one.as_f64().map(f64::to_bits) == other.as_f64().map(f64::to_bits)
        && one.as_i64() == other.as_i64()
        && one.as_str_bytes() == other.as_str_bytes()
        && one.as_bytes() == other.as_bytes()
}

/// Returns the items of a tuple or a list.
fn items(value: Value<'_>) -> Vec<Value<'_>> {
    value.as_tuple().or_else(|| value.as_list()).unwrap_or_default()
}

/// Returns the keys and values as in a Python dictionary: a key that was set again keeps its position and has the last
/// value.
fn unique<'a>(entries: Vec<(Value<'a>, Value<'a>)>) -> Vec<Value<'a>> {
    let mut kept: Vec<(Value<'a>, Value<'a>)> = Vec::new();
    for (key, value) in entries {
        let is_plain = items(key).is_empty();
        let is_key =
            |name: Value<'_>| is_plain && name.type_name() == key.type_name() && same_plain(name, key);
        match kept.iter_mut().find(|(name, _)| is_key(*name)) {
            Some(entry) => entry.1 = value,
            None => kept.push((key, value)),
        }
    }
    kept.into_iter().flat_map(|(key, value)| [key, value]).collect()
}

/// Visits every value of a document by every path to it, up to [`MAX_VALUES`].
pub fn visit(document: &Document) {
    let mut open = vec![document.root()];
    let mut seen = 0;
    while let (Some(value), true) = (open.pop(), seen < MAX_VALUES) {
        seen += 1;
        let _ = (value.type_name(), value.is_none(), value.as_bool(), value.as_i64(), value.as_f64());
        let _ = (value.to_text(), value.as_bytes(), value.get("name"));
        open.extend(items(value));
        open.extend(value.as_entries().unwrap_or_default().into_iter().flat_map(|(key, value)| [key, value]));
    }
}

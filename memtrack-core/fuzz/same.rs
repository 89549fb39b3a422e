//! Compares two pickles by their values.

use memtrack_core::__pickle::{Dict, Document, Value};

/// The maximum number of visited values. A shared value is visited once for each path to it.
const MAX_VALUES: usize = 100_000;

/// Returns whether the two documents have equal values of equal types. Only the first [`MAX_VALUES`] are compared.
pub fn same(before: &Document, after: &Document) -> bool {
    let mut open = vec![(before.root, after.root)];
    let mut seen = 0;
    while let Some((one, other)) = open.pop() {
        seen += 1;
        if seen > MAX_VALUES {
            return true;
        }
        let equal = match (one, other) {
            (Value::Float(one), Value::Float(other)) => one.to_bits() == other.to_bits(),
            (Value::Str(one), Value::Str(other))
            | (Value::Bytes(one), Value::Bytes(other))
            | (Value::BigInt(one), Value::BigInt(other)) => before.bytes(one) == after.bytes(other),
            (Value::Tuple(one), Value::Tuple(other)) => {
                pairs(&mut open, before.tuple(one), after.tuple(other))
            }
            // Tuples that Python only iterates over are read, and written, as lists.
            (Value::Tuple(one), Value::List(other)) => pairs(&mut open, before.tuple(one), after.list(other)),
            (Value::List(one), Value::List(other)) => pairs(&mut open, before.list(one), after.list(other)),
            (Value::Dict(one), Value::Dict(other)) => {
                let (one, other) = (entries(before, before.dict(one)), entries(after, after.dict(other)));
                pairs(&mut open, &one, &other)
            }
            (one, other) => one == other,
        };
        if !equal {
            return false;
        }
    }
    true
}

/// Adds the pairs of corresponding items to the values to compare. Returns whether both lists have the same number of
/// items.
fn pairs(open: &mut Vec<(Value, Value)>, one: &[Value], other: &[Value]) -> bool {
    open.extend(one.iter().copied().zip(other.iter().copied()));
    one.len() == other.len()
}

/// Returns the keys and values as in a Python dictionary: a key that was set again keeps its position and has the last
/// value.
fn entries(document: &Document, dict: &Dict) -> Vec<Value> {
    let mut kept: Vec<(Value, Value)> = Vec::new();
    for &(key, value) in &dict.entries {
        match kept.iter_mut().find(|(name, _)| equal_keys(document, *name, key)) {
            Some(entry) => entry.1 = value,
            None => kept.push((key, value)),
        }
    }
    kept.into_iter().flat_map(|(key, value)| [key, value]).collect()
}

/// Returns whether the two values are the same key in Python.
fn equal_keys(document: &Document, one: Value, other: Value) -> bool {
    match (one, other) {
        (Value::Str(one), Value::Str(other)) | (Value::Bytes(one), Value::Bytes(other)) => {
            document.bytes(one) == document.bytes(other)
        }
        _ => one == other,
    }
}

/// Visits every value of a document by every path to it, up to [`MAX_VALUES`].
pub fn visit(document: &Document) {
    let mut open = vec![document.root];
    let mut seen = 0;
    while let (Some(value), true) = (open.pop(), seen < MAX_VALUES) {
        seen += 1;
        let _ = (document.type_name(value), document.as_i64(value), document.as_f64(value));
        match value {
            Value::Str(span) => drop(document.text(span)),
            Value::Bytes(span) | Value::BigInt(span) => assert!(document.bytes(span).len() < usize::MAX),
            Value::Tuple(id) => open.extend(document.tuple(id)),
            Value::List(id) => open.extend(document.list(id)),
            Value::Dict(id) => {
                let _ = document.get(id, "name");
                open.extend(document.dict(id).entries.iter().flat_map(|&(key, value)| [key, value]));
            }
            _ => {}
        }
    }
}

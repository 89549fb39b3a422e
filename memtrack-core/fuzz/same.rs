//! Whether two pickles say the same, told by values alone.

use memtrack_core::__pickle::{Dict, Document, Value};

/// Most values that are looked at: shared ones are met once for each way that leads to them.
const MOST: usize = 100_000;

/// Whether the two hold equal values of equal types. Only the first [`MOST`] are compared.
pub fn same(before: &Document, after: &Document) -> bool {
    let mut open = vec![(before.root, after.root)];
    let mut seen = 0;
    while let Some((one, other)) = open.pop() {
        seen += 1;
        if seen > MOST {
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
            // Where Python iterates, a tuple is read, and written, as a list.
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

/// Puts items that stand opposite each other on the list of what is still to compare.
fn pairs(open: &mut Vec<(Value, Value)>, one: &[Value], other: &[Value]) -> bool {
    open.extend(one.iter().copied().zip(other.iter().copied()));
    one.len() == other.len()
}

/// Keys and values as a Python dictionary has them: a key that was set again keeps its place and has the last value.
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

/// Whether Python takes the two for one key.
fn equal_keys(document: &Document, one: Value, other: Value) -> bool {
    match (one, other) {
        (Value::Str(one), Value::Str(other)) | (Value::Bytes(one), Value::Bytes(other)) => {
            document.bytes(one) == document.bytes(other)
        }
        _ => one == other,
    }
}

/// Looks at every value of a document, by every way that leads to it, as far as [`MOST`].
pub fn visit(document: &Document) {
    let mut open = vec![document.root];
    let mut seen = 0;
    while let (Some(value), true) = (open.pop(), seen < MOST) {
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

//! The content of a pickle. A [`Value`] is small and freely copied. Containers and strings are handles into
//! the [`Document`] that owns them, so that shared values stay shared, and dropping a deep structure only
//! drops a few flat tables.

use super::Global;
use super::error::PickleErrorKind;
use super::number::{Integer, from_twos_complement};
use memtrack_model::text::decode_lossy;

/// A range of bytes in a document, which holds a string, bytes, or a big integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    start: u32,
    length: u32,
}

/// A tuple in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TupleId(pub(super) u32);

/// A list in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListId(pub(super) u32);

/// A dictionary in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DictId(pub(super) u32);

/// A value in a pickle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer that fits into 64 bits.
    Int(i64),
    /// A larger integer, stored as little-endian two's complement bytes.
    BigInt(Span),
    /// A float.
    Float(f64),
    /// A string of UTF-8 that may contain lone surrogates.
    Str(Span),
    /// Bytes or a bytearray.
    Bytes(Span),
    /// A tuple.
    Tuple(TupleId),
    /// A list.
    List(ListId),
    /// A dictionary, `defaultdict` or `OrderedDict`.
    Dict(DictId),
    /// A class that the caller allowed.
    Global(Global),
}

/// The entries of a dictionary, in the order in which they were set. A key that was set twice occurs twice,
/// and the last value is the valid one.
#[derive(Clone, Debug, Default)]
pub struct Dict {
    /// The keys and values.
    pub entries: Vec<(Value, Value)>,
    /// The default factory, if this is a `defaultdict` that has one.
    pub factory: Option<Global>,
}

/// A pickle that has been read, consisting of its root and all values reachable from it. It contains no
/// cycles.
#[derive(Clone, Debug)]
pub struct Document {
    /// The value of the entire pickle.
    pub root: Value,
    pub(super) bytes: Vec<u8>,
    pub(super) items: Vec<Value>,
    pub(super) tuples: Vec<(u32, u32)>,
    pub(super) lists: Vec<Vec<Value>>,
    pub(super) dicts: Vec<Dict>,
}

impl Document {
    /// Creates a document that contains only `None`.
    pub(super) fn new() -> Self {
        Self {
            root: Value::None,
            bytes: Vec::new(),
            items: Vec::new(),
            tuples: Vec::new(),
            lists: Vec::new(),
            dicts: Vec::new(),
        }
    }

    /// Returns the bytes of a span in this document.
    ///
    /// # Panics
    /// Panics if the span belongs to another document.
    pub fn bytes(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..][..span.length as usize]
    }

    /// Returns a string for display. Lone surrogates are replaced with U+FFFD.
    ///
    /// # Panics
    /// Panics if the span belongs to another document.
    pub fn text(&self, span: Span) -> String {
        decode_lossy(self.bytes(span))
    }

    /// Returns the items of a tuple in this document.
    ///
    /// # Panics
    /// Panics if the tuple belongs to another document.
    pub fn tuple(&self, id: TupleId) -> &[Value] {
        let (start, length) = self.tuples[id.0 as usize];
        &self.items[start as usize..][..length as usize]
    }

    /// Returns the items of a list in this document.
    ///
    /// # Panics
    /// Panics if the list belongs to another document.
    pub fn list(&self, id: ListId) -> &[Value] {
        &self.lists[id.0 as usize]
    }

    /// Returns a dictionary in this document.
    ///
    /// # Panics
    /// Panics if the dictionary belongs to another document.
    pub fn dict(&self, id: DictId) -> &Dict {
        &self.dicts[id.0 as usize]
    }

    /// Returns the value for a string key in a dictionary. If the key was set several times, the last value
    /// counts.
    ///
    /// # Panics
    /// Panics if the dictionary belongs to another document.
    pub fn get(&self, id: DictId, key: &str) -> Option<Value> {
        let is_key = |name: Value| matches!(name, Value::Str(span) if self.bytes(span) == key.as_bytes());
        self.dict(id).entries.iter().rev().find(|entry| is_key(entry.0)).map(|entry| entry.1)
    }

    /// Returns a value as an integer. As in Python, booleans are 0 and 1. Returns `None` for other types and
    /// for integers that do not fit.
    pub fn as_i64(&self, value: Value) -> Option<i64> {
        match value {
            Value::Int(number) => Some(number),
            Value::Bool(truth) => Some(truth.into()),
            _ => None,
        }
    }

    /// Returns a float, integer or boolean as a float. Big integers are rounded. Returns `None` for other
    /// types.
    pub fn as_f64(&self, value: Value) -> Option<f64> {
        match value {
            Value::Float(number) => Some(number),
            Value::BigInt(span) => {
                let bytes = self.bytes(span);
                let (last, lower) = bytes.split_last()?;
                let top = f64::from(*last as i8);
                Some(lower.iter().rev().fold(top, |sum, &byte| sum * 256.0 + f64::from(byte)))
            }
            other => self.as_i64(other).map(|number| number as f64),
        }
    }

    /// Returns the name of a value's type for use in messages, such as `an integer` or `a list`.
    pub fn type_name(&self, value: Value) -> &'static str {
        match value {
            Value::None => "None",
            Value::Bool(_) => "a boolean",
            Value::Int(_) | Value::BigInt(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Str(_) => "a string",
            Value::Bytes(_) => "bytes",
            Value::Tuple(_) => "a tuple",
            Value::List(_) => "a list",
            Value::Dict(_) => "a dictionary",
            Value::Global(_) => "a class",
        }
    }

    /// Returns the span of the bytes appended since `start`.
    pub(super) fn span_from(&self, start: usize) -> Result<Span, PickleErrorKind> {
        let too_large = PickleErrorKind::TooLarge { what: "bytes of strings", limit: u32::MAX.into() };
        match (u32::try_from(start), u32::try_from(self.bytes.len())) {
            (Ok(start), Ok(end)) => Ok(Span { start, length: end - start }),
            _ => Err(too_large),
        }
    }

    /// Appends bytes.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) -> Result<Span, PickleErrorKind> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.span_from(start)
    }

    /// Stores an integer.
    pub(super) fn push_integer(&mut self, integer: Integer) -> Result<Value, PickleErrorKind> {
        Ok(match integer {
            Integer::Small(number) => Value::Int(number),
            Integer::Big(bytes) => Value::BigInt(self.push_bytes(&bytes)?),
        })
    }

    /// Stores an integer that is given as little-endian two's complement bytes.
    pub(super) fn push_twos_complement(&mut self, bytes: Vec<u8>) -> Result<Value, PickleErrorKind> {
        self.push_integer(from_twos_complement(bytes))
    }

    /// Stores a tuple.
    pub(super) fn push_tuple(&mut self, items: &[Value]) -> Result<Value, PickleErrorKind> {
        let start = to_row_number(self.items.len())?;
        self.items.extend_from_slice(items);
        let id = TupleId(to_row_number(self.tuples.len())?);
        self.tuples.push((start, to_row_number(self.items.len())? - start));
        Ok(Value::Tuple(id))
    }

    /// Creates an empty list.
    pub(super) fn push_list(&mut self) -> Result<ListId, PickleErrorKind> {
        let id = ListId(to_row_number(self.lists.len())?);
        self.lists.push(Vec::new());
        Ok(id)
    }

    /// Creates an empty dictionary.
    pub(super) fn push_dict(&mut self, factory: Option<Global>) -> Result<DictId, PickleErrorKind> {
        let id = DictId(to_row_number(self.dicts.len())?);
        self.dicts.push(Dict { entries: Vec::new(), factory });
        Ok(id)
    }
}

/// Converts a row number to its stored form.
fn to_row_number(index: usize) -> Result<u32, PickleErrorKind> {
    u32::try_from(index).map_err(|_| PickleErrorKind::TooLarge { what: "values", limit: u32::MAX.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_two_words() {
        assert_eq!(size_of::<Value>(), 16);
        assert_eq!(size_of::<Option<Value>>(), 16);
    }
}

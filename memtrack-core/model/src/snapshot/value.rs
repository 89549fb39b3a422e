//! Values that have no column: unknown keys, settings, and numbers where a string was expected. They are kept as Python
//! values so that a writer can reproduce them.

use super::{FrameId, StringId};
use crate::event::StackId;
use std::sync::Arc;

/// A Python value. Containers that are shared in the file are shared here too. The reader limits the depth, and there
/// are no cycles.
#[derive(Clone, Debug)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer that fits in a signed 64-bit integer.
    Int(i64),
    /// A wider integer, as little-endian two's complement bytes.
    Big(Arc<[u8]>),
    /// A float.
    Float(f64),
    /// A string in the snapshot's table.
    Str(StringId),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A tuple.
    Tuple(Arc<[Value]>),
    /// A list.
    List(Arc<[Value]>),
    /// A set, in the order of the file.
    Set(Arc<[Value]>),
    /// A frozen set, in the order of the file.
    FrozenSet(Arc<[Value]>),
    /// A dictionary, in the order in which its keys were set.
    Dict(Arc<[(Value, Value)]>),
    /// A list of frames, as a named stack of the snapshot.
    Stack(StackId),
    /// A frame in the snapshot's table.
    Frame(FrameId),
}

impl Value {
    /// Returns the value as an integer, if it is one and fits. Booleans are 0 and 1.
    pub fn as_i128(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some((*number).into()),
            Self::Bool(truth) => Some((*truth).into()),
            Self::Big(bytes) if bytes.len() <= 16 => {
                let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
                let mut wide = [if negative { 0xff } else { 0 }; 16];
                wide[..bytes.len()].copy_from_slice(bytes);
                Some(i128::from_le_bytes(wide))
            }
            _ => None,
        }
    }

    /// Creates an integer value in the shortest representation.
    pub fn integer(number: i128) -> Self {
        if let Ok(small) = i64::try_from(number) {
            return Self::Int(small);
        }
        let bytes = number.to_le_bytes();
        let fill = if number < 0 { 0xff } else { 0 };
        let same_sign = |count: usize| (bytes[count - 1] & 0x80 != 0) == (number < 0);
        let count = (9..16).find(|&n| bytes[n..].iter().all(|&b| b == fill) && same_sign(n)).unwrap_or(16);
        Self::Big(bytes[..count].into())
    }

    /// Returns the dictionary's value under `key`.
    pub fn get(&self, key: StringId) -> Option<&Self> {
        let Self::Dict(entries) = self else { return None };
        entries.iter().find(|(name, _)| matches!(name, Self::Str(id) if *id == key)).map(|(_, value)| value)
    }

    /// Returns the type of the value for use in messages, such as `an integer` or `a list`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Big(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Str(_) => "a string",
            Self::Bytes(_) => "bytes",
            Self::Tuple(_) => "a tuple",
            Self::List(_) | Self::Stack(_) => "a list",
            Self::Set(_) | Self::FrozenSet(_) => "a set",
            Self::Dict(_) | Self::Frame(_) => "a dictionary",
        }
    }
}

/// Compares floats by their bits, so that a snapshot with a NaN equals itself. Containers shared by both values are
/// equal without being compared.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        fn same<T: PartialEq>(a: &Arc<[T]>, b: &Arc<[T]>) -> bool {
            Arc::ptr_eq(a, b) || a == b
        }
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::Big(a), Self::Big(b)) | (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Tuple(a), Self::Tuple(b))
            | (Self::List(a), Self::List(b))
            | (Self::Set(a), Self::Set(b))
            | (Self::FrozenSet(a), Self::FrozenSet(b)) => same(a, b),
            (Self::Dict(a), Self::Dict(b)) => same(a, b),
            (Self::Stack(a), Self::Stack(b)) => a == b,
            (Self::Frame(a), Self::Frame(b)) => a == b,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_width_round_trip() {
        for shift in 0..127 {
            for number in [1i128 << shift, -(1i128 << shift), (1i128 << shift) - 1] {
                assert_eq!(Value::integer(number).as_i128(), Some(number), "{number}");
            }
        }
        assert_eq!(Value::integer(1 << 63), Value::Big([0, 0, 0, 0, 0, 0, 0, 0x80, 0][..].into()));
    }

    #[test]
    fn value_is_three_words() {
        assert_eq!(size_of::<Value>(), 24);
    }
}

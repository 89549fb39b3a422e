//! Interned strings. Readers of PyTorch's files intern every string once, and everything else refers to it by its
//! [`StringId`]. The bytes are UTF-8 that may contain lone surrogates, because Python writes those too.

use crate::text::decode_lossy;
use std::borrow::Cow;

/// The id of a string in a [`StringTable`]; 0 is the empty string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct StringId(pub u32);

impl StringId {
    /// The empty string.
    pub const EMPTY: Self = Self(0);

    /// Returns the id as an index into its table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Distinct strings, stored one after another in a single buffer.
///
/// A string is stored as UTF-8 in which a lone surrogate takes the three bytes that Python's `surrogatepass` writes.
/// [`Self::bytes`] is exact, whereas [`Self::get`] is for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StringTable {
    bytes: Vec<u8>,
    /// The bytes of string `id` are at `ends[id - 1] .. ends[id]`; string 0 is empty.
    ends: Vec<u64>,
}

impl Default for StringTable {
    fn default() -> Self {
        Self { bytes: Vec::new(), ends: vec![0] }
    }
}

impl StringTable {
    /// Returns the number of strings, including the empty one.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is no string other than the empty one.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Returns the bytes of a string. The result is empty if the id is from another table.
    pub fn bytes(&self, id: StringId) -> &[u8] {
        let Some(&end) = self.ends.get(id.index()) else { return &[] };
        let start = if id.0 == 0 { 0 } else { self.ends[id.index() - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// Returns the string for display, with U+FFFD in place of each lone surrogate.
    pub fn get(&self, id: StringId) -> Cow<'_, str> {
        let bytes = self.bytes(id);
        match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(decode_lossy(bytes)),
        }
    }

    /// Appends a string. The caller must make sure that the table does not contain it yet.
    ///
    /// # Panics
    /// Panics after 2^32 strings.
    pub fn push(&mut self, bytes: &[u8]) -> StringId {
        let id = u32::try_from(self.ends.len()).expect("more than 4 G strings");
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len() as u64);
        StringId(id)
    }

    /// Returns the number of bytes of memory that the table takes.
    pub fn used_bytes(&self) -> u64 {
        (self.bytes.capacity() + self.ends.capacity() * size_of::<u64>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_returned_exactly_and_for_display() {
        let mut table = StringTable::default();
        let (plain, lone) = (table.push("naïve".as_bytes()), table.push(b"a\xed\xa0\x80"));
        assert_eq!((table.bytes(StringId::EMPTY), table.len()), (&b""[..], 3));
        assert_eq!(table.get(plain), "naïve");
        assert_eq!((table.bytes(lone), &*table.get(lone)), (&b"a\xed\xa0\x80"[..], "a\u{fffd}"));
        assert_eq!(table.bytes(StringId(9)), b"");
    }
}

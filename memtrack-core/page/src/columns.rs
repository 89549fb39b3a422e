//! Columns of numbers and texts in a form that a browser decodes quickly, as described under "Sections" in
//! `viewer/README.md`.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use std::io::Write;

/// The compression level for sections. A higher level takes twice as long and saves only a twentieth of the bytes.
const LEVEL: u32 = 4;

/// The encoding of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Code {
    U8,
    Varint,
    Delta,
    Text,
}

/// The description of a column in the page's head.
#[derive(Debug, Serialize)]
pub(crate) struct Column {
    name: &'static str,
    code: Code,
    count: usize,
}

/// Uncompressed columns, stored one after another.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    columns: Vec<Column>,
    bytes: Vec<u8>,
}

impl Columns {
    /// Appends a column of bytes.
    pub(crate) fn add_bytes(&mut self, name: &'static str, values: impl IntoIterator<Item = u8>) {
        let from = self.bytes.len();
        self.bytes.extend(values);
        self.columns.push(Column { name, code: Code::U8, count: self.bytes.len() - from });
    }

    /// Appends a column of numbers, encoded so that small ones take few bytes.
    pub(crate) fn add_varints<T: Into<u64>>(
        &mut self,
        name: &'static str,
        values: impl IntoIterator<Item = T>,
    ) {
        let count = values.into_iter().map(|value| self.push_varint(value.into())).count();
        self.columns.push(Column { name, code: Code::Varint, count });
    }

    /// Appends a column of numbers, encoded as differences from the previous number modulo 2^64.
    pub(crate) fn add_deltas(&mut self, name: &'static str, values: impl IntoIterator<Item = u64>) {
        let mut before = 0u64;
        let mut next = |value: u64| {
            let step = value.wrapping_sub(before) as i64;
            before = value;
            self.push_varint((step << 1 ^ step >> 63) as u64);
        };
        let count = values.into_iter().map(&mut next).count();
        self.columns.push(Column { name, code: Code::Delta, count });
    }

    /// Appends a column of texts.
    pub(crate) fn add_texts<S: AsRef<str>>(&mut self, name: &'static str, texts: &[S]) {
        for text in texts {
            self.push_varint(text.as_ref().len() as u64);
        }
        for text in texts {
            self.bytes.extend_from_slice(text.as_ref().as_bytes());
        }
        self.columns.push(Column { name, code: Code::Text, count: texts.len() });
    }

    fn push_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Compresses these columns into a section.
    pub(crate) fn pack(self) -> Section {
        let unpacked = self.bytes.len();
        let mut encoder = DeflateEncoder::new(Vec::with_capacity(unpacked / 3), Compression::new(LEVEL));
        // Writing to a vector does not fail.
        let packed = encoder.write_all(&self.bytes).and_then(|()| encoder.finish());
        Section { columns: self.columns, bytes: unpacked, packed: packed.unwrap_or_default() }
    }
}

/// Compressed columns.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    columns: Vec<Column>,
    /// The number of bytes before compression.
    bytes: usize,
    #[serde(skip)]
    packed: Vec<u8>,
}

impl Section {
    /// Returns the compressed bytes, which the page contains in base64.
    pub(crate) fn packed(&self) -> &[u8] {
        &self.packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_few_bytes_and_steps_wrap() {
        let mut columns = Columns::default();
        columns.add_varints("a", [0u64, 127, 128, u64::MAX]);
        assert_eq!(columns.bytes.len(), 1 + 1 + 2 + 10);
        columns.bytes.clear();
        columns.add_deltas("b", [u64::MAX, 0, 5, 3]);
        // The steps are -1, 1, 5 and -2.
        assert_eq!(columns.bytes, [1, 2, 10, 3]);
        columns.bytes.clear();
        columns.add_texts("c", &["", "é"]);
        assert_eq!(columns.bytes, [0, 2, 0xc3, 0xa9]);
        assert_eq!(columns.columns.iter().map(|column| column.count).collect::<Vec<_>>(), [4, 4, 2]);
    }
}

//! Computes the length that a snapshot would have if its values were not shared, without writing the snapshot. Shared
//! values are measured only once.

use super::{Container, SharedId, Sink};
use memtrack_model::snapshot::StringId;
use memtrack_model::text::decode_lossy;
use std::collections::HashMap;
use std::io;

/// The maximum ratio of the length without sharing to the length with sharing. For real snapshots, with a hundred
/// frames per event, the ratio is about 100.
const MAX_EXPANSION: u64 = 4096;
/// Snapshots up to this length, in bytes, are never refused.
const MAX_UNCHECKED_BYTES: u64 = 16 << 20;
/// The approximate length of a reference to a value that has already been written.
const REFERENCE_BYTES: u64 = 3;

/// A sink that counts bytes instead of writing them.
#[derive(Default)]
pub(super) struct MeasureSink {
    /// The length when every value is written each time it is used.
    expanded: u64,
    /// The length when every shared value is written only once.
    shared: u64,
    /// The open containers, each with its id if it is shared, and with the value of `expanded` at its start.
    open: Vec<(Option<SharedId>, u64)>,
    /// The lengths of the stacks by row, where 0 means that the stack has not been measured yet. The same applies to
    /// frames and other values.
    stacks: Vec<u64>,
    frames: Vec<u64>,
    others: HashMap<SharedId, u64>,
    /// For each row, whether the string has been measured.
    strings: Vec<bool>,
    /// The last string that occurred at the top level.
    last_string: Vec<u8>,
    /// The root key whose value is being measured.
    root_key: Vec<u8>,
    /// The value of `expanded` before the value of `root_key` was measured.
    root_start: u64,
    /// The root key with the longest value, and the length of that value.
    longest: (Vec<u8>, u64),
}

impl MeasureSink {
    /// Refuses snapshots that would be extremely long without sharing.
    pub(super) fn finish(self) -> io::Result<()> {
        let Self { expanded, shared, longest: (key, _), .. } = self;
        if expanded <= MAX_UNCHECKED_BYTES.saturating_add(shared.saturating_mul(MAX_EXPANSION)) {
            return Ok(());
        }
        let place = match &key[..] {
            [] => String::new(),
            key => format!(", most of it under `{}`", decode_lossy(key).escape_debug()),
        };
        let length = if expanded < u64::MAX / 2 { expanded.to_string() } else { "2^63 or more".into() };
        let message = format!(
            "as JSON, which cannot share values, the snapshot would take {length} bytes{place}, instead of about \
             {shared}: it repeats its values more than any snapshot of PyTorch's; write a pickle"
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }

    fn add(&mut self, bytes: u64) -> io::Result<()> {
        self.expanded = self.expanded.saturating_add(bytes);
        self.shared = self.shared.saturating_add(bytes);
        Ok(())
    }

    fn length_of(&mut self, shared: SharedId) -> &mut u64 {
        fn length_at(lengths: &mut Vec<u64>, row: u32) -> &mut u64 {
            let row = row as usize;
            if lengths.len() <= row {
                lengths.resize(row + 1, 0);
            }
            &mut lengths[row]
        }
        match shared {
            SharedId::Stack(row) => length_at(&mut self.stacks, row),
            SharedId::Frame(row) => length_at(&mut self.frames, row),
            other => self.others.entry(other).or_default(),
        }
    }
}

impl Sink for MeasureSink {
    fn write_none(&mut self) -> io::Result<()> {
        self.add(4)
    }

    fn write_bool(&mut self, _: bool) -> io::Result<()> {
        self.add(5)
    }

    fn write_int(&mut self, number: i64) -> io::Result<()> {
        self.add(number.unsigned_abs().checked_ilog10().map_or(1, |digits| digits + 1).into())
    }

    fn write_big_int(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.add(3 * bytes.len() as u64)
    }

    fn write_float(&mut self, _: f64) -> io::Result<()> {
        self.add(16)
    }

    fn write_string(&mut self, id: StringId, text: &[u8]) -> io::Result<()> {
        let row = id.index();
        if self.strings.len() <= row {
            self.strings.resize(row + 1, false);
        }
        let bytes = text.len() as u64 + 2;
        self.expanded = self.expanded.saturating_add(bytes);
        let seen = std::mem::replace(&mut self.strings[row], true);
        self.shared = self.shared.saturating_add(if seen { REFERENCE_BYTES } else { bytes });
        if self.open.len() == 1 {
            self.last_string.clear();
            self.last_string.extend_from_slice(&text[..text.len().min(40)]);
        }
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.add(bytes.len() as u64)
    }

    fn try_write_reference(&mut self, shared: SharedId) -> io::Result<bool> {
        let length = *self.length_of(shared);
        if length > 0 {
            self.expanded = self.expanded.saturating_add(length);
            self.shared = self.shared.saturating_add(REFERENCE_BYTES);
        }
        Ok(length > 0)
    }

    fn begin_container(&mut self, _: Container, _: usize, shared: Option<SharedId>) -> io::Result<()> {
        self.open.push((shared, self.expanded));
        self.add(2)
    }

    fn begin_item(&mut self) -> io::Result<()> {
        self.add(2)
    }

    fn end_key(&mut self) -> io::Result<()> {
        if self.open.len() == 1 {
            self.root_key.clone_from(&self.last_string);
            self.root_start = self.expanded;
        }
        self.add(2)
    }

    fn end_item(&mut self) -> io::Result<()> {
        let length = self.expanded - self.root_start;
        if self.open.len() == 1 && length > self.longest.1 {
            self.longest = (self.root_key.clone(), length);
        }
        Ok(())
    }

    fn end_container(&mut self) -> io::Result<()> {
        if let Some((Some(shared), start)) = self.open.pop() {
            // The length must never be 0, which means "not measured". It could be 0 if the sum has saturated.
            let length = (self.expanded - start).max(1);
            *self.length_of(shared) = length;
        }
        Ok(())
    }
}

//! How long a snapshot becomes if nothing can be shared, computed without writing it: what is shared is measured once.

use super::{Container, Shared, Sink};
use memtrack_model::snapshot::StringId;
use memtrack_model::text::lossy;
use std::collections::HashMap;
use std::io;

/// No snapshot of PyTorch's becomes longer than this times its length with everything shared. Real ones, with a
/// hundred frames for each event, become 100 times as long.
const MOST_TIMES: u64 = 4096;
/// Documents up to this length are never refused.
const SMALL_BYTES: u64 = 16 << 20;
/// About the length of a reference to something that was written before.
const REFERENCE_BYTES: u64 = 3;

/// Counts bytes instead of writing them.
#[derive(Default)]
pub(super) struct MeasureSink {
    /// Bytes with everything written wherever it is used.
    expanded: u64,
    /// Bytes with everything shared written once.
    once: u64,
    /// Open containers: what they are shared as, and `expanded` where they began.
    open: Vec<(Option<Shared>, u64)>,
    /// Lengths of what is shared, 0 where it was not met yet.
    stacks: Vec<u64>,
    frames: Vec<u64>,
    others: HashMap<Shared, u64>,
    /// Whether a string was met.
    strings: Vec<bool>,
    /// The last string, the root's key that is being written, and `expanded` where its value began.
    last: Vec<u8>,
    root_key: Vec<u8>,
    root_start: u64,
    /// The root's key whose value is the longest, and its length.
    longest: (Vec<u8>, u64),
}

impl MeasureSink {
    /// Refuses what would be written without end.
    pub(super) fn finish(self) -> io::Result<()> {
        let Self { expanded, once, longest: (key, _), .. } = self;
        if expanded <= SMALL_BYTES.saturating_add(once.saturating_mul(MOST_TIMES)) {
            return Ok(());
        }
        let place = match &key[..] {
            [] => String::new(),
            key => format!(", most of it under `{}`", lossy(key).escape_debug()),
        };
        let length = if expanded < u64::MAX / 2 { expanded.to_string() } else { "2^63 or more".into() };
        let why = format!(
            "as JSON, which cannot share values, the snapshot would take {length} bytes{place}, instead of about \
             {once}: it repeats its values more than any snapshot of PyTorch's; write a pickle"
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    fn add(&mut self, bytes: u64) -> io::Result<()> {
        self.expanded = self.expanded.saturating_add(bytes);
        self.once = self.once.saturating_add(bytes);
        Ok(())
    }

    fn length_of(&mut self, shared: Shared) -> &mut u64 {
        fn at(lengths: &mut Vec<u64>, row: u32) -> &mut u64 {
            let row = row as usize;
            if lengths.len() <= row {
                lengths.resize(row + 1, 0);
            }
            &mut lengths[row]
        }
        match shared {
            Shared::Stack(row) => at(&mut self.stacks, row),
            Shared::Frame(row) => at(&mut self.frames, row),
            other => self.others.entry(other).or_default(),
        }
    }
}

impl Sink for MeasureSink {
    fn none(&mut self) -> io::Result<()> {
        self.add(4)
    }

    fn bool(&mut self, _: bool) -> io::Result<()> {
        self.add(5)
    }

    fn int(&mut self, number: i64) -> io::Result<()> {
        self.add(number.unsigned_abs().checked_ilog10().map_or(1, |digits| digits + 1).into())
    }

    fn big(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.add(3 * bytes.len() as u64)
    }

    fn float(&mut self, _: f64) -> io::Result<()> {
        self.add(16)
    }

    fn string(&mut self, id: StringId, text: &[u8]) -> io::Result<()> {
        let row = id.index();
        if self.strings.len() <= row {
            self.strings.resize(row + 1, false);
        }
        let bytes = text.len() as u64 + 2;
        self.expanded = self.expanded.saturating_add(bytes);
        let met = std::mem::replace(&mut self.strings[row], true);
        self.once = self.once.saturating_add(if met { REFERENCE_BYTES } else { bytes });
        if self.open.len() == 1 {
            self.last.clear();
            self.last.extend_from_slice(&text[..text.len().min(40)]);
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.add(bytes.len() as u64)
    }

    fn recall(&mut self, shared: Shared) -> io::Result<bool> {
        let length = *self.length_of(shared);
        if length > 0 {
            self.expanded = self.expanded.saturating_add(length);
            self.once = self.once.saturating_add(REFERENCE_BYTES);
        }
        Ok(length > 0)
    }

    fn begin(&mut self, _: Container, _: usize, shared: Option<Shared>) -> io::Result<()> {
        self.open.push((shared, self.expanded));
        self.add(2)
    }

    fn item(&mut self) -> io::Result<()> {
        self.add(2)
    }

    fn colon(&mut self) -> io::Result<()> {
        if self.open.len() == 1 {
            self.root_key.clone_from(&self.last);
            self.root_start = self.expanded;
        }
        self.add(2)
    }

    fn item_end(&mut self) -> io::Result<()> {
        let length = self.expanded - self.root_start;
        if self.open.len() == 1 && length > self.longest.1 {
            self.longest = (self.root_key.clone(), length);
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some((Some(shared), start)) = self.open.pop() {
            // Never 0, which means that it was not met: the sum may have come to its end.
            let length = (self.expanded - start).max(1);
            *self.length_of(shared) = length;
        }
        Ok(())
    }
}

//! Stacks by the bytes that spell them. Frames are shared, so a list of frames is a run of memo slots, and the same
//! run is the same stack as long as no slot is set again: it need not be taken apart a second time.

use crate::event::StackId;
use crate::pickle::opcode as op;
use crate::snapshot::pytorch::intern::hash_of;
use hashbrown::HashTable;

/// Longest run that is kept, in bytes.
const MAX_RUN_BYTES: usize = 4096;
/// Most bytes of runs. A file with more distinct stacks is read all the same, without help from here.
const MAX_BYTES: usize = 16 << 20;

/// Runs that were met, and their stacks.
#[derive(Debug, Default)]
pub(super) struct Runs {
    index: HashTable<u32>,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    start: u32,
    length: u32,
    stack: StackId,
}

/// The length of the run that `ready` begins with, if APPENDS ends it.
#[inline]
pub(super) fn length_of(ready: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        match *ready.get(length)? {
            op::BINGET => length += 2,
            op::LONG_BINGET => length += 5,
            op::APPENDS if length > 0 && length <= MAX_RUN_BYTES => return Some(length),
            _ => return None,
        }
    }
}

/// The memo slots of a run, which [`length_of`] has measured.
pub(super) fn slots(mut run: &[u8]) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || match *run {
        [op::LONG_BINGET, a, b, c, d, ref rest @ ..] => {
            run = rest;
            Some(u32::from_le_bytes([a, b, c, d]) as usize)
        }
        [op::BINGET, slot, ref rest @ ..] => {
            run = rest;
            Some(slot.into())
        }
        _ => None,
    })
}

impl Runs {
    fn spelled(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.start as usize..][..entry.length as usize]
    }

    /// The stack of a run.
    #[inline]
    pub(super) fn find(&self, run: &[u8]) -> Option<StackId> {
        let hash = hash_of(run);
        let equal = |&at: &u32| {
            let entry = &self.entries[at as usize];
            entry.hash == hash && self.spelled(entry) == run
        };
        self.index.find(hash, equal).map(|&at| self.entries[at as usize].stack)
    }

    /// Whether one more run can be kept.
    pub(super) fn has_room(&self, run: &[u8]) -> bool {
        self.bytes.len() + run.len() <= MAX_BYTES
    }

    /// Keeps a run that is not here yet.
    pub(super) fn keep(&mut self, run: &[u8], stack: StackId) {
        let (hash, start) = (hash_of(run), self.bytes.len() as u32);
        self.bytes.extend_from_slice(run);
        let at = self.entries.len() as u32;
        self.entries.push(Entry { hash, start, length: run.len() as u32, stack });
        let entries = &self.entries;
        self.index.insert_unique(hash, at, |&at| entries[at as usize].hash);
    }

    /// A memo slot was set again: what was learnt may be wrong now.
    #[cold]
    pub(super) fn forget(&mut self) {
        self.index.clear();
        self.entries.clear();
        self.bytes.clear();
    }

    /// Bytes of memory in use.
    pub(super) fn used_bytes(&self) -> u64 {
        let entries = self.entries.capacity() * size_of::<Entry>();
        (entries + self.bytes.capacity() + self.index.allocation_size()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_measured_taken_apart_and_found_again() {
        let ready = b"h\x07j\x01\x02\0\0h\x09e...";
        assert_eq!(length_of(ready), Some(9));
        assert_eq!(slots(&ready[..9]).collect::<Vec<_>>(), [7, 513, 9]);
        let mut runs = Runs::default();
        runs.keep(&ready[..9], StackId(5));
        runs.keep(&ready[..2], StackId(6));
        assert_eq!((runs.find(&ready[..9]), runs.find(&ready[..2])), (Some(StackId(5)), Some(StackId(6))));
        runs.forget();
        assert_eq!(runs.find(&ready[..9]), None);
    }

    #[test]
    fn what_is_cut_empty_or_no_run_is_left_alone() {
        for ready in [&b""[..], b"e", b"h\x01", b"h", b"j\x01\x02e", b"h\x01}e", b"h\x01a"] {
            assert_eq!(length_of(ready), None, "{ready:?}");
        }
        assert_eq!(length_of(&[&b"h\x01".repeat(MAX_RUN_BYTES)[..], b"e"].concat()), None);
    }
}

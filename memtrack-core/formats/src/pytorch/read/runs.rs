//! Looks up stacks by the bytes that encode them. Frames are shared, so a list of frames is a run of references to memo
//! slots. As long as no slot is set again, equal runs mean the same stack, so a run does not have to be parsed twice.

use crate::pickle::opcode::{self as op, Token};
use crate::pytorch::intern::{hash_of, table_bytes};
use hashbrown::HashTable;
use memtrack_model::event::StackId;

/// The maximum length of the runs that are stored, in bytes.
const MAX_RUN_BYTES: usize = 4096;
/// The maximum total size of the stored runs. Files with more distinct stacks are still read, but without this
/// shortcut.
const MAX_TOTAL_BYTES: usize = 16 << 20;

/// The number of leading bytes used to guess a run. They cover more than the allocator's own frames.
const HEAD_BYTES: usize = 32;
/// The number of guesses that are stored. Must be a power of two.
const GUESS_COUNT: usize = 4096;
const NO_ENTRY: u32 = u32::MAX;

/// The runs that have been seen so far and their stacks.
#[derive(Debug)]
pub(crate) struct Runs {
    index: HashTable<u32>,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// The index of the entry that was found most recently.
    last: u32,
    /// For each hash of a run's leading bytes, the entry that was found most recently. Comparing with this entry is
    /// cheaper than measuring a run and looking it up.
    by_head: Box<[u32]>,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    start: u32,
    length: u32,
    stack: StackId,
    /// The entry that came after this one most recently. It is a good guess, because programs repeat themselves.
    next: u32,
}

/// A run that is followed by APPENDS, at the start of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The length of the run in bytes, not counting APPENDS.
    pub(crate) length: usize,
    /// The stack that the run stands for, if the run is known.
    pub(crate) stack: Option<StackId>,
}

impl Default for Runs {
    fn default() -> Self {
        let by_head = vec![NO_ENTRY; GUESS_COUNT].into_boxed_slice();
        Self { index: HashTable::new(), entries: Vec::new(), bytes: Vec::new(), last: NO_ENTRY, by_head }
    }
}

/// Returns the index in [`Runs::by_head`] of the guess for bytes that start like `ready`, or `None` if there are too
/// few bytes.
#[inline]
fn guess_index(ready: &[u8]) -> Option<usize> {
    let head: &[u8; HEAD_BYTES] = ready.first_chunk()?;
    let words = head.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let mixed =
        words.fold(0, |mixed: u64, word| (mixed.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95));
    Some((mixed >> 52) as usize % GUESS_COUNT)
}

/// Returns the length of the run at the start of `ready` if it is followed by APPENDS.
#[inline]
pub(crate) fn length_of(ready: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        match *ready.get(length)? {
            op::APPENDS if length > 0 && length <= MAX_RUN_BYTES => return Some(length),
            op::BINGET | op::LONG_BINGET => length += op::decode_first(&ready[length..])?.1,
            _ => return None,
        }
    }
}

/// Returns the memo slots of a run that was measured by [`length_of`].
pub(crate) fn memo_slots(mut run: &[u8]) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let (Token::Get(slot), bytes) = op::decode_first(run)? else { return None };
        run = &run[bytes..];
        Some(slot as usize)
    })
}

impl Runs {
    fn run_of(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.start as usize..][..entry.length as usize]
    }

    /// Returns the run at the start of `ready`, if there is one.
    #[inline(always)]
    pub(crate) fn find(&mut self, ready: &[u8]) -> Option<Run> {
        let next = self.entries.get(self.last as usize).map_or(NO_ENTRY, |last| last.next);
        if let Some(run) = self.guess(next, ready) {
            self.last = next;
            return Some(run);
        }
        self.search(ready)
    }

    /// Searches for the run at the start of `ready` after the first guess, the run that most recently came after the
    /// previous one, has failed.
    fn search(&mut self, ready: &[u8]) -> Option<Run> {
        let head = guess_index(ready);
        let known = head.map_or(NO_ENTRY, |head| self.by_head[head]);
        if let Some(run) = self.guess(known, ready) {
            self.record_follower(known);
            return Some(run);
        }
        let length = length_of(ready)?;
        let run = &ready[..length];
        let hash = hash_of(run);
        let equal = |&at: &u32| {
            let entry = &self.entries[at as usize];
            entry.hash == hash && self.run_of(entry) == run
        };
        let Some(&at) = self.index.find(hash, equal) else { return Some(Run { length, stack: None }) };
        if let Some(head) = head {
            self.by_head[head] = at;
        }
        self.record_follower(at);
        Some(Run { length, stack: Some(self.entries[at as usize].stack) })
    }

    /// Returns the run of an entry if it is at the start of `ready`.
    #[inline]
    fn guess(&self, at: u32, ready: &[u8]) -> Option<Run> {
        let entry = self.entries.get(at as usize)?;
        let length = entry.length as usize;
        let same = ready.get(length) == Some(&op::APPENDS) && ready[..length] == *self.run_of(entry);
        same.then_some(Run { length, stack: Some(entry.stack) })
    }

    /// Records that an entry came after the previous one.
    #[inline]
    fn record_follower(&mut self, at: u32) {
        if let Some(last) = self.entries.get_mut(self.last as usize) {
            last.next = at;
        }
        self.last = at;
    }

    /// Returns whether there is room to store another run.
    pub(crate) fn has_room(&self, run: &[u8]) -> bool {
        self.bytes.len() + run.len() <= MAX_TOTAL_BYTES
    }

    /// Stores a run that is not in the table yet.
    pub(crate) fn insert(&mut self, run: &[u8], stack: StackId) {
        let (hash, start) = (hash_of(run), self.bytes.len() as u32);
        self.bytes.extend_from_slice(run);
        let at = self.entries.len() as u32;
        self.entries.push(Entry { hash, start, length: run.len() as u32, stack, next: NO_ENTRY });
        self.record_follower(at);
        let entries = &self.entries;
        self.index.insert_unique(hash, at, |&at| entries[at as usize].hash);
    }

    /// Removes all runs. Called when a memo slot is set again, because the runs may now mean other stacks.
    #[cold]
    pub(crate) fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
        self.bytes.clear();
        self.by_head.fill(NO_ENTRY);
        self.last = NO_ENTRY;
    }

    /// Returns the number of bytes of memory in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        let entries = self.entries.capacity() * size_of::<Entry>() + GUESS_COUNT * 4;
        (entries + self.bytes.capacity()) as u64 + table_bytes(&self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_measured_parsed_and_found_again() {
        let ready = b"h\x07j\x01\x02\0\0h\x09e...";
        assert_eq!(length_of(ready), Some(9));
        assert_eq!(memo_slots(&ready[..9]).collect::<Vec<_>>(), [7, 513, 9]);
        let mut runs = Runs::default();
        runs.insert(&ready[..9], StackId(5));
        runs.insert(&ready[..2], StackId(6));
        let find = |runs: &mut Runs, ready: &[u8]| runs.find(ready).map(|run| (run.length, run.stack));
        // Each run is first looked up, and then guessed because it came after the previous run. A longer run is a
        // different one.
        for _ in 0..2 {
            assert_eq!(find(&mut runs, ready), Some((9, Some(StackId(5)))));
            assert_eq!(find(&mut runs, b"h\x07e..."), Some((2, Some(StackId(6)))));
            assert_eq!(find(&mut runs, b"h\x07h\x07e"), Some((4, None)));
        }
        runs.clear();
        assert_eq!(find(&mut runs, ready), Some((9, None)));
    }

    #[test]
    fn runs_with_same_head_are_distinguished() {
        let run = |tail: &[u8]| [&b"h\x01".repeat(20)[..], tail, b"e"].concat();
        let (one, other) = (run(b"h\x02"), run(b"h\x03"));
        let mut runs = Runs::default();
        runs.insert(&one[..42], StackId(1));
        runs.insert(&other[..42], StackId(2));
        for (ready, stack) in [(&one, 1), (&one, 1), (&other, 2), (&one, 1), (&other, 2), (&other, 2)] {
            assert_eq!(runs.find(ready), Some(Run { length: 42, stack: Some(StackId(stack)) }));
        }
        assert_eq!(runs.find(&run(b"h\x02h\x03")), Some(Run { length: 44, stack: None }));
        assert_eq!(runs.find(&one[..42]), None);
    }

    #[test]
    fn truncated_empty_and_other_bytes_are_not_runs() {
        for ready in [&b""[..], b"e", b"h\x01", b"h", b"j\x01\x02e", b"h\x01}e", b"h\x01a"] {
            assert_eq!(length_of(ready), None, "{ready:?}");
        }
        assert_eq!(length_of(&[&b"h\x01".repeat(MAX_RUN_BYTES)[..], b"e"].concat()), None);
    }
}

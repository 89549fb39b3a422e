//! Stencils, which describe how the latest events were encoded. The keys of an event are references to memo slots, so
//! in events of the same shape, each entry starts with the same bytes. [`crate::pytorch::read::fast::matched`] reads
//! such events without the machine's stack.
//!
//! **How much time do stencils save?** In one interleaved run, loading took 0.30 s instead of 0.44 s.
//!
//! A file that arrives byte by byte, so that no event is ever complete in the window, must give the same result
//! (`tests/tests/snapshot/spellings.rs`).

use crate::pickle::decode::{self, Token};
use crate::pickle::opcode as op;
use crate::pytorch::read::fast::runs::{Run, Runs};
use crate::pytorch::read::fold::rows::Table;
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::core::Machine;
use crate::pytorch::read::machine::memo::Memo;
use memtrack_model::snapshot::StringId;
use memtrack_model::snapshot::pytorch::{Key, Kind};

/// The maximum number of entries in an event that is read by a stencil. Larger events are read by the machine.
pub(crate) const MAX_ENTRIES: usize = 16;
/// The maximum number of stencils. Files have events of two or three shapes: those with a stack, those without, and
/// those for running out of memory.
const MAX_STENCILS: usize = 4;
/// The number of misses at which no more stencils are learnt; see [`Stencils::misses`].
const MAX_MISSES: u32 = 1000;

/// The destination of an entry's value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Address,
    Size,
    Stream,
    Ticks,
    Stack,
    Action,
    /// A column of the records, given by its index.
    Column(Kind, usize),
    /// Nowhere, because events are not kept.
    Ignored,
}

/// An entry, given by the instruction that pushes its key and the destination of its value.
#[derive(Debug)]
pub(crate) struct StencilEntry {
    /// The instruction, in the low bytes of a word.
    pub(crate) key: u64,
    /// The mask that covers the instruction's bytes.
    pub(crate) mask: u64,
    pub(crate) key_bytes: usize,
    pub(crate) target: Target,
}

/// The entries that events of one shape have, in order.
#[derive(Debug)]
pub(crate) struct Stencil {
    pub(crate) shape: u32,
    pub(crate) entries: Vec<StencilEntry>,
}

/// The known stencils, with the most recently used one first.
#[derive(Debug, Default)]
pub(crate) struct Stencils {
    pub(crate) known: Vec<Stencil>,
    /// The number of stencils learnt minus the number of events read by a stencil, but at least 0.
    pub(crate) misses: u32,
}

impl Stencils {
    /// Records that the stencil at `index` has matched an event.
    #[inline]
    pub(crate) fn record_match(&mut self, index: usize) {
        if index > 0 {
            self.known[..=index].rotate_right(1);
        }
        self.misses = self.misses.saturating_sub(1);
    }

    /// Removes all stencils. Called when a memo slot is set again, because the slot may now contain another key.
    #[cold]
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }
}

/// A value as encoded by the instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EncodedValue {
    /// An existing value, or a value that does not take a memo slot.
    Value(Cell),
    /// A new pair of integers, which takes a memo slot.
    Pair(Cell),
    /// A new list, which takes a memo slot. Its items are the run that starts after the first three bytes; the list is
    /// empty if there is no run.
    List(Option<Run>),
}

/// Returns the value at the start of `bytes` and the length of its instructions, or `None` for values that stencils do
/// not support.
#[inline(always)]
pub(crate) fn decode_value(memo: &Memo, runs: &mut Runs, bytes: &[u8]) -> Option<(EncodedValue, usize)> {
    let (token, length) = decode::decode_token(bytes.first_chunk()?);
    let value = match token {
        Token::Get(slot) => memo.get(slot as usize)?,
        Token::Int(number) => {
            // Pairs consist of small numbers, so a large number such as an address cannot be the start of a pair.
            let small = number >> cell::PAIR_BITS == 0;
            if small && matches!(bytes.get(length), Some(&(op::BININT1 | op::BININT2 | op::BININT))) {
                return decode_pair(number, bytes, length);
            }
            Cell::int(number)?
        }
        Token::Plain(op::NEWTRUE) => Cell::bool(true),
        Token::Plain(op::NEWFALSE) => Cell::bool(false),
        Token::Plain(op::EMPTY_LIST) => match bytes[1..] {
            [op::MEMOIZE, op::MARK, ..] => {
                let run = runs.find(&bytes[3..])?;
                return Some((EncodedValue::List(Some(run)), 3 + run.length + 1));
            }
            [op::MEMOIZE, ..] => return Some((EncodedValue::List(None), 2)),
            _ => return None,
        },
        _ => return None,
    };
    Some((EncodedValue::Value(value), length))
}

/// Returns the pair formed by `first`, whose token has `length` bytes, and the integer after it.
#[inline(always)]
fn decode_pair(first: i64, bytes: &[u8], length: usize) -> Option<(EncodedValue, usize)> {
    let (Token::Int(second), more) = decode::decode_token(bytes[length..].first_chunk()?) else {
        return None;
    };
    let length = length + more;
    let ends = bytes[length..].starts_with(&[op::TUPLE2, op::MEMOIZE]);
    ends.then_some((EncodedValue::Pair(Cell::pair(Cell::int(first)?, Cell::int(second)?)?), length + 2))
}

impl Machine<'_> {
    /// Learns a stencil from the dictionary on top of the stack, provided that it has just become an event. `entries`
    /// are the bytes after the dictionary's mark, including SETITEMS.
    #[inline]
    pub(crate) fn learn_event(&mut self, entries: &[u8]) {
        let is_event = |dict: Cell| self.heap.containers[dict.row()].tag() == cell::EVENT;
        if self.stencils.misses < MAX_MISSES && self.stack.last().is_some_and(|&dict| is_event(dict)) {
            self.learn(entries);
        }
    }

    fn learn(&mut self, entries: &[u8]) {
        self.stencils.misses += 1;
        if let Some(stencil) = self.build_stencil(entries) {
            self.stencils.known.truncate(MAX_STENCILS - 1);
            self.stencils.known.insert(0, stencil);
        }
    }

    /// Returns the stencil for `entries`, which include SETITEMS.
    fn build_stencil(&mut self, entries: &[u8]) -> Option<Stencil> {
        // Reading a value may access bytes beyond the last one.
        let padded = [entries, &[op::SETITEMS; 2 * decode::MAX_TOKEN_BYTES]].concat();
        let (mut at, mut instructions, mut keys) = (0, Vec::new(), Vec::new());
        while entries.get(at) != Some(&op::SETITEMS) {
            let (Token::Get(slot), key_bytes) = decode::decode_first(&entries[at..])? else { return None };
            let mut word = [0; 8];
            word[..key_bytes].copy_from_slice(&entries[at..at + key_bytes]);
            instructions.push((u64::from_le_bytes(word), key_bytes));
            keys.push(self.memo.get(slot as usize)?);
            at += key_bytes;
            at += decode_value(&self.memo, &mut self.runs, &padded[at..])?.1;
        }
        if at + 1 != entries.len() || keys.len() > MAX_ENTRIES {
            return None;
        }
        let known =
            |key: &Cell| (key.tag() == cell::STR).then(|| Key::of(StringId(key.payload() as u32))).flatten();
        let names: Vec<Key> = keys.iter().map(known).collect::<Option<_>>()?;
        let table = &self.builder.tables[Table::Events as usize];
        // Events that are dropped have no shape.
        let shape = if self.builder.skips_events { 0 } else { table.last_shape_if(&keys)? };
        let has_address = names.contains(&Key::Addr);
        let target = |name: Key| {
            Some(match (name, name.kind()) {
                (Key::Frames, _) => Target::Stack,
                (_, Kind::Rows | Kind::Stack | Kind::Other) => return None,
                _ if self.builder.skips_events => Target::Ignored,
                (Key::Action, _) => Target::Action,
                (Key::Addr, _) => Target::Address,
                (Key::DeviceFree, _) if !has_address => Target::Address,
                (Key::Size, _) => Target::Size,
                (Key::Stream, _) => Target::Stream,
                (Key::TimeUs, _) => Target::Ticks,
                (_, kind) => Target::Column(kind, table.records.column_of(name)?),
            })
        };
        let entry = |((key, key_bytes), &name): ((u64, usize), &Key)| {
            Some(StencilEntry {
                key,
                mask: u64::MAX >> (64 - 8 * key_bytes),
                key_bytes,
                target: target(name)?,
            })
        };
        let entries = instructions.into_iter().zip(&names).map(entry).collect::<Option<_>>()?;
        Some(Stencil { shape, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_number_in_long_encoding_may_end_window() {
        let (memo, mut runs) = (Memo::default(), Runs::default());
        let bytes = b"\x8a\x08\x05\0\0\0\0\0\0\0";
        let Some((EncodedValue::Value(value), 10)) = decode_value(&memo, &mut runs, bytes) else {
            panic!("no number")
        };
        assert_eq!(value.as_int(), 5);
        assert!(decode_value(&memo, &mut runs, &bytes[..9]).is_none());
    }
}

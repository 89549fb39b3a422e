//! Stencils: the spelling of the last events. The keys of an event are memo slots, so events of one shape begin each
//! entry with the same bytes; where they do, [`crate::pytorch::read::fast::spelled`] reads an event without the
//! machine's stack.
//!
//! **What does it save?** Loading took 0.30 instead of 0.44 s in one interleaved run. A file that arrives byte by byte,
//! where no event is ever complete in the window, must give the same result (`tests/tests/snapshot/spellings.rs`).

use crate::pickle::decode::{self, Token};
use crate::pickle::opcode as op;
use crate::pytorch::read::fast::runs::{Run, Runs};
use crate::pytorch::read::fold::rows::Table;
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::core::Machine;
use crate::pytorch::read::machine::memo::Memo;
use memtrack_model::snapshot::StringId;
use memtrack_model::snapshot::pytorch::{Key, Kind};

/// The most entries of an event that a stencil reads; the machine reads larger ones.
pub(crate) const MAX_PLACES: usize = 16;
/// The most shapes that are known at a time. Files have two or three: with a stack and without, and when memory ran
/// out.
const MAX_STENCILS: usize = 4;
/// The excess of learnt stencils over events that a stencil read from which no more stencils are learnt.
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
    /// A column of the records, by its index among them.
    Column(Kind, usize),
    /// None: events are not kept.
    Dropped,
}

/// One entry: the instruction that pushes its key, and the destination of its value.
#[derive(Debug)]
pub(crate) struct StencilEntry {
    /// The instruction as the low bytes of a word, and a mask of its bits.
    pub(crate) key: u64,
    pub(crate) mask: u64,
    pub(crate) key_bytes: usize,
    pub(crate) target: Target,
}

/// The entries of one shape, in order.
#[derive(Debug)]
pub(crate) struct Stencil {
    pub(crate) shape: u32,
    pub(crate) places: Vec<StencilEntry>,
}

/// The known stencils, the one used last at the front.
#[derive(Debug, Default)]
pub(crate) struct Stencils {
    pub(crate) known: Vec<Stencil>,
    /// The number of learnt stencils minus the number of events that a stencil read; not below 0.
    pub(crate) misses: u32,
}

impl Stencils {
    /// Records that the stencil at `index` has read an event.
    #[inline]
    pub(crate) fn matched(&mut self, index: usize) {
        if index > 0 {
            self.known[..=index].rotate_right(1);
        }
        self.misses = self.misses.saturating_sub(1);
    }

    /// Forgets everything after a memo slot was set again: a slot may now contain another key.
    #[cold]
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }
}

/// A value, as the instructions spell it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spelled {
    /// A value that exists already, or needs no memo slot.
    Value(Cell),
    /// A new pair of integers, which takes a memo slot.
    Pair(Cell),
    /// A new list, which takes a memo slot, of a run that begins after the first three bytes; or without frames.
    List(Option<Run>),
}

/// Returns the value that `bytes` begin with, and the length of its instructions; `None` for values that stencils do
/// not support.
#[inline(always)]
pub(crate) fn value_in(memo: &Memo, runs: &mut Runs, bytes: &[u8]) -> Option<(Spelled, usize)> {
    let (token, length) = decode::decode_token(bytes.first_chunk()?);
    let value = match token {
        Token::Get(slot) => memo.get(slot as usize)?,
        Token::Int(number) => {
            // Pairs consist of small numbers, so a large one such as an address is not the start of a pair.
            let small = number >> cell::PAIR_BITS == 0;
            if small && matches!(bytes.get(length), Some(&(op::BININT1 | op::BININT2 | op::BININT))) {
                return pair_in(number, bytes, length);
            }
            Cell::int(number)?
        }
        Token::Plain(op::NEWTRUE) => Cell::bool(true),
        Token::Plain(op::NEWFALSE) => Cell::bool(false),
        Token::Plain(op::EMPTY_LIST) => match bytes[1..] {
            [op::MEMOIZE, op::MARK, ..] => {
                let run = runs.find(&bytes[3..])?;
                return Some((Spelled::List(Some(run)), 3 + run.length + 1));
            }
            [op::MEMOIZE, ..] => return Some((Spelled::List(None), 2)),
            _ => return None,
        },
        _ => return None,
    };
    Some((Spelled::Value(value), length))
}

/// Returns the pair of `first`, whose token has `length` bytes, and of the integer behind it.
#[inline(always)]
fn pair_in(first: i64, bytes: &[u8], length: usize) -> Option<(Spelled, usize)> {
    let (Token::Int(second), more) = decode::decode_token(bytes[length..].first_chunk()?) else {
        return None;
    };
    let length = length + more;
    let ends = bytes[length..].starts_with(&[op::TUPLE2, op::MEMOIZE]);
    ends.then_some((Spelled::Pair(Cell::pair(Cell::int(first)?, Cell::int(second)?)?), length + 2))
}

impl Machine<'_> {
    /// Learns from the dictionary on top of the stack, if it has just become an event; `entries` are the bytes after
    /// its mark, SETITEMS included.
    #[inline]
    pub(crate) fn learn_event(&mut self, entries: &[u8]) {
        let is_event = |dict: Cell| self.heap.containers[dict.row()].tag() == cell::EVENT;
        if self.stencils.misses < MAX_MISSES && self.stack.last().is_some_and(|&dict| is_event(dict)) {
            self.learn(entries);
        }
    }

    fn learn(&mut self, entries: &[u8]) {
        self.stencils.misses += 1;
        if let Some(stencil) = self.stencil_of(entries) {
            self.stencils.known.truncate(MAX_STENCILS - 1);
            self.stencils.known.insert(0, stencil);
        }
    }

    /// Returns the stencil of `entries`, SETITEMS included.
    fn stencil_of(&mut self, entries: &[u8]) -> Option<Stencil> {
        // Reading a value may access bytes after the last one.
        let padded = [entries, &[op::SETITEMS; 2 * decode::MAX_TOKEN_BYTES]].concat();
        let (mut at, mut spellings, mut keys) = (0, Vec::new(), Vec::new());
        while entries.get(at) != Some(&op::SETITEMS) {
            let (Token::Get(slot), key_bytes) = decode::first(&entries[at..])? else { return None };
            let mut word = [0; 8];
            word[..key_bytes].copy_from_slice(&entries[at..at + key_bytes]);
            spellings.push((u64::from_le_bytes(word), key_bytes));
            keys.push(self.memo.get(slot as usize)?);
            at += key_bytes;
            at += value_in(&self.memo, &mut self.runs, &padded[at..])?.1;
        }
        if at + 1 != entries.len() || keys.len() > MAX_PLACES {
            return None;
        }
        let known =
            |key: &Cell| (key.tag() == cell::STR).then(|| Key::of(StringId(key.payload() as u32))).flatten();
        let names: Vec<Key> = keys.iter().map(known).collect::<Option<_>>()?;
        let sort = &self.folder.sorts[Table::Events as usize];
        // Dropped events have no shape.
        let shape = if self.folder.skips_events { 0 } else { sort.last_if(&keys)? };
        let has_address = names.contains(&Key::Addr);
        let target = |name: Key| {
            Some(match (name, name.kind()) {
                (Key::Frames, _) => Target::Stack,
                (_, Kind::Rows | Kind::Stack | Kind::Other) => return None,
                _ if self.folder.skips_events => Target::Dropped,
                (Key::Action, _) => Target::Action,
                (Key::Addr, _) => Target::Address,
                (Key::DeviceFree, _) if !has_address => Target::Address,
                (Key::Size, _) => Target::Size,
                (Key::Stream, _) => Target::Stream,
                (Key::TimeUs, _) => Target::Ticks,
                (_, kind) => Target::Column(kind, sort.records.column_of(name)?),
            })
        };
        let place = |((key, key_bytes), &name): ((u64, usize), &Key)| {
            Some(StencilEntry {
                key,
                mask: u64::MAX >> (64 - 8 * key_bytes),
                key_bytes,
                target: target(name)?,
            })
        };
        let places = spellings.into_iter().zip(&names).map(place).collect::<Option<_>>()?;
        Some(Stencil { shape, places })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_number_spelled_long_may_end_the_window() {
        let (memo, mut runs) = (Memo::default(), Runs::default());
        let bytes = b"\x8a\x08\x05\0\0\0\0\0\0\0";
        let Some((Spelled::Value(value), 10)) = value_in(&memo, &mut runs, bytes) else {
            panic!("no number")
        };
        assert_eq!(value.as_int(), 5);
        assert!(value_in(&memo, &mut runs, &bytes[..9]).is_none());
    }
}

//! Reads an event directly from its bytes into its row using a [stencil](crate::pytorch::read::fast::stencil). Nothing is
//! changed until the whole event is known to match, so that the machine can start over with an event that does not.

use crate::pickle::PickleErrorKind;
use crate::pickle::opcode as op;
use crate::pytorch::read::fast::stencil::{EncodedValue, MAX_ENTRIES, Target, decode_value};
use crate::pytorch::read::fold::rows::{SKIPPED, Table};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::core::Machine;
use memtrack_model::event::{Event, StackId};
use memtrack_model::snapshot::StringId;
use memtrack_model::snapshot::pytorch::Kind;
use memtrack_model::snapshot::pytorch::action_of;

/// The maximum number of new values that an event adds to the memo: its list of frames and its pools.
const MAX_NEW_VALUES: usize = 3;

/// An event that matches a stencil.
struct MatchedEvent {
    event: Event,
    /// The values for the columns of the records, indexed by the position of the entry.
    columns: [u64; MAX_ENTRIES],
    /// The new values for the memo. `UNSET` stands for the list of frames, which does not have a row yet.
    new: [Cell; MAX_NEW_VALUES],
    new_count: usize,
    frames: Frames,
}

/// The value under an event's `frames` key.
#[derive(Clone, Copy)]
enum Frames {
    /// There is no value, or it is not needed.
    None,
    /// An existing list that is a stack.
    Known(Cell),
    /// A new list that has no frames.
    Empty,
    /// A new list that forms this loose stack.
    New(StackId),
}

/// Returns the number if a column can represent it exactly.
#[inline]
fn as_unsigned(value: Cell) -> Option<u64> {
    if value.tag() == cell::INT { u64::try_from(value.as_int()).ok() } else { None }
}

/// Returns the id of a string, or `None` if the value is not a string.
#[inline]
fn as_string(value: Cell) -> Option<StringId> {
    (value.tag() == cell::STR).then(|| StringId(value.payload() as u32))
}

impl Machine<'_> {
    /// Turns the new dictionary on top of the stack into the event with the entries at the start of `ready`, which holds
    /// the bytes after the mark. Returns the length of the entries, or `None` if there is no new dictionary or no stencil
    /// matches.
    ///
    /// # Errors
    /// Fails if a list of frames cannot be used.
    #[inline(always)]
    pub(crate) fn fold_event(&mut self, ready: &[u8]) -> Result<Option<usize>, PickleErrorKind> {
        let Ok(dict) = self.top() else { return Ok(None) };
        if dict.tag() != cell::DICT || self.heap.containers[dict.row()] != Cell::UNSET {
            return Ok(None);
        }
        let pools = self.event_pools().len();
        for index in 0..self.stencils.known.len() {
            // This is filled and used in place, because copying it would have to wait until the words that were written
            // last can be read (a failed store-to-load forwarding).
            let mut matched = MatchedEvent {
                event: Event::BLANK,
                columns: [0; MAX_ENTRIES],
                new: [Cell::UNSET; MAX_NEW_VALUES],
                new_count: 0,
                frames: Frames::None,
            };
            if let Some(length) = self.match_event(index, ready, &mut matched) {
                self.append_event(index, dict, &mut matched)?;
                return Ok(Some(length));
            }
            // Drop the pools that `match_event` added. The values of an event that does not match might not be pools
            // after all: if a key occurs twice, only the last value is valid.
            self.event_pools().truncate(pools);
        }
        Ok(None)
    }

    fn event_pools(&mut self) -> &mut Vec<(u64, u64)> {
        &mut self.builder.tables[Table::Events as usize].records.pools
    }

    /// Reads an event's entries by a stencil and returns their length in bytes, including SETITEMS. Of the machine's
    /// state, only the pools and the runs are changed. If the event does not match, the changes to the runs need not be
    /// undone, because the machine then makes the same changes.
    #[inline(always)]
    fn match_event(&mut self, index: usize, ready: &[u8], matched: &mut MatchedEvent) -> Option<usize> {
        let stencil = &self.stencils.known[index];
        let records = &mut self.builder.tables[Table::Events as usize].records;
        let MatchedEvent { event, columns, new, new_count, frames } = matched;
        let (mut at, mut run) = (0, None);
        for (entry, column) in stencil.entries.iter().zip(columns) {
            let key = u64::from_le_bytes(*ready.get(at..)?.first_chunk()?);
            if key & entry.mask != entry.key {
                return None;
            }
            at += entry.key_bytes;
            let (encoded, length) = decode_value(&self.memo, &mut self.runs, &ready[at..])?;
            let value = match encoded {
                EncodedValue::Value(value) => value,
                EncodedValue::Pair(pair) => {
                    *new.get_mut(*new_count)? = pair;
                    *new_count += 1;
                    pair
                }
                EncodedValue::List(list) => {
                    if !matches!(entry.target, Target::Stack) || *new_count == MAX_NEW_VALUES {
                        return None;
                    }
                    *new_count += 1;
                    *frames = Frames::Empty;
                    run = list.map(|run| (run, at + 3));
                    at += length;
                    continue;
                }
            };
            at += length;
            match entry.target {
                Target::Ignored => {}
                Target::Address => event.address = as_unsigned(value)?,
                Target::Size => event.size_bytes = as_unsigned(value)?,
                Target::Stream => event.stream.0 = as_unsigned(value)?,
                Target::Ticks => event.ticks = as_unsigned(value)?,
                Target::Action => event.action = action_of(as_string(value)?)?,
                Target::Stack if self.builder.skips_events => {}
                Target::Stack if value.tag() == cell::LIST => *frames = Frames::Known(value),
                Target::Stack => return None,
                Target::Column(kind, _) => {
                    *column = match kind {
                        Kind::Unsigned => as_unsigned(value)?,
                        Kind::Signed if value.tag() == cell::INT => value.as_int() as u64,
                        Kind::Flag if value.tag() == cell::TRUE || value.tag() == cell::FALSE => {
                            u64::from(value.tag() == cell::TRUE)
                        }
                        Kind::Text => as_string(value)?.0.into(),
                        Kind::Pool if value.tag() == cell::PAIR => records.pool_number(value.as_pair())?,
                        _ => return None,
                    }
                }
            }
        }
        if ready.get(at) != Some(&op::SETITEMS) || !self.memo.has_room(*new_count) {
            return None;
        }
        match (matched.frames, run) {
            (Frames::Known(list), _) if self.heap.containers[list.row()].tag() != cell::STACK => return None,
            (_, Some((run, start))) => {
                matched.frames = Frames::New(self.find_loose_stack(run, &ready[start..])?)
            }
            _ => {}
        }
        Some(at + 1)
    }

    /// Turns `dict` into the event that matched the stencil at `index`.
    #[inline(always)]
    fn append_event(
        &mut self,
        index: usize,
        dict: Cell,
        matched: &mut MatchedEvent,
    ) -> Result<(), PickleErrorKind> {
        let MatchedEvent { event, columns, new, new_count, frames } = matched;
        let skips = self.builder.skips_events;
        let mut list = None;
        match *frames {
            Frames::None => {}
            Frames::Known(known) => {
                event.stack = self.builder.fold_stack(&mut self.heap, known)?.unwrap_or(StackId::NONE);
            }
            Frames::Empty | Frames::New(_) => {
                let new = self.heap.add_container(cell::LIST);
                self.heap.containers[new.row()] = match *frames {
                    Frames::New(loose) if skips => Cell::loose_stack(loose),
                    Frames::New(loose) => {
                        event.stack = self.builder.use_loose_stack(loose);
                        Cell::new(cell::STACK, event.stack.0.into())
                    }
                    _ if skips => Cell::UNSET,
                    _ => Cell::new(cell::STACK, 0),
                };
                list = Some(new);
            }
        }
        self.heap.containers[dict.row()] = if skips {
            SKIPPED
        } else {
            let stencil = &self.stencils.known[index];
            let records = &mut self.builder.tables[Table::Events as usize].records;
            let row = records.push(stencil.shape);
            for (entry, number) in stencil.entries.iter().zip(columns) {
                if let Target::Column(_, column) = entry.target {
                    records.set_column(row, column, *number);
                }
            }
            self.builder.events.push(event);
            Cell::new(cell::EVENT, row as u64)
        };
        self.stencils.record_match(index);
        for value in &new[..*new_count] {
            self.memoize(if *value == Cell::UNSET { list.unwrap_or(*value) } else { *value });
        }
        Ok(())
    }
}

//! Reading of an event by a [stencil](crate::pytorch::read::fast::stencil): from its bytes to its row. Nothing is
//! changed before the whole event is known to fit, so that the machine can read an event that does not fit from its
//! start.

use crate::pickle::PickleErrorKind;
use crate::pickle::opcode as op;
use crate::pytorch::read::fast::stencil::{MAX_PLACES, Spelled, Target, value_in};
use crate::pytorch::read::fold::rows::{SKIPPED, Table};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::core::Machine;
use memtrack_model::event::{Event, StackId};
use memtrack_model::snapshot::StringId;
use memtrack_model::snapshot::pytorch::Kind;
use memtrack_model::snapshot::pytorch::action_of;

/// The most new values that one event may put into the memo: its list of frames and its pools.
const MAX_NEW: usize = 3;

/// An event that fits a stencil.
struct Fitting {
    event: Event,
    /// The values for the columns of the records, by place.
    columns: [u64; MAX_PLACES],
    /// The new values for the memo; `UNSET` is the list of frames, which has no row yet.
    new: [Cell; MAX_NEW],
    new_count: usize,
    frames: Frames,
}

/// The value of an event under `frames`.
#[derive(Clone, Copy)]
enum Frames {
    /// Nothing, or it is not needed.
    None,
    /// A list that exists already, and is a stack.
    Known(Cell),
    /// A new list without frames.
    Empty,
    /// A new list, which is this loose stack.
    New(StackId),
}

/// Returns the number, if a column represents it exactly.
#[inline]
fn unsigned(value: Cell) -> Option<u64> {
    if value.tag() == cell::INT { u64::try_from(value.as_int()).ok() } else { None }
}

/// Returns the string.
#[inline]
fn string(value: Cell) -> Option<StringId> {
    (value.tag() == cell::STR).then(|| StringId(value.payload() as u32))
}

impl Machine<'_> {
    /// Turns the dictionary on top of the stack, if it is new, into the event whose entries `ready` begins with (the
    /// bytes after the mark). Returns their length, or `None` when no stencil fits.
    ///
    /// # Errors
    /// Fails when a list of frames cannot be used.
    #[inline(always)]
    pub(crate) fn event_in(&mut self, ready: &[u8]) -> Result<Option<usize>, PickleErrorKind> {
        let Ok(dict) = self.top() else { return Ok(None) };
        if dict.tag() != cell::DICT || self.heap.containers[dict.row()] != Cell::UNSET {
            return Ok(None);
        }
        let pools = self.event_pools().len();
        for index in 0..self.stencils.known.len() {
            // Filled and used in place: a copy would wait for the words that were written last.
            let mut fitting = Fitting {
                event: Event::BLANK,
                columns: [0; MAX_PLACES],
                new: [Cell::UNSET; MAX_NEW],
                new_count: 0,
                frames: Frames::None,
            };
            if let Some(length) = self.fit(index, ready, &mut fitting) {
                self.enter_event(index, dict, &mut fitting)?;
                return Ok(Some(length));
            }
            // The values of an event that does not fit need not be pools: a key that occurs twice has another value.
            self.event_pools().truncate(pools);
        }
        Ok(None)
    }

    fn event_pools(&mut self) -> &mut Vec<(u64, u64)> {
        &mut self.folder.sorts[Table::Events as usize].records.pools
    }

    /// Reads the entries of an event by a stencil and returns their length in bytes, with SETITEMS. The only changes
    /// to the machine are those to the pools, and to the runs, which the machine will make itself when the event does
    /// not fit.
    #[inline(always)]
    fn fit(&mut self, index: usize, ready: &[u8], fitting: &mut Fitting) -> Option<usize> {
        let stencil = &self.stencils.known[index];
        let records = &mut self.folder.sorts[Table::Events as usize].records;
        let Fitting { event, columns, new, new_count, frames } = fitting;
        let (mut at, mut run) = (0, None);
        for (place, column) in stencil.places.iter().zip(columns) {
            let key = u64::from_le_bytes(*ready.get(at..)?.first_chunk()?);
            if key & place.mask != place.key {
                return None;
            }
            at += place.key_bytes;
            let (spelled, length) = value_in(&self.memo, &mut self.runs, &ready[at..])?;
            let value = match spelled {
                Spelled::Value(value) => value,
                Spelled::Pair(pair) => {
                    *new.get_mut(*new_count)? = pair;
                    *new_count += 1;
                    pair
                }
                Spelled::List(spelled) => {
                    if !matches!(place.target, Target::Stack) || *new_count == MAX_NEW {
                        return None;
                    }
                    *new_count += 1;
                    *frames = Frames::Empty;
                    run = spelled.map(|run| (run, at + 3));
                    at += length;
                    continue;
                }
            };
            at += length;
            match place.target {
                Target::Dropped => {}
                Target::Address => event.address = unsigned(value)?,
                Target::Size => event.size_bytes = unsigned(value)?,
                Target::Stream => event.stream.0 = unsigned(value)?,
                Target::Ticks => event.ticks = unsigned(value)?,
                Target::Action => event.action = action_of(string(value)?)?,
                Target::Stack if self.folder.skips_events => {}
                Target::Stack if value.tag() == cell::LIST => *frames = Frames::Known(value),
                Target::Stack => return None,
                Target::Column(kind, _) => {
                    *column = match kind {
                        Kind::Unsigned => unsigned(value)?,
                        Kind::Signed if value.tag() == cell::INT => value.as_int() as u64,
                        Kind::Flag if value.tag() == cell::TRUE || value.tag() == cell::FALSE => {
                            u64::from(value.tag() == cell::TRUE)
                        }
                        Kind::Text => string(value)?.0.into(),
                        Kind::Pool if value.tag() == cell::PAIR => records.pool_number(value.as_pair())?,
                        _ => return None,
                    }
                }
            }
        }
        if ready.get(at) != Some(&op::SETITEMS) || !self.memo.has_room(*new_count) {
            return None;
        }
        match (fitting.frames, run) {
            (Frames::Known(list), _) if self.heap.containers[list.row()].tag() != cell::STACK => return None,
            (_, Some((run, start))) => fitting.frames = Frames::New(self.loose_stack(run, &ready[start..])?),
            _ => {}
        }
        Some(at + 1)
    }

    /// Turns `dict` into the event that fits the stencil at `index`.
    #[inline(always)]
    fn enter_event(
        &mut self,
        index: usize,
        dict: Cell,
        fitting: &mut Fitting,
    ) -> Result<(), PickleErrorKind> {
        let Fitting { event, columns, new, new_count, frames } = fitting;
        let skips = self.folder.skips_events;
        let mut list = None;
        match *frames {
            Frames::None => {}
            Frames::Known(known) => {
                event.stack = self.folder.stack(&mut self.heap, known)?.unwrap_or(StackId::NONE);
            }
            Frames::Empty | Frames::New(_) => {
                let new = self.heap.container(cell::LIST);
                self.heap.containers[new.row()] = match *frames {
                    Frames::New(loose) if skips => Cell::loose_stack(loose),
                    Frames::New(loose) => {
                        event.stack = self.folder.used(loose);
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
            let records = &mut self.folder.sorts[Table::Events as usize].records;
            let row = records.push(stencil.shape);
            for (place, number) in stencil.places.iter().zip(columns) {
                if let Target::Column(_, column) = place.target {
                    records.set_column(row, column, *number);
                }
            }
            self.folder.events.push(event);
            Cell::new(cell::EVENT, row as u64)
        };
        self.stencils.matched(index);
        for value in &new[..*new_count] {
            self.memoize(if *value == Cell::UNSET { list.unwrap_or(*value) } else { *value });
        }
        Ok(())
    }
}

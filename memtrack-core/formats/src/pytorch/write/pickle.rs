//! Writes a snapshot as a pickle of protocol 4 the way CPython does, with frames of 64 KiB, memoised containers, and
//! shared values that are written only once. The values in PyTorch's snapshots are written only with
//! instructions that pytorch.org/memory_viz supports.

use super::{Container, SharedId, Sink};
use crate::pickle::Emitter;
use crate::pickle::opcode as op;
use memtrack_model::snapshot::StringId;
use std::collections::HashMap;
use std::io::{self, Write};

/// The maximum number of items that one instruction adds to their container.
const MAX_BATCH_LEN: usize = 1000;
/// The memo slot of a value that does not have one.
const UNSET: u32 = u32::MAX;

/// A writer for a pickle.
pub(super) struct PickleSink<W> {
    out: Emitter<W>,
    strings: Vec<u32>,
    stacks: Vec<u32>,
    frames: Vec<u32>,
    others: HashMap<SharedId, u32>,
    open: Vec<OpenContainer>,
}

/// A container that is being written.
struct OpenContainer {
    container: Container,
    items: usize,
    done: usize,
    shared: Option<SharedId>,
}

impl<W: Write> PickleSink<W> {
    pub(super) fn new(out: W) -> io::Result<Self> {
        Ok(Self {
            out: Emitter::new(out)?,
            strings: Vec::new(),
            stacks: Vec::new(),
            frames: Vec::new(),
            others: HashMap::new(),
            open: Vec::new(),
        })
    }

    pub(super) fn finish(self) -> io::Result<W> {
        self.out.finish()
    }

    fn slot_of(&self, shared: SharedId) -> Option<u32> {
        let slot = match shared {
            SharedId::Stack(row) => self.stacks.get(row as usize).copied(),
            SharedId::Frame(row) => self.frames.get(row as usize).copied(),
            other => self.others.get(&other).copied(),
        };
        slot.filter(|&slot| slot != UNSET)
    }

    fn remember(&mut self, shared: SharedId, slot: u32) {
        match shared {
            SharedId::Stack(row) => set_slot(&mut self.stacks, row, slot),
            SharedId::Frame(row) => set_slot(&mut self.frames, row, slot),
            other => {
                self.others.insert(other, slot);
            }
        }
    }
}

fn set_slot(slots: &mut Vec<u32>, row: u32, slot: u32) {
    let row = row as usize;
    if slots.len() <= row {
        slots.resize(row + 1, UNSET);
    }
    slots[row] = slot;
}

impl<W: Write> Sink for PickleSink<W> {
    fn write_none(&mut self) -> io::Result<()> {
        self.out.emit(&[op::NONE])
    }

    fn write_bool(&mut self, truth: bool) -> io::Result<()> {
        self.out.emit(&[if truth { op::NEWTRUE } else { op::NEWFALSE }])
    }

    fn write_int(&mut self, number: i64) -> io::Result<()> {
        self.out.write_int(number)
    }

    fn write_big_int(&mut self, bytes: &[u8]) -> io::Result<()> {
        match u8::try_from(bytes.len()) {
            Ok(length) => self.out.begin(&[op::LONG1, length]),
            Err(_) => {
                let length = i32::try_from(bytes.len()).map_err(io::Error::other)?;
                self.out.begin(&[op::LONG4]);
                self.out.begin(&length.to_le_bytes());
            }
        }
        self.out.emit(bytes)
    }

    fn write_float(&mut self, number: f64) -> io::Result<()> {
        self.out.write_float(number)
    }

    fn write_string(&mut self, id: StringId, text: &[u8]) -> io::Result<()> {
        if let Some(&slot) = self.strings.get(id.index()).filter(|&&slot| slot != UNSET) {
            return self.out.write_reference(slot);
        }
        let slot = self.out.write_string(text)?;
        set_slot(&mut self.strings, id.0, slot);
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Ok(short) = u8::try_from(bytes.len()) {
            self.out.begin(&[op::SHORT_BINBYTES, short]);
        } else {
            self.out.begin(&[op::BINBYTES8]);
            self.out.begin(&(bytes.len() as u64).to_le_bytes());
        }
        self.out.begin(bytes);
        self.out.memoize().map(|_| ())
    }

    fn try_write_reference(&mut self, shared: SharedId) -> io::Result<bool> {
        match self.slot_of(shared) {
            Some(slot) => self.out.write_reference(slot).map(|()| true),
            None => Ok(false),
        }
    }

    fn begin_container(
        &mut self,
        container: Container,
        items: usize,
        shared: Option<SharedId>,
    ) -> io::Result<()> {
        let opcode = match container {
            Container::List => Some(op::EMPTY_LIST),
            Container::Dict => Some(op::EMPTY_DICT),
            Container::Set => Some(op::EMPTY_SET),
            Container::FrozenSet => Some(op::MARK),
            Container::Tuple if items > 3 => Some(op::MARK),
            Container::Tuple => None,
        };
        self.out.begin(opcode.as_slice());
        // Tuples and frozen sets do not exist until they are complete.
        if !matches!(container, Container::Tuple | Container::FrozenSet) {
            let slot = self.out.memoize()?;
            if let Some(shared) = shared {
                self.remember(shared, slot);
            }
        }
        self.open.push(OpenContainer { container, items, done: 0, shared });
        Ok(())
    }

    fn begin_item(&mut self) -> io::Result<()> {
        if let Some(OpenContainer { container, items, done, .. }) = self.open.last() {
            let alone = items - done == 1 && *container != Container::Set;
            let batched = !matches!(container, Container::Tuple | Container::FrozenSet);
            if batched && !alone && done % MAX_BATCH_LEN == 0 {
                self.out.begin(&[op::MARK]);
            }
        }
        Ok(())
    }

    fn end_key(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn end_item(&mut self) -> io::Result<()> {
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        // A batch of one item has no mark. Only the last batch can have one item.
        let alone = open.done.is_multiple_of(MAX_BATCH_LEN) && open.items - open.done == 1;
        open.done += 1;
        let full = open.done == open.items || open.done.is_multiple_of(MAX_BATCH_LEN);
        let opcode = match open.container {
            Container::List if alone => op::APPEND,
            Container::List if full => op::APPENDS,
            Container::Dict if alone => op::SETITEM,
            Container::Dict if full => op::SETITEMS,
            Container::Set if full => op::ADDITEMS,
            _ => return Ok(()),
        };
        self.out.emit(&[opcode])
    }

    fn end_container(&mut self) -> io::Result<()> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let opcode = match (open.container, open.items) {
            (Container::Tuple, 0) => return self.out.emit(&[op::EMPTY_TUPLE]),
            (Container::Tuple, 1) => op::TUPLE1,
            (Container::Tuple, 2) => op::TUPLE2,
            (Container::Tuple, 3) => op::TUPLE3,
            (Container::Tuple, _) => op::TUPLE,
            (Container::FrozenSet, _) => op::FROZENSET,
            _ => return Ok(()),
        };
        self.out.begin(&[opcode]);
        let slot = self.out.memoize()?;
        if let Some(shared) = open.shared {
            self.remember(shared, slot);
        }
        Ok(())
    }
}

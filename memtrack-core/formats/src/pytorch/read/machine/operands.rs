//! What follows an opcode of the [`Machine`]: integers, strings, lines, memo slots, names of classes.

use crate::pickle::number::{self, from_twos_complement};
use crate::pickle::{Global, PickleErrorKind};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::core::Machine;
use std::io::Read;

type Result<T> = std::result::Result<T, PickleErrorKind>;

/// Longest integer and longest line of the text protocols, in bytes.
const MAX_OPERAND_BYTES: u64 = 1 << 20;

impl<R: Read> Machine<'_, R> {
    #[inline]
    pub(crate) fn long1(&mut self) -> Result<Cell> {
        let length = self.source.byte()?;
        if length <= 8 {
            let mut wide = [0; 8];
            let used = &mut wide[..length.into()];
            for byte in used.iter_mut() {
                *byte = self.source.byte()?;
            }
            let shift = 64 - 8 * u32::from(length);
            let number = if length == 0 { 0 } else { i64::from_le_bytes(wide) << shift >> shift };
            return Ok(self.heap.int(number));
        }
        self.long(length.into())
    }

    /// An integer of `length` bytes.
    pub(crate) fn long(&mut self, length: u64) -> Result<Cell> {
        if length > MAX_OPERAND_BYTES {
            return Err(PickleErrorKind::TooLarge { what: "bytes of an integer", limit: MAX_OPERAND_BYTES });
        }
        let mut bytes = Vec::new();
        self.source.append_to(&mut bytes, length)?;
        Ok(self.heap.integer(from_twos_complement(bytes)))
    }

    /// A string of `length` bytes.
    #[inline]
    pub(crate) fn string(&mut self, length: u64) -> Result<Cell> {
        if let Some(ready) = self.source.ready(length) {
            if !memtrack_model::text::is_utf8_with_surrogates(ready) {
                return Err(PickleErrorKind::Malformed("string: it is not UTF-8"));
            }
            return Ok(self.heap.string(ready));
        }
        self.scratch.clear();
        self.limited(length)?;
        if !memtrack_model::text::is_utf8_with_surrogates(&self.scratch) {
            return Err(PickleErrorKind::Malformed("string: it is not UTF-8"));
        }
        Ok(self.heap.string(&self.scratch))
    }

    /// Reads `length` bytes into the scratch buffer, as long as there is memory for them.
    pub(crate) fn limited(&mut self, length: u64) -> Result<()> {
        let mut missing = length;
        while missing > 0 {
            let part = missing.min(1 << 20);
            self.source.append_to(&mut self.scratch, part)?;
            missing -= part;
            self.watch.look(self.source.offset(), self.scratch.capacity() as u64)?;
        }
        Ok(())
    }

    /// A line of the text protocols.
    pub(crate) fn line(&mut self) -> Result<Vec<u8>> {
        self.source.line(MAX_OPERAND_BYTES)
    }

    /// The slot that a line names.
    pub(crate) fn slot_line(&mut self) -> Result<u64> {
        match number::from_decimal(&self.line()?)? {
            number::Integer::Small(slot) => {
                u64::try_from(slot).map_err(|_| PickleErrorKind::Malformed("memo slot"))
            }
            number::Integer::Big(_) => Err(PickleErrorKind::Malformed("memo slot")),
        }
    }

    /// The class `module.name`, if it is one that stands for plain data.
    pub(crate) fn class(module: &[u8], name: &[u8]) -> Result<Cell> {
        match Global::find(module, name) {
            Some(Global::DefaultDict) => Ok(Cell::new(cell::GLOBAL, 0)),
            Some(Global::OrderedDict) => Ok(Cell::new(cell::GLOBAL, 1)),
            Some(Global::Int) => Ok(Cell::new(cell::GLOBAL, 2)),
            None => {
                let shorten = |text: &[u8]| memtrack_model::text::lossy(&text[..text.len().min(80)]);
                Err(PickleErrorKind::RefusedGlobal { module: shorten(module), name: shorten(name) })
            }
        }
    }
}

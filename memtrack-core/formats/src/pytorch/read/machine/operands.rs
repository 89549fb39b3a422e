//! Reads the data that follows a token of the [`Machine`], i.e. long integers, strings and lines. Also
//! resolves the names of classes.

use crate::pickle::line::{self, LineValue};
use crate::pickle::number::from_twos_complement;
use crate::pickle::source::Source;
use crate::pickle::{Global, PickleErrorKind, text};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::core::Machine;
use std::io::Read;

type Result<T> = std::result::Result<T, PickleErrorKind>;

/// The maximum length in bytes of an integer, and of a line in the text protocols.
pub(crate) const MAX_OPERAND_BYTES: u64 = 1 << 20;

impl Machine<'_> {
    /// Reads an integer of `length` bytes.
    pub(crate) fn read_long(&mut self, source: &mut Source<impl Read>, length: u64) -> Result<Cell> {
        if length > MAX_OPERAND_BYTES {
            return Err(PickleErrorKind::TooLarge { what: "bytes of an integer", limit: MAX_OPERAND_BYTES });
        }
        let mut bytes = Vec::new();
        source.append_to(&mut bytes, length)?;
        Ok(self.heap.add_integer(from_twos_complement(bytes)))
    }

    /// Reads a string of `length` bytes.
    #[inline]
    pub(crate) fn read_string(&mut self, source: &mut Source<impl Read>, length: u64) -> Result<Cell> {
        if let Some(ready) = source.take_buffered(length) {
            return Ok(self.heap.add_string(text::validate(ready)?));
        }
        self.scratch.clear();
        self.read_scratch(source, length)?;
        Ok(self.heap.add_string(text::validate(&self.scratch)?))
    }

    /// Reads `length` bytes.
    pub(crate) fn read_bytes(&mut self, source: &mut Source<impl Read>, length: u64) -> Result<Cell> {
        self.scratch.clear();
        self.read_scratch(source, length)?;
        let bytes = self.scratch.clone();
        Ok(self.heap.add_raw(bytes))
    }

    /// Reads `length` bytes into the scratch buffer. Fails if they exceed the memory limit.
    fn read_scratch(&mut self, source: &mut Source<impl Read>, length: u64) -> Result<()> {
        let mut missing = length;
        while missing > 0 {
            let part = missing.min(1 << 20);
            source.append_to(&mut self.scratch, part)?;
            missing -= part;
            self.watch.check(source.offset(), self.scratch.capacity() as u64)?;
        }
        Ok(())
    }

    /// Reads a value in the text protocols, where the operand is a line.
    pub(crate) fn read_text_line(&mut self, source: &mut Source<impl Read>, opcode: u8) -> Result<Cell> {
        Ok(match line::parse_value(opcode, &source.read_line(MAX_OPERAND_BYTES)?)? {
            LineValue::Bool(truth) => Cell::bool(truth),
            LineValue::Integer(integer) => self.heap.add_integer(integer),
            LineValue::Float(number) => self.heap.add_float(number),
            LineValue::Text(text) => self.heap.add_string(&text),
        })
    }

    /// Returns the class `module.name` if it is allowed in plain data.
    pub(crate) fn find_class(module: &[u8], name: &[u8]) -> Result<Cell> {
        match Global::find(module, name) {
            Some(Global::DefaultDict) => Ok(Cell::new(cell::GLOBAL, 0)),
            Some(Global::OrderedDict) => Ok(Cell::new(cell::GLOBAL, 1)),
            Some(Global::Int) => Ok(Cell::new(cell::GLOBAL, 2)),
            None => Err(Global::refused_error(module, name)),
        }
    }
}

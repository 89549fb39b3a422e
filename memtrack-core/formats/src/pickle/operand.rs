//! Reads the bytes that follow a token, such as strings, long integers and lines of text. Lengths are checked
//! against the limits before anything is stored.

use super::error::PickleErrorKind;
use super::line::{self, LineValue};
use super::machine::Machine;
use super::text;
use super::value::{Span, Value};
use std::io::Read;

impl<R: Read> Machine<'_, R> {
    /// Reads a line.
    pub(super) fn read_line(&mut self) -> Result<Vec<u8>, PickleErrorKind> {
        self.source.read_line(self.limits.operand_bytes)
    }

    /// Reads the next `length` bytes of input into the document.
    pub(super) fn read_raw(&mut self, length: u64) -> Result<Span, PickleErrorKind> {
        let free = self.limits.memory_bytes.saturating_sub(self.charged_bytes);
        let start = self.document.bytes.len();
        // Reading one byte more than fits distinguishes a truncated file from one that is too large.
        self.source.append_to(&mut self.document.bytes, length.min(free.saturating_add(1)))?;
        self.charge(usize::try_from(length).unwrap_or(usize::MAX))?;
        self.document.span_from(start)
    }

    /// Reads a string of `length` bytes. Python 2's byte strings are also read as text, which must be UTF-8.
    pub(super) fn read_string(&mut self, length: u64) -> Result<Value, PickleErrorKind> {
        let span = self.read_raw(length)?;
        text::validate(self.document.bytes(span))?;
        Ok(Value::Str(span))
    }

    /// Reads an integer of `length` bytes.
    pub(super) fn read_long(&mut self, length: u64) -> Result<Value, PickleErrorKind> {
        let limit = self.limits.operand_bytes;
        if length > limit {
            return Err(PickleErrorKind::TooLarge { what: "bytes of an integer", limit });
        }
        let mut bytes = Vec::new();
        self.source.append_to(&mut bytes, length)?;
        self.charge(bytes.len())?;
        self.document.push_twos_complement(bytes)
    }

    /// Reads a value in the text protocols, where the operand is a line.
    pub(super) fn read_text_line(&mut self, opcode: u8) -> Result<Value, PickleErrorKind> {
        let line = self.read_line()?;
        self.charge(line.len())?;
        match line::parse_value(opcode, &line)? {
            LineValue::Bool(truth) => Ok(Value::Bool(truth)),
            LineValue::Integer(integer) => self.document.push_integer(integer),
            LineValue::Float(number) => Ok(Value::Float(number)),
            LineValue::Text(text) => Ok(Value::Str(self.document.push_bytes(&text)?)),
        }
    }
}

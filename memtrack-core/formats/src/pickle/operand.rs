//! What follows a token: strings, long integers, lines of text. Everything is checked against the limits before it is kept.

use super::error::PickleErrorKind;
use super::line::{self, Line};
use super::machine::Machine;
use super::text;
use super::value::{Span, Value};
use std::io::Read;

impl<R: Read> Machine<'_, R> {
    /// A line.
    pub(super) fn line(&mut self) -> Result<Vec<u8>, PickleErrorKind> {
        self.source.line(self.limits.operand_bytes)
    }

    /// The next `length` bytes of input, kept in the document.
    pub(super) fn raw(&mut self, length: u64) -> Result<Span, PickleErrorKind> {
        let free = self.limits.memory_bytes.saturating_sub(self.charged_bytes);
        let start = self.document.bytes.len();
        // Reading one byte more than fits tells a file that is cut from one that is too large.
        self.source.append_to(&mut self.document.bytes, length.min(free.saturating_add(1)))?;
        self.charge(usize::try_from(length).unwrap_or(usize::MAX))?;
        self.document.span_from(start)
    }

    /// A string of `length` bytes. Python 2's byte strings come here too: they are text, and ours are UTF-8.
    pub(super) fn string(&mut self, length: u64) -> Result<Value, PickleErrorKind> {
        let span = self.raw(length)?;
        text::checked(self.document.bytes(span))?;
        Ok(Value::Str(span))
    }

    /// An integer of `length` bytes.
    pub(super) fn long(&mut self, length: u64) -> Result<Value, PickleErrorKind> {
        let limit = self.limits.operand_bytes;
        if length > limit {
            return Err(PickleErrorKind::TooLarge { what: "bytes of an integer", limit });
        }
        let mut bytes = Vec::new();
        self.source.append_to(&mut bytes, length)?;
        self.charge(bytes.len())?;
        self.document.push_twos_complement(bytes)
    }

    /// A value of the text protocols: its operand is a line.
    pub(super) fn text_line(&mut self, opcode: u8) -> Result<Value, PickleErrorKind> {
        let line = self.line()?;
        self.charge(line.len())?;
        match line::value(opcode, &line)? {
            Line::Bool(truth) => Ok(Value::Bool(truth)),
            Line::Integer(integer) => self.document.push_integer(integer),
            Line::Float(number) => Ok(Value::Float(number)),
            Line::Text(text) => Ok(Value::Str(self.document.push_bytes(&text)?)),
        }
    }
}

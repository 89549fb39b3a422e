//! What follows an opcode: lengths, strings, integers, lines of text, memo slots. Everything is checked against the
//! limits before it is kept.

use super::error::PickleErrorKind;
use super::machine::Machine;
use super::opcode as op;
use super::value::{Span, Value};
use super::{number, text};
use std::io::Read;

impl<R: Read> Machine<'_, R> {
    /// A length operand, in bytes.
    pub(super) fn length(&mut self, opcode: u8) -> Result<u64, PickleErrorKind> {
        Ok(match opcode {
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING | op::SHORT_BINBYTES => self.source.byte()?.into(),
            op::BINUNICODE | op::BINBYTES => u32::from_le_bytes(self.source.array()?).into(),
            op::BINSTRING => self.signed_length("string: a negative length")?,
            _ => u64::from_le_bytes(self.source.array()?),
        })
    }

    /// A length operand that Python reads with a sign.
    pub(super) fn signed_length(&mut self, complaint: &'static str) -> Result<u64, PickleErrorKind> {
        let length = i32::from_le_bytes(self.source.array()?);
        u64::try_from(length).map_err(|_| PickleErrorKind::Malformed(complaint))
    }

    /// The operand of a memo instruction.
    pub(super) fn memo_index(&mut self, opcode: u8) -> Result<u64, PickleErrorKind> {
        match opcode {
            op::BINGET | op::BINPUT => Ok(self.source.byte()?.into()),
            op::LONG_BINGET | op::LONG_BINPUT => Ok(u32::from_le_bytes(self.source.array()?).into()),
            _ => match number::from_decimal(&self.source.line(self.limits.operand_bytes)?)? {
                number::Integer::Small(index) => {
                    u64::try_from(index).map_err(|_| PickleErrorKind::Malformed("memo slot"))
                }
                number::Integer::Big(_) => Err(PickleErrorKind::Malformed("memo slot")),
            },
        }
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
        if !memtrack_model::text::is_utf8_with_surrogates(self.document.bytes(span)) {
            return Err(PickleErrorKind::Malformed("string: it is not UTF-8"));
        }
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

    /// A value of the text protocol: its operand is a line.
    pub(super) fn text_line(&mut self, opcode: u8) -> Result<Value, PickleErrorKind> {
        let line = self.source.line(self.limits.operand_bytes)?;
        self.charge(line.len())?;
        match opcode {
            // How protocols 0 and 1 spell booleans.
            op::INT if line == b"00" => Ok(Value::Bool(false)),
            op::INT if line == b"01" => Ok(Value::Bool(true)),
            op::INT => self.document.push_integer(number::from_decimal(&line)?),
            op::LONG => {
                let digits = line.strip_suffix(b"L").unwrap_or(&line);
                self.document.push_integer(number::from_decimal(digits)?)
            }
            op::FLOAT => number::float(&line).map(Value::Float),
            op::UNICODE => Ok(Value::Str(self.document.push_bytes(&text::raw_unicode_escape(&line)?)?)),
            _ => {
                let string = text::quoted_string(&line)?;
                if !memtrack_model::text::is_utf8_with_surrogates(&string) {
                    return Err(PickleErrorKind::Malformed("string: it is not UTF-8"));
                }
                Ok(Value::Str(self.document.push_bytes(&string)?))
            }
        }
    }
}

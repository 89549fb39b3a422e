//! The text protocols, 0 and 1: operands that are lines.

use super::error::PickleErrorKind;
use super::number::{self, Integer};
use super::{opcode as op, text};

/// The value of a line.
pub(crate) enum Line {
    Bool(bool),
    Integer(Integer),
    Float(f64),
    /// UTF-8 that may hold lone surrogates.
    Text(Vec<u8>),
}

/// Parses the `line` behind INT, LONG, FLOAT, UNICODE or STRING.
pub(crate) fn value(opcode: u8, line: &[u8]) -> Result<Line, PickleErrorKind> {
    Ok(match opcode {
        // The spelling of booleans in protocols 0 and 1.
        op::INT if line == b"00" => Line::Bool(false),
        op::INT if line == b"01" => Line::Bool(true),
        op::INT => Line::Integer(number::from_decimal(line)?),
        op::LONG => Line::Integer(number::from_decimal(line.strip_suffix(b"L").unwrap_or(line))?),
        op::FLOAT => Line::Float(number::float(line)?),
        op::UNICODE => Line::Text(text::raw_unicode_escape(line)?),
        // Byte strings of Python 2 are text too, and text is UTF-8 here.
        _ => Line::Text(text::checked(text::quoted_string(line)?)?),
    })
}

/// Parses the memo slot in the `line` behind GET or PUT.
pub(crate) fn slot(line: &[u8]) -> Result<u64, PickleErrorKind> {
    match number::from_decimal(line)? {
        Integer::Small(slot) => u64::try_from(slot).map_err(|_| PickleErrorKind::Malformed("memo slot")),
        Integer::Big(_) => Err(PickleErrorKind::Malformed("memo slot")),
    }
}

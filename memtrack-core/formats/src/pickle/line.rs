//! The text protocols, 0 and 1: operands that are lines.

use super::error::PickleErrorKind;
use super::number::{self, Integer};
use super::{opcode as op, text};

/// What a line stands for.
pub(crate) enum Line {
    Bool(bool),
    Integer(Integer),
    Float(f64),
    /// UTF-8 that may hold lone surrogates.
    Text(Vec<u8>),
}

/// What `line` stands for behind INT, LONG, FLOAT, UNICODE or STRING.
pub(crate) fn value(opcode: u8, line: &[u8]) -> Result<Line, PickleErrorKind> {
    Ok(match opcode {
        // How protocols 0 and 1 spell booleans.
        op::INT if line == b"00" => Line::Bool(false),
        op::INT if line == b"01" => Line::Bool(true),
        op::INT => Line::Integer(number::from_decimal(line)?),
        op::LONG => Line::Integer(number::from_decimal(line.strip_suffix(b"L").unwrap_or(line))?),
        op::FLOAT => Line::Float(number::float(line)?),
        op::UNICODE => Line::Text(text::raw_unicode_escape(line)?),
        // Python 2's byte strings are text too, and ours are UTF-8.
        _ => Line::Text(text::checked(text::quoted_string(line)?)?),
    })
}

/// The memo slot that `line` names behind GET or PUT.
pub(crate) fn slot(line: &[u8]) -> Result<u64, PickleErrorKind> {
    match number::from_decimal(line)? {
        Integer::Small(slot) => u64::try_from(slot).map_err(|_| PickleErrorKind::Malformed("memo slot")),
        Integer::Big(_) => Err(PickleErrorKind::Malformed("memo slot")),
    }
}

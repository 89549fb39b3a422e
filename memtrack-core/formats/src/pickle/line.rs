//! Parses the operands of text protocols 0 and 1, which are lines.

use super::error::PickleErrorKind;
use super::number::{self, Integer};
use super::{opcode as op, text};

/// The value of a line.
pub(crate) enum LineValue {
    Bool(bool),
    Integer(Integer),
    Float(f64),
    /// UTF-8 that may contain lone surrogates.
    Text(Vec<u8>),
}

/// Parses the `line` that follows INT, LONG, FLOAT, UNICODE or STRING.
pub(crate) fn parse_value(opcode: u8, line: &[u8]) -> Result<LineValue, PickleErrorKind> {
    Ok(match opcode {
        // Protocols 0 and 1 spell booleans like this.
        op::INT if line == b"00" => LineValue::Bool(false),
        op::INT if line == b"01" => LineValue::Bool(true),
        op::INT => LineValue::Integer(number::parse_integer(line)?),
        op::LONG => LineValue::Integer(number::parse_integer(line.strip_suffix(b"L").unwrap_or(line))?),
        op::FLOAT => LineValue::Float(number::parse_float(line)?),
        op::UNICODE => LineValue::Text(text::decode_raw_unicode_escape(line)?),
        // Python 2's byte strings are treated as text, and all text is UTF-8 here.
        _ => LineValue::Text(text::validate(text::decode_quoted_string(line)?)?),
    })
}

/// Parses the memo slot in the `line` that follows GET or PUT.
pub(crate) fn parse_slot(line: &[u8]) -> Result<u64, PickleErrorKind> {
    match number::parse_integer(line)? {
        Integer::Small(slot) => u64::try_from(slot).map_err(|_| PickleErrorKind::Malformed("memo slot")),
        Integer::Big(_) => Err(PickleErrorKind::Malformed("memo slot")),
    }
}

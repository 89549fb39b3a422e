//! The operands of instructions: numbers, strings, the lines of text protocols 0 and 1, and the names of classes.
//!
//! Integers that fit are returned as 64 bits, and others as their two's complement bytes. Strings are UTF-8 that may contain
//! lone surrogates, as Python encodes them with `surrogatepass`. Every function takes linear time in the number of bytes
//! at most, except for parsing decimal integers, which takes quadratic time but accepts only [`MAX_DIGITS`] digits.

use super::error::PickleErrorKind;
use super::opcode as op;
use std::fmt;

/// The maximum number of decimal digits in an integer. This is also Python's limit.
const MAX_DIGITS: usize = 4300;

/// An integer of any size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Integer {
    Small(i64),
    /// Little-endian two's complement, without redundant bytes.
    Big(Vec<u8>),
}

/// Converts little-endian two's complement bytes to an integer. An empty vector means 0.
pub(crate) fn from_twos_complement(mut bytes: Vec<u8>) -> Integer {
    while let [.., before, last] = bytes[..] {
        let fill = if before & 0x80 == 0 { 0 } else { 0xff };
        if last != fill {
            break;
        }
        bytes.pop();
    }
    if bytes.len() > 8 {
        return Integer::Big(bytes);
    }
    let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide[..bytes.len()].copy_from_slice(&bytes);
    Integer::Small(i64::from_le_bytes(wide))
}

/// Parses a decimal integer with an optional sign.
pub(crate) fn parse_integer(text: &[u8]) -> Result<Integer, PickleErrorKind> {
    let text = text.trim_ascii();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(PickleErrorKind::Malformed("integer"));
    }
    if digits.len() > MAX_DIGITS {
        return Err(PickleErrorKind::TooLarge { what: "digits of an integer", limit: MAX_DIGITS as u64 });
    }
    let mut magnitude = vec![0u8];
    for &digit in digits {
        let mut carry = u16::from(digit - b'0');
        for byte in &mut magnitude {
            carry += u16::from(*byte) * 10;
            *byte = carry as u8;
            carry >>= 8;
        }
        if carry > 0 {
            magnitude.push(carry as u8);
        }
    }
    magnitude.push(0);
    if negative {
        let mut carry = true;
        for byte in &mut magnitude {
            (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
        }
    }
    Ok(from_twos_complement(magnitude))
}

/// Parses a decimal float, including `inf` and `nan`.
pub(crate) fn parse_float(text: &[u8]) -> Result<f64, PickleErrorKind> {
    let text = std::str::from_utf8(text).map_err(|_| PickleErrorKind::Malformed("float"))?;
    text.trim().parse().map_err(|_| PickleErrorKind::Malformed("float"))
}

/// Returns `text` if it is a valid string.
#[inline]
pub(crate) fn validate<T: AsRef<[u8]>>(text: T) -> Result<T, PickleErrorKind> {
    if !memtrack_model::text::is_utf8_with_surrogates(text.as_ref()) {
        return Err(PickleErrorKind::Malformed("string: it is not UTF-8"));
    }
    Ok(text)
}

/// Appends a code point, which may be a surrogate.
pub(crate) fn push_code_point(text: &mut Vec<u8>, code: u32) -> Result<(), PickleErrorKind> {
    if let Some(character) = char::from_u32(code) {
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        return Ok(());
    }
    if !(0xd800..0xe000).contains(&code) {
        return Err(PickleErrorKind::Malformed("text: a code point beyond Unicode"));
    }
    text.extend_from_slice(&[0xed, 0x80 | (code >> 6 & 0x3f) as u8, 0x80 | (code & 0x3f) as u8]);
    Ok(())
}

/// Parses hexadecimal digits.
fn parse_hexadecimal(digits: Option<&[u8]>) -> Result<u32, PickleErrorKind> {
    let malformed = PickleErrorKind::Malformed("escape in a string");
    let Some(digits) = digits else { return Err(malformed) };
    let mut number = 0;
    for &digit in digits {
        let Some(value) = char::from(digit).to_digit(16) else { return Err(malformed) };
        number = number << 4 | value;
    }
    Ok(number)
}

/// Decodes the operand of UNICODE, which is Latin-1 with `\uXXXX` and `\UXXXXXXXX`. All other backslashes are literal.
pub(crate) fn decode_raw_unicode_escape(line: &[u8]) -> Result<Vec<u8>, PickleErrorKind> {
    let mut text = Vec::with_capacity(line.len());
    let mut at = 0;
    while at < line.len() {
        match line[at..] {
            [b'\\', kind @ (b'u' | b'U'), ..] => {
                let end = at + if kind == b'u' { 6 } else { 10 };
                push_code_point(&mut text, parse_hexadecimal(line.get(at + 2..end))?)?;
                at = end;
            }
            // Consume two bytes at once, so that the second of two backslashes does not start an escape.
            [b'\\', next, ..] => {
                text.push(b'\\');
                push_code_point(&mut text, next.into())?;
                at += 2;
            }
            [byte, ..] => {
                push_code_point(&mut text, byte.into())?;
                at += 1;
            }
            [] => break,
        }
    }
    Ok(text)
}

/// Decodes the operand of STRING to bytes. It is a quoted Python 2 string with backslash escapes.
pub(crate) fn decode_quoted_string(line: &[u8]) -> Result<Vec<u8>, PickleErrorKind> {
    let inner = match line.trim_ascii_end() {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        _ => return Err(PickleErrorKind::Malformed("string: the quotes are missing")),
    };
    let mut text = Vec::with_capacity(inner.len());
    let mut at = 0;
    while at < inner.len() {
        if inner[at] != b'\\' {
            text.push(inner[at]);
            at += 1;
            continue;
        }
        let Some(&escape) = inner.get(at + 1) else {
            return Err(PickleErrorKind::Malformed("escape in a string"));
        };
        at += 2;
        match escape {
            b'\\' | b'\'' | b'"' => text.push(escape),
            b'n' => text.push(b'\n'),
            b't' => text.push(b'\t'),
            b'r' => text.push(b'\r'),
            b'a' => text.push(7),
            b'b' => text.push(8),
            b'f' => text.push(12),
            b'v' => text.push(11),
            b'x' => {
                text.push(parse_hexadecimal(inner.get(at..at + 2))? as u8);
                at += 2;
            }
            b'0'..=b'7' => {
                let digits = inner[at - 1..].iter().take(3).take_while(|digit| matches!(digit, b'0'..=b'7'));
                let (count, value) =
                    digits.fold((0, 0u32), |(n, value), digit| (n + 1, value << 3 | u32::from(digit - b'0')));
                text.push(value as u8);
                at += count - 1;
            }
            other => text.extend_from_slice(&[b'\\', other]),
        }
    }
    Ok(text)
}

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
        op::INT => LineValue::Integer(parse_integer(line)?),
        op::LONG => LineValue::Integer(parse_integer(line.strip_suffix(b"L").unwrap_or(line))?),
        op::FLOAT => LineValue::Float(parse_float(line)?),
        op::UNICODE => LineValue::Text(decode_raw_unicode_escape(line)?),
        // Python 2's byte strings are treated as text, and all text is UTF-8 here.
        _ => LineValue::Text(validate(decode_quoted_string(line)?)?),
    })
}

/// Parses the memo slot in the `line` that follows GET or PUT.
pub(crate) fn parse_slot(line: &[u8]) -> Result<u64, PickleErrorKind> {
    match parse_integer(line)? {
        Integer::Small(slot) => u64::try_from(slot).map_err(|_| PickleErrorKind::Malformed("memo slot")),
        Integer::Big(_) => Err(PickleErrorKind::Malformed("memo slot")),
    }
}

/// A Python class that may occur in a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Global {
    /// `collections.defaultdict`, which is read as a dictionary.
    DefaultDict,
    /// `collections.OrderedDict`, which is read as a dictionary.
    OrderedDict,
    /// `builtins.int` (`__builtin__.int` or `__builtin__.long` in Python 2), the factory of a `defaultdict`.
    Int,
}

impl Global {
    /// All classes, by their numbers.
    pub(crate) const ALL: [Self; 3] = [Self::DefaultDict, Self::OrderedDict, Self::Int];

    /// Returns the class that Python would find under `name` in `module`.
    pub(crate) fn find(module: &[u8], name: &[u8]) -> Option<Self> {
        match (module, name) {
            (b"collections", b"defaultdict") => Some(Self::DefaultDict),
            (b"collections", b"OrderedDict") => Some(Self::OrderedDict),
            // In protocols up to 2, Python 3 writes its `int` as Python 2's `long`.
            (b"builtins" | b"__builtin__", b"int") | (b"__builtin__", b"long") => Some(Self::Int),
            _ => None,
        }
    }

    /// Returns the error for a class that is unknown.
    pub(crate) fn refused_error(module: &[u8], name: &[u8]) -> PickleErrorKind {
        PickleErrorKind::RefusedGlobal { module: shorten(module), name: shorten(name) }
    }

    /// Returns the module and name as Python 3 writes them.
    pub(super) const fn path(self) -> (&'static str, &'static str) {
        match self {
            Self::DefaultDict => ("collections", "defaultdict"),
            Self::OrderedDict => ("collections", "OrderedDict"),
            Self::Int => ("builtins", "int"),
        }
    }
}

/// Shortens a name from the file for use in a message.
fn shorten(name: &[u8]) -> String {
    let shown = memtrack_model::text::decode_lossy(&name[..name.len().min(80)]);
    if name.len() > 80 { format!("{shown}…") } else { shown }
}

impl fmt::Display for Global {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (module, name) = self.path();
        write!(f, "{module}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_that_fit_into_64_bits_are_small() {
        assert_eq!(from_twos_complement(vec![]), Integer::Small(0));
        assert_eq!(from_twos_complement(vec![0xff]), Integer::Small(-1));
        assert_eq!(from_twos_complement(vec![0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Integer::Small(255));
        assert_eq!(
            from_twos_complement(vec![0xff; 8].into_iter().chain([0]).collect()),
            Integer::Big([&[0xff; 8][..], &[0]].concat())
        );
    }

    #[test]
    fn decimal_text_agrees_with_standard_library() {
        for text in ["0", "-0", "+7", "255", "-128", "-129", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(
                parse_integer(text.as_bytes()).unwrap(),
                Integer::Small(text.parse().unwrap()),
                "{text}"
            );
        }
        assert_eq!(
            parse_integer(b"18446744073709551616").unwrap(),
            Integer::Big([&[0; 8][..], &[1]].concat())
        );
        assert!(parse_integer(b"").is_err());
        assert!(parse_integer(b"12a").is_err());
        assert!(parse_integer(&[b'9'; 5000]).is_err());
    }

    #[test]
    fn unicode_text_has_two_escapes() {
        assert_eq!(
            decode_raw_unicode_escape(br"a\u00e4\U0001f600\n\\u0041").unwrap(),
            "aä😀\\n\\\\u0041".as_bytes()
        );
        assert_eq!(decode_raw_unicode_escape(b"\xe4\\").unwrap(), "ä\\".as_bytes());
        assert_eq!(decode_raw_unicode_escape(br"\ud800").unwrap(), b"\xed\xa0\x80");
        assert!(decode_raw_unicode_escape(br"\u12").is_err());
        assert!(decode_raw_unicode_escape(br"\U00110000").is_err());
    }

    #[test]
    fn python_2_strings_are_unquoted() {
        assert_eq!(decode_quoted_string(br"'a\n\x41\101\0\q'").unwrap(), b"a\nAA\0\\q");
        assert_eq!(decode_quoted_string(br#""it's""#).unwrap(), b"it's");
        assert!(decode_quoted_string(b"plain").is_err());
        assert!(decode_quoted_string(b"'").is_err());
        assert!(decode_quoted_string(br"'\x4'").is_err());
    }
}

//! Decodes strings in pickles. These are UTF-8 that may contain lone surrogates, and the two text forms of protocol 0.
//! All of them are returned as the bytes that Python would produce when encoding with `surrogatepass`.

use super::error::PickleErrorKind;

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

#[cfg(test)]
mod tests {
    use super::*;

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

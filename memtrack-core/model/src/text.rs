//! Text in Python's form: UTF-8 that may contain lone surrogates, each encoded as the three bytes that `surrogatepass`
//! writes.

/// Returns whether `bytes` is UTF-8 that may contain lone surrogates (three bytes each).
pub fn is_utf8_with_surrogates(mut bytes: &[u8]) -> bool {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(_) => return true,
            Err(error) => match &bytes[error.valid_up_to()..] {
                [0xed, 0xa0..=0xbf, 0x80..=0xbf, rest @ ..] => bytes = rest,
                _ => return false,
            },
        }
    }
}

/// Returns `bytes` as text for display, with a single U+FFFD in place of each lone surrogate.
pub fn decode_lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, broken) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                text.push(char::REPLACEMENT_CHARACTER);
                let skipped = if is_surrogate(broken) { 3 } else { 1 };
                rest = broken.get(skipped..).unwrap_or(&[]);
            }
        }
    }
}

/// Returns whether `bytes` starts with a surrogate.
fn is_surrogate(bytes: &[u8]) -> bool {
    matches!(bytes, [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..])
}

/// Returns the longest prefix of `text` that fits in `bytes` bytes, cut at a character boundary.
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_valid_and_other_damage_is_not() {
        assert!(is_utf8_with_surrogates("naïve".as_bytes()));
        assert!(is_utf8_with_surrogates(b"a\xed\xb2\x80b"));
        assert!(!is_utf8_with_surrogates(b"a\xff"));
        assert!(!is_utf8_with_surrogates(b"\xed\xb2"));
        assert_eq!(decode_lossy(b"a\xed\xb2\x80b"), "a\u{fffd}b");
    }

    #[test]
    fn text_is_cut_at_characters() {
        assert_eq!(
            [cut("naïve", 9), cut("naïve", 3), cut("naïve", 4), cut("ï", 1)],
            ["naïve", "na", "naï", ""]
        );
    }
}

//! Numbers in pickles. Integers that fit are returned as 64 bits, and others as their two's complement bytes. Every
//! function takes linear time in the number of bytes at most, except for parsing decimal integers, which takes
//! quadratic time but accepts only [`MAX_DIGITS`] digits.

use super::error::PickleErrorKind;

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
}

//! Parses numbers like C++'s `stoull` and `stod`, which read the longest numeric prefix and ignore the rest.

use super::SettingsError;

/// Parses an unsigned integer; a negative one wraps around.
pub(super) fn parse_leading_integer(text: &str) -> Result<u64, SettingsError> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return Err(SettingsError::value("stoull"));
    }
    let number: u64 = digits[..end].parse().map_err(|_| SettingsError::index("stoull"))?;
    Ok(if negative { number.wrapping_neg() } else { number })
}

/// Parses a decimal number.
pub(super) fn parse_leading_float(text: &str) -> Result<f64, SettingsError> {
    // Take the longest prefix that Rust can parse. Hexadecimal floats, which C++ accepts, do not occur here.
    let ends = text.char_indices().map(|(index, letter)| index + letter.len_utf8()).take(64);
    let longest = ends.filter_map(|end| text[..end].parse::<f64>().ok()).last();
    match longest {
        Some(number) if number.is_infinite() && !text.contains(['i', 'I']) => {
            Err(SettingsError::index("stod"))
        }
        Some(number) => Ok(number),
        None => Err(SettingsError::value("stod")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_numeric_prefix_is_read() {
        assert_eq!(parse_leading_integer("64;rest"), Ok(64));
        assert_eq!(parse_leading_integer("-1"), Ok(u64::MAX));
        assert_eq!(parse_leading_integer("x").unwrap_err().kind(), "ValueError");
        assert_eq!(parse_leading_integer("99999999999999999999").unwrap_err().kind(), "IndexError");
        assert_eq!(parse_leading_float("0.8abc"), Ok(0.8));
        assert_eq!(parse_leading_float("-1"), Ok(-1.0));
        assert_eq!(parse_leading_float("abc").unwrap_err().text(), "stod");
    }
}

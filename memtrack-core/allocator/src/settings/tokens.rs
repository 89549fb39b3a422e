//! Splits a settings string into tokens: `,` `:` `[` `]` and the words between them. White space is ignored. Numbers are
//! parsed like C++'s `stoull` and `stod`, which read the longest numeric prefix and ignore the rest.

use super::SettingsError;

/// The tokens of a settings string.
pub(super) struct Tokens(Vec<String>);

impl Tokens {
    pub(super) fn of(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut word = String::new();
        for letter in text.chars() {
            if matches!(letter, ',' | ':' | '[' | ']') {
                if !word.is_empty() {
                    tokens.push(std::mem::take(&mut word));
                }
                tokens.push(letter.to_string());
            } else if !matches!(letter, ' ' | '\t'..='\r') {
                word.push(letter);
            }
        }
        if !word.is_empty() {
            tokens.push(word);
        }
        Self(tokens)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the token at an index, or an error if there is none.
    pub(super) fn get(&self, index: usize) -> Result<&str, SettingsError> {
        self.0.get(index).map(String::as_str).ok_or_else(|| {
            SettingsError::internal(
                "INTERNAL ASSERT FAILED: the settings end where a value was expected (Index out of bounds in \
                 ConfigTokenizer)",
            )
        })
    }

    /// Checks that the token at an index is `token`.
    pub(super) fn expect(&self, index: usize, token: &str) -> Result<(), SettingsError> {
        let found = self.get(index)?;
        if found == token {
            return Ok(());
        }
        Err(SettingsError::value(format!(
            "Expected '{token}' at index {index} in ConfigTokenizer but got '{found}'"
        )))
    }

    /// Returns the index of the last token of a value that is being skipped. The value is a word or a list in brackets.
    pub(super) fn find_value_end(&self, index: usize) -> Result<usize, SettingsError> {
        if self.get(index)? != "[" {
            return Ok(index);
        }
        let end = self.0[index..].iter().position(|token| token == "]");
        end.map(|end| index + end).ok_or_else(|| {
            SettingsError::internal(
                "INTERNAL ASSERT FAILED: the settings end within a list (no closing bracket ']')",
            )
        })
    }

    /// Parses the unsigned integer at an index, like C++'s `stoull`.
    pub(super) fn parse_integer(&self, index: usize) -> Result<u64, SettingsError> {
        parse_leading_integer(self.get(index)?)
    }

    /// Parses the number at an index, like C++'s `stod`.
    pub(super) fn parse_float(&self, index: usize) -> Result<f64, SettingsError> {
        parse_leading_float(self.get(index)?)
    }

    pub(super) fn parse_boolean(&self, index: usize) -> Result<bool, SettingsError> {
        match self.get(index)? {
            "True" => Ok(true),
            "False" => Ok(false),
            found => Err(SettingsError::value(format!(
                "Expected 'True' or 'False' at index {index} in ConfigTokenizer but got '{found}'"
            ))),
        }
    }
}

/// Parses an unsigned integer; a negative one wraps around.
fn parse_leading_integer(text: &str) -> Result<u64, SettingsError> {
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

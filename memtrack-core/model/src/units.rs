//! Numbers formatted for people. All text reports use these functions, so they agree.

use std::fmt;

/// Formats `bytes` in the largest unit that keeps the number at 1 or more, such as `512 B`, `1.5 KiB`, `64.0 MiB` or
/// `1.25 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// A number of bytes that prints like [`human_bytes`], without allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Beyond these limits, the number would be printed as 1024 of the smaller unit.
        match self.0 as f64 {
            v if v < 1024.0 => write!(f, "{} B", self.0),
            v if v < 1023.95 * 1024.0 => write!(f, "{:.1} KiB", v / 1024.0),
            v if v < 1023.95 * 1_048_576.0 => write!(f, "{:.1} MiB", v / 1_048_576.0),
            v if v < 1023.995 * 1_073_741_824.0 => write!(f, "{:.2} GiB", v / 1_073_741_824.0),
            v => write!(f, "{:.2} TiB", v / 1_099_511_627_776.0),
        }
    }
}

/// Formats `count` with commas as thousands separators.
pub fn human_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns `text` with its first letter in upper case.
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Formats a count with its noun, adding an `s` unless the count is one, as in `1 block` and `2,000 blocks`.
pub fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", human_count(count), if count == 1 { "" } else { "s" })
}

/// Formats a share from 0 to 1 as a percentage with one decimal.
pub fn human_share(share: f64) -> String {
    format!("{:.1} %", share.min(1.0) * 100.0)
}

/// Returns `text` on one line and safe for a terminal. Control characters, which names from an untrusted file may
/// contain, are replaced, and so are characters that change the direction of the text after them.
pub fn printable(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Shortens `text` to at most `width` characters, with an ellipsis in place of the middle.
pub fn shorten_middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    // The end of a path is more useful than its beginning.
    let (head, tail) = (kept / 2, kept - kept / 2);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

/// Wraps `text` at spaces into lines of at most `width` characters, unless a word is longer. The lines after the first one
/// are indented by `indent` spaces.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    let mut length = 0;
    for (place, word) in text.split(' ').enumerate() {
        let letters = word.chars().count();
        if place > 0 && length + 1 + letters > width {
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', indent));
            length = indent;
        } else if place > 0 {
            wrapped.push(' ');
            length += 1;
        }
        wrapped.push_str(word);
        length += letters;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_one_has_no_plural_s() {
        assert_eq!((counted(1, "segment"), counted(0, "event")), ("1 segment".into(), "0 events".into()));
        assert_eq!(counted(2_000, "block"), "2,000 blocks");
    }

    #[test]
    fn bytes_are_scaled_and_counts_grouped() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (64 << 20, "64.0 MiB"),
            (5 << 28, "1.25 GiB"),
            (3 << 40, "3.00 TiB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
        assert_eq!(human_count(0), "0");
        assert_eq!(human_count(999), "999");
        assert_eq!(human_count(1_234_567), "1,234,567");
        assert_eq!(human_share(0.125), "12.5 %");
    }

    #[test]
    fn control_characters_do_not_reach_terminal() {
        assert_eq!(printable("a\nb\u{1b}[2Jü"), "a\u{fffd}b\u{fffd}[2Jü");
    }

    #[test]
    fn long_lines_wrap_between_words() {
        assert_eq!(wrap("  1. 4 MiB by softmax", 11, 5), "  1. 4 MiB\n     by\n     softmax");
        assert_eq!(wrap("one line", usize::MAX, 2), "one line");
    }

    #[test]
    fn only_long_names_are_shortened() {
        assert_eq!(shorten_middle("short", 5), "short");
        assert_eq!(shorten_middle("encoder.layers.matmul", 11), "encod…atmul");
        assert_eq!(shorten_middle("äöüäöü", 3), "ä…ü");
    }
}

//! Untrusted text in HTML and XML. Every page that memtrack writes escapes text from outside with this module.

use crate::text::cut;
use crate::units::{human_bytes, printable};

/// Escapes text for use between tags or in quotes, and cuts it to `max_bytes`, with a note of how much was cut. Line
/// breaks are kept. Control characters, which XML forbids, and characters that change the direction of the text after
/// them are replaced.
pub fn escape_text(text: &str, max_bytes: usize) -> String {
    let kept = cut(text, max_bytes);
    let mut out = String::with_capacity(kept.len() + kept.len() / 8);
    for (number, line) in kept.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        for c in printable(line).chars() {
            match c {
                '&' => out += "&amp;",
                '<' => out += "&lt;",
                '>' => out += "&gt;",
                '"' => out += "&quot;",
                '\'' => out += "&#39;",
                // XML does not allow these.
                '\u{fffe}' | '\u{ffff}' => out.push(char::REPLACEMENT_CHARACTER),
                c => out.push(c),
            }
        }
    }
    if kept.len() < text.len() {
        let left_out = human_bytes((text.len() - kept.len()) as u64);
        out += &format!("… ({left_out} of text left out)");
    }
    out
}

/// Escapes text like [`escape_text`] and puts it on one line.
pub fn escape_line(text: &str, max_bytes: usize) -> String {
    escape_text(text, max_bytes).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_cannot_end_element_quote_or_section() {
        let text = escape_text("</script>]]>\"'&\0\u{202e}\u{ffff}\nb", 100);
        assert_eq!(text, "&lt;/script&gt;]]&gt;&quot;&#39;&amp;\u{fffd}\u{fffd}\u{fffd}\nb");
    }

    #[test]
    fn long_text_is_cut_and_marked() {
        let text = escape_text(&"é".repeat(3000), 11);
        assert_eq!(text, "ééééé… (5.8 KiB of text left out)");
        assert_eq!(escape_line("a\nb", 10), "a b");
    }
}

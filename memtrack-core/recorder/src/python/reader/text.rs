//! Python's strings.

use super::layout::{Layout, TEXT_LENGTH, TEXT_STATE};
use super::memory::Memory;

/// Which part of a text that is too long is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Beginning,
    End,
}

/// Returns at most `most` characters of the string at an address, or `None` if there is no string.
pub(super) fn text_at(
    memory: impl Memory,
    layout: &Layout,
    address: u64,
    most: usize,
    keep: Keep,
) -> Option<String> {
    let mut head = [0; 40];
    if !address.is_multiple_of(8) || !memory.copy(address, &mut head) {
        return None;
    }
    let field = |at: u64| head[at as usize..].first_chunk::<8>().map(|bytes| u64::from_ne_bytes(*bytes));
    let (length, state) = (usize::try_from(field(TEXT_LENGTH)?).ok()?, field(TEXT_STATE)? as u32);
    // Two bits of the state are about interning. The next three are the bytes of a character; then come two bits: the
    // characters follow the head, and all are ASCII.
    let (width, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !is_compact || ![1, 2, 4].contains(&width) || is_ascii && width != 1 {
        return None;
    }
    let data = address + if is_ascii { layout.ascii_data } else { layout.compact_data };
    let (width, count) = (width as usize, length.min(most));
    let skipped = if keep == Keep::End { length - count } else { 0 };
    let mut bytes = vec![0; count * width];
    if !memory.copy(data.checked_add((skipped * width) as u64)?, &mut bytes) && count > 0 {
        return None;
    }
    Some(decode(&bytes, width))
}

/// Returns whether a string has exactly these characters. Reads no more of it than its length if that differs.
#[inline(always)]
pub(super) fn is_text(
    memory: impl Memory,
    layout: &Layout,
    address: u64,
    characters: &[u32],
) -> Option<bool> {
    if memory.word(address + TEXT_LENGTH)? != characters.len() as u64 {
        return Some(false);
    }
    let state = memory.half(address + TEXT_STATE)?;
    let (width, is_compact, is_ascii) = (u64::from(state >> 2 & 7), state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !is_compact {
        return Some(false);
    }
    let data = address + if is_ascii { layout.ascii_data } else { layout.compact_data };
    for (index, &character) in characters.iter().enumerate() {
        let at = data + index as u64 * width;
        let found = (0..width)
            .try_fold(0, |found, byte| Some(found | u32::from(memory.byte(at + byte)?) << (8 * byte)));
        if found? != character {
            return Some(false);
        }
    }
    Some(true)
}

/// Decodes characters of this many bytes each.
fn decode(bytes: &[u8], width: usize) -> String {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
    // Surrogates, which stand for undecodable bytes in paths, are not characters.
    let character = |bytes| char::from_u32(number(bytes)).unwrap_or(char::REPLACEMENT_CHARACTER);
    bytes.chunks_exact(width).map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::super::layout::layout_of;
    use super::super::memory::Checked;
    use super::*;

    /// A string as Python 3.11 has it in memory: the head of an ASCII string, and its characters.
    #[repr(C, align(8))]
    struct Text {
        head: [u64; 6],
        characters: [u8; 8],
    }

    fn ascii(text: &[u8; 8], length: u64, state: u64) -> Text {
        Text { head: [1, 0, length, 0, state, 0], characters: *text }
    }

    #[test]
    fn ascii_text_is_read_and_shortened() {
        let layout = layout_of((3, 11), 0).expect("a known version");
        let compact_ascii = 1 << 2 | 1 << 5 | 1 << 6;
        let text = ascii(b"abcdefgh", 8, compact_ascii);
        let at = |most, keep| text_at(Checked, &layout, &raw const text as u64, most, keep);
        assert_eq!(at(100, Keep::Beginning).as_deref(), Some("abcdefgh"));
        assert_eq!(at(3, Keep::Beginning).as_deref(), Some("abc"));
        assert_eq!(at(3, Keep::End).as_deref(), Some("fgh"));
        let is = |characters: &str| {
            let characters: Vec<u32> = characters.chars().map(u32::from).collect();
            is_text(Checked, &layout, &raw const text as u64, &characters)
        };
        assert_eq!(
            [is("abcdefgh"), is("abcdefgx"), is("abc"), is("")],
            [true, false, false, false].map(Some)
        );
        let damaged = ascii(b"abcdefgh", 8, 7 << 2);
        assert_eq!(text_at(Checked, &layout, &raw const damaged as u64, 9, Keep::End), None);
        assert_eq!(text_at(Checked, &layout, 64, 9, Keep::End), None);
    }

    #[test]
    fn wide_characters_become_utf8_and_surrogates_are_replaced() {
        assert_eq!(decode(&[0xe9, 0x61], 1), "éa");
        assert_eq!(decode(&[0x3b, 0x04, 0x00, 0xd8], 2), "л\u{fffd}");
        assert_eq!(decode(&[0x00, 0xf6, 0x01, 0x00], 4), "😀");
    }
}

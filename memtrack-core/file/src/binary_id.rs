//! The identity of a binary in a recording: its GNU build id, or the length and checksum of its code if it has none.

/// Returns bytes as lower-case hex.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        for nibble in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(nibble), 16));
        }
        text
    })
}

/// Returns the length and checksum of the code in executable segments, which are given in the order of the program
/// headers; the empty string if there is no code.
pub fn compute_code_id<'a>(segments: impl Iterator<Item = &'a [u8]>) -> String {
    let (mut length, mut crc) = (0, crc32fast::Hasher::new());
    for segment in segments {
        length += segment.len();
        crc.update(segment);
    }
    if length == 0 { String::new() } else { format!("{length:x}:{:08x}", crc.finalize()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_lower_case_with_leading_zeros() {
        assert_eq!(to_hex(&[0, 0x0a, 0xff]), "000aff");
    }
}

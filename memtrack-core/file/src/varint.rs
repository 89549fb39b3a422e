//! Variable-length integers: LEB128, with zigzag encoding for differences. The encoders of `payload` write with these,
//! and its decoders read with [`Bytes`], which never reads past its slice and never panics.

/// A payload that does not match its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl From<serde_json::Error> for Malformed {
    fn from(_: serde_json::Error) -> Self {
        Self
    }
}

/// Appends `value` in 1 to 10 bytes.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `value − previous` (wrapping); small differences of either sign take few bytes.
pub(super) fn put_delta(out: &mut Vec<u8>, previous: u64, value: u64) {
    let difference = value.wrapping_sub(previous) as i64;
    put(out, ((difference << 1) ^ (difference >> 63)) as u64);
}

/// Appends a string: its length in bytes, then the bytes.
pub(super) fn put_str(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// The unread rest of a payload.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn read_byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(first)
    }

    pub(super) fn read_number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.read_byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    pub(super) fn read_u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.read_number()?).map_err(|_| Malformed)
    }

    pub(super) fn read_delta(&mut self, previous: u64) -> Result<u64, Malformed> {
        let coded = self.read_number()?;
        let difference = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        Ok(previous.wrapping_add(difference as u64))
    }

    /// Reads a number of rows, and checks that the rest has at least `row_bytes` for each of them.
    pub(super) fn read_count(&mut self, row_bytes: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.read_number()?).map_err(|_| Malformed)?;
        if count > self.0.len() / row_bytes { Err(Malformed) } else { Ok(count) }
    }

    pub(super) fn read_text(&mut self) -> Result<String, Malformed> {
        let length = self.read_count(1)?;
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Malformed)
    }

    /// Checks that no bytes are left.
    pub(super) fn expect_end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_numbers_and_differences_are_read_back() {
        let values = [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), 1 << 63, u64::MAX];
        for value in values {
            for previous in values {
                let mut out = Vec::new();
                put(&mut out, value);
                put_delta(&mut out, previous, value);
                let mut bytes = Bytes(&out);
                assert_eq!(bytes.read_number(), Ok(value));
                assert_eq!(bytes.read_delta(previous), Ok(value));
                assert_eq!(bytes.expect_end(), Ok(()));
            }
        }
    }

    #[test]
    fn overlong_or_truncated_number_is_malformed() {
        assert_eq!(Bytes(&[0xff; 10]).read_number(), Err(Malformed));
        assert_eq!(
            Bytes(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).read_number(),
            Err(Malformed)
        );
        assert_eq!(Bytes(&[0x80]).read_number(), Err(Malformed));
        assert_eq!(Bytes(&[200, 1, 0]).read_count(1), Err(Malformed));
    }
}

//! `expandable_segments_reserve`: the amount of address space that an expandable range reserves.
//!
//! **Why do reserves by class have no effect?** Only PyTorch's internal C++ code assigns streams to classes.

use super::numbers::parse_leading_float;

/// The size of an expandable range, which is never larger than the default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Reserve {
    /// Nine eighths of the device's memory.
    #[default]
    Default,
    /// A share of the device's memory.
    Fraction(f64),
    /// A size in GiB.
    Gib(f64),
}

impl Reserve {
    /// Parses `0.5` as a share of the device's memory and `40G` as a number of GiB. Returns `None` for
    /// anything else; PyTorch then warns and keeps the previous value.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (number, is_gib) = match text.strip_suffix(['G', 'g']) {
            Some(number) => (number, true),
            None => (text, false),
        };
        // The whole text must be a number written in decimal digits.
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        let value =
            parse_leading_float(number).ok().filter(|_| digits(number) && number.parse::<f64>().is_ok())?;
        (value > 0.0).then_some(if is_gib { Self::Gib(value) } else { Self::Fraction(value) })
    }

    /// Returns the maximum size of a request on a device with `total` bytes, or `None` if there is no limit.
    pub(crate) fn max_request_bytes(self, total: u64) -> Option<u64> {
        let bytes = match self {
            Self::Default => return None,
            Self::Fraction(fraction) => fraction * total as f64,
            Self::Gib(gib) => gib * (1u64 << 30) as f64,
        };
        // The cast saturates.
        Some((bytes as u64).min(Self::largest_reserve(total)))
    }

    /// Returns the size of the reservation on a device with `total` bytes, before it is rounded to pages.
    pub(crate) fn reserved_bytes(self, total: u64) -> u64 {
        self.max_request_bytes(total).unwrap_or(Self::largest_reserve(total))
    }

    fn largest_reserve(total: u64) -> u64 {
        total.saturating_add(total / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_reserves_are_rejected() {
        const GIB: u64 = 1 << 30;
        for (text, bytes) in
            [("0.5", 4 * GIB), ("2G", 2 * GIB), ("1.5g", 3 * GIB / 2), ("1e0G", GIB), ("1e20G", 9 * GIB)]
        {
            assert_eq!(Reserve::parse(text).unwrap().reserved_bytes(8 * GIB), bytes, "{text}");
        }
        for text in ["", "G", "abc", "-1", "0", "512M", "12X", "inf", "nan", "1.5.5", "40GB"] {
            assert_eq!(Reserve::parse(text), None, "{text}");
        }
        assert_eq!(Reserve::Default.reserved_bytes(8 * GIB), 9 * GIB);
    }
}

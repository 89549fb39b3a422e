//! `expandable_segments_reserve`: how much address space an expandable range takes.

use super::SettingsError;
use super::numbers::leading_float;

/// How large an expandable range is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Reserve {
    /// Nine eighths of the device's memory.
    #[default]
    Default,
    /// This share of the device's memory.
    Fraction(f64),
    /// This many bytes.
    Bytes(u64),
}

impl Reserve {
    /// Reads `0.5` (a share of the device's memory) or `40G`, `512M` (a size).
    pub(super) fn parse(text: &str) -> Result<Self, SettingsError> {
        let number = leading_float(text)?;
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.eE".contains(c));
        let shift = match unit.to_ascii_uppercase().as_str() {
            "" => None,
            "K" | "KB" | "KIB" => Some(10),
            "M" | "MB" | "MIB" => Some(20),
            "G" | "GB" | "GIB" => Some(30),
            "T" | "TB" | "TIB" => Some(40),
            _ => return Err(Self::invalid(text)),
        };
        match shift {
            Some(shift) if number > 0.0 && number * (1u64 << shift) as f64 <= (1u64 << 60) as f64 => {
                Ok(Self::Bytes((number * (1u64 << shift) as f64) as u64))
            }
            None if number > 0.0 && number <= 8.0 => Ok(Self::Fraction(number)),
            _ => Err(Self::invalid(text)),
        }
    }

    fn invalid(text: &str) -> SettingsError {
        SettingsError::value(format!(
            "expandable_segments_reserve is invalid, write a share of the device's memory such as 0.5 or a size such \
             as 40G, not '{text}'"
        ))
    }

    /// What a request may at most be, on a device with `total` bytes; none: nothing is limited.
    pub(crate) fn limit(self, total: u64) -> Option<u64> {
        match self {
            Self::Default => None,
            Self::Fraction(fraction) => Some((fraction * total as f64) as u64),
            Self::Bytes(bytes) => Some(bytes),
        }
    }

    /// What is reserved on a device with `total` bytes, before it is rounded to pages.
    pub(crate) fn bytes(self, total: u64) -> u64 {
        self.limit(total).unwrap_or(total.saturating_add(total / 8))
    }
}

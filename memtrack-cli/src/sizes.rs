//! Parses sizes and shares from the command line.

/// The units with their names in lower case.
const UNITS: [(&str, u64); 13] = [
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
];

/// Parses a number of bytes, or a number followed by a unit: KiB, MiB, GiB, TiB, kB, MB, GB or TB.
///
/// # Errors
/// Fails if `text` is not a size, or if the size is not below 2^64.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let wrong = || "expected bytes, or a number with KiB, MiB, GiB or kB, MB, GB".to_owned();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor).ok_or_else(|| "it is too large".to_owned());
    }
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * *factor as f64;
    if bytes >= u64::MAX as f64 {
        return Err("it is too large".to_owned());
    }
    Ok(bytes.round() as u64)
}

/// Parses a share from 0 to 1, or from 0% to 100%.
///
/// # Errors
/// Fails if `text` is not a number, or is outside the range.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent.trim_end(), 100.0));
    match number.parse::<f64>() {
        Ok(share) if (0.0..=whole).contains(&share) => Ok(share / whole),
        _ => Err("expected a number from 0 to 1, or a percentage from 0% to 100%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_or_percentages() {
        for (text, share) in [("0", 0.0), ("0.25", 0.25), ("25%", 0.25), ("100 %", 1.0), ("1", 1.0)] {
            assert_eq!(parse_share(text), Ok(share), "{text}");
        }
        for text in [
            "", "%", "-0.1", "-5%", "1.5", "25", "101%", "150%", "NaN", "NaN%", "inf", "50%%", "1%1", "0x1",
            "a lot",
        ] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_binary_or_decimal_units() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("10GiB", 10 << 30),
            ("10 gib", 10 << 30),
            ("1.5KiB", 1536),
            ("2kB", 2000),
            ("3MB", 3_000_000),
            ("1B", 1),
            ("64g", 64 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        assert_eq!(parse_bytes("18446744073709551616").unwrap_err(), "it is too large");
        for text in [
            "",
            "GiB",
            "-1",
            "1e3",
            "10 apples",
            "1.2.3",
            "99999999999TiB",
            "∞",
            "10XB",
            "-5",
            "1e3GiB",
            "NaN",
            "0x10",
            "+5",
            "1_000",
            ".",
            "GiB10",
            "10GiB10",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}

//! Exact numbers from records, and numbers as PyTorch prints them. A column holds numbers of up to 64 bits. Larger
//! numbers are stored outside the column, but the reports must print them too.

use super::sink::push_decimal;
use memtrack_model::snapshot::pytorch::{Key, Records};
use memtrack_model::snapshot::{Snapshot, Value};

/// The maximum magnitude of a number. Larger numbers are clamped, because no memory is that large and sums must not
/// overflow.
const MAX_MAGNITUDE: i128 = 1 << 90;

/// Returns the integer under `key`, or 0 if there is none.
pub(super) fn record_integer(records: &Records, row: usize, key: Key) -> i128 {
    match records.exact_under(row, key) {
        Some(value) => to_integer(value),
        None => records.number(row, key).into(),
    }
}

/// Returns the integer under `key` of an event. This is `column` unless the file has a value there that does not fit in
/// the column.
pub(super) fn event_integer(
    snapshot: &Snapshot,
    details: &Records,
    row: usize,
    key: Key,
    column: u64,
) -> i128 {
    if details.exact.is_empty() || details.exact_values(row).is_empty() {
        return column.into();
    }
    snapshot.event_value(row, key).map_or(column.into(), |value| to_integer(&value))
}

/// Converts a value to an integer, truncating floats. NaN and values of other types become 0.
pub(super) fn to_integer(value: &Value) -> i128 {
    match value {
        // `as` truncates the fraction and converts NaN to 0.
        Value::Float(number) => (*number as i128).clamp(-MAX_MAGNITUDE, MAX_MAGNITUDE),
        Value::Big(bytes) if bytes.len() > 11 => {
            if bytes.last().is_some_and(|last| last & 0x80 != 0) {
                -MAX_MAGNITUDE
            } else {
                MAX_MAGNITUDE
            }
        }
        other => other.as_i128().unwrap_or(0).clamp(-MAX_MAGNITUDE, MAX_MAGNITUDE),
    }
}

/// Appends a size as PyTorch prints it, with one decimal (ties are rounded to even) and a binary unit.
pub(super) fn push_size(out: &mut Vec<u8>, bytes: i128) {
    const UNITS: [&str; 9] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
    // Python converts the size to a float, which has 53 bits of precision, and divides it by 1024. Only the conversion
    // rounds: dividing a float by 1024 is exact.
    let rounded = bytes as f64 as i128;
    let magnitude = rounded.unsigned_abs();
    let mut unit = 0;
    while unit < 8 && magnitude >> (10 * unit) >= 1024 {
        unit += 1;
    }
    let shift = 10 * unit as u32;
    let (scaled, mask) = (magnitude * 10, (1u128 << shift) - 1);
    let (whole, rest, half) = (scaled >> shift, scaled & mask, (1u128 << shift) >> 1);
    let up = rest > half || rest == half && half > 0 && whole % 2 == 1;
    let tenths = (whole + u128::from(up)) as i128;
    if rounded < 0 {
        out.push(b'-');
    }
    push_decimal(out, tenths / 10);
    out.push(b'.');
    out.push(b'0' + (tenths % 10) as u8);
    out.extend_from_slice(UNITS[unit].as_bytes());
}

/// Formats an integer of any width, given in little-endian two's complement. Returns `None` if it has more digits than
/// Python would print.
pub(super) fn format_wide_decimal(bytes: &[u8]) -> Option<String> {
    const MAX_BYTES: usize = 1785;
    if bytes.len() > MAX_BYTES {
        return None;
    }
    let negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut limbs: Vec<u32> = Vec::new();
    let fill = if negative { 0xff } else { 0 };
    for chunk in bytes.chunks(4) {
        let mut limb = [fill; 4];
        limb[..chunk.len()].copy_from_slice(chunk);
        limbs.push(u32::from_le_bytes(limb));
    }
    if negative {
        let mut carry = true;
        for limb in &mut limbs {
            (*limb, carry) = (!*limb).overflowing_add(u32::from(carry));
        }
    }
    let mut groups = Vec::new();
    while limbs.iter().any(|&limb| limb != 0) {
        let mut rest = 0u64;
        for limb in limbs.iter_mut().rev() {
            rest = rest << 32 | u64::from(*limb);
            *limb = (rest / 1_000_000_000) as u32;
            rest %= 1_000_000_000;
        }
        groups.push(rest);
    }
    let mut text = if negative { "-".to_owned() } else { String::new() };
    text += &groups.pop().unwrap_or(0).to_string();
    for group in groups.into_iter().rev() {
        text += &format!("{group:09}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_printed_as_in_pytorch() {
        for (bytes, text) in [
            (0, "0.0B"),
            (100, "100.0B"),
            (-1536, "-1.5KiB"),
            (1280, "1.2KiB"),
            (1408, "1.4KiB"),
            (1_048_575, "1024.0KiB"),
            (1 << 20, "1.0MiB"),
            (1 << 80, "1.0YiB"),
            (1 << 90, "1024.0YiB"),
        ] {
            let mut out = Vec::new();
            push_size(&mut out, bytes);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn wide_integers_have_all_their_digits() {
        for number in [0i128, 1 << 70, -(1 << 70), i128::MAX, i128::MIN, -1] {
            assert_eq!(format_wide_decimal(&number.to_le_bytes()).unwrap(), number.to_string());
        }
    }
}

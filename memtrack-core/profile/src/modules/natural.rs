//! Natural ordering of names, which compares numbers inside names as numbers and ignores case.

use std::cmp::Ordering;

/// Compares two names in natural order.
pub(super) fn compare_naturally(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    while let (Some(&one), Some(&other)) = (left.first(), right.first()) {
        let order = if one.is_ascii_digit() && other.is_ascii_digit() {
            let (first, rest) = split_number(left);
            let (second, other_rest) = split_number(right);
            (left, right) = (rest, other_rest);
            // Without leading zeros, the longer number is the larger one.
            first.len().cmp(&second.len()).then_with(|| first.cmp(second))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            one.to_ascii_lowercase().cmp(&other.to_ascii_lowercase())
        };
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// Splits `text` into its leading digits, with leading zeros removed, and the rest.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    (&digits[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_compare_as_numbers() {
        let mut names =
            ["layers.10.norm", "Layers.2.norm", "layers.2", "head", "layers.010", "layers.2.attn"];
        names.sort_by(|a, b| compare_naturally(a, b));
        assert_eq!(
            names,
            ["head", "layers.2", "layers.2.attn", "Layers.2.norm", "layers.010", "layers.10.norm"]
        );
    }
}

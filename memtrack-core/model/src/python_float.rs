//! Floats as Python prints them. PyTorch's summary prints differences this way, and memtrack's summary must match
//! it.

/// Returns Python's `repr` of the float: the fewest digits that parse to the same number, with `.0` after integers, and
/// with an exponent of at least two digits below 1e-4 and from 1e16 on.
pub fn python_float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    // Rust finds the same shortest digits, and always writes them as d.ddde±x.
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::python_float_repr;
    use proptest::prelude::*;

    #[test]
    fn numbers_print_as_in_python() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (9999999999999998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ];
        for (number, text) in cases {
            assert_eq!(python_float_repr(number), text);
        }
    }

    proptest! {
        #[test]
        fn text_parses_to_same_number(number in any::<f64>()) {
            prop_assert_eq!(python_float_repr(number).parse::<f64>().unwrap(), number);
        }
    }
}

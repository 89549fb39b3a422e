//! Makes function names readable. [`readable`] removes the hash added by Rust's legacy mangling. [`plain_path`] reduces
//! a name to the plain path that operator patterns are matched against.

/// Returns `name` without a trailing `::h` followed by 16 hex digits.
pub fn readable(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => path,
        _ => name,
    }
}

/// Returns `name` as a plain path. Generic arguments, references and closures are removed, and methods become members
/// of their type, whether they are inherent or trait methods. Handles Rust's legacy and v0 mangling:
///
/// | name | plain path |
/// |---|---|
/// | `<a::X<T> as b::Y>::f`, `<a::X>::f`, `a::X<T>::f` | `a::X::f` |
/// | `m::<impl b::Y for a::X>::f`, `m::<impl a::X>::f` | `a::X::f` |
/// | `a::f::<u8>::{closure#0}`, `a::f::{{closure}}` | `a::f` |
pub fn plain_path(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    append_plain_path(readable(name), &mut path, 0);
    path
}

/// The maximum nesting depth. Compilers do not produce names that are nested more deeply.
const MAX_DEPTH: u32 = 32;

fn append_plain_path(name: &str, path: &mut String, depth: u32) {
    let mut rest = strip_reference(name);
    let start = path.len();
    while let Some(next) = rest.find(['<', '{']) {
        let (before, bracketed) = rest.split_at(next);
        path.push_str(before);
        let (inner, after) = split_bracket(bracketed);
        rest = after;
        let at_start = path.len() == start;
        if bracketed.starts_with('{') || depth >= MAX_DEPTH {
            trim_separator(path, start);
        } else if at_start || inner.starts_with("impl ") {
            // This is a qualified type. The part before it is merely the module that contains the impl block.
            path.truncate(start);
            append_plain_path(self_type(inner), path, depth + 1);
        } else {
            trim_separator(path, start);
        }
    }
    path.push_str(rest);
    trim_separator(path, start);
}

/// Returns the type `X` in `X as Y`, `impl Y for X`, `impl X` and `X`.
fn self_type(inner: &str) -> &str {
    match inner.strip_prefix("impl ") {
        Some(of) => split_outside(of, " for ").map_or(of, |(_, self_type)| self_type),
        None => split_outside(inner, " as ").map_or(inner, |(self_type, _)| self_type),
    }
}

fn trim_separator(path: &mut String, start: usize) {
    while path.len() > start && path.ends_with(':') {
        path.pop();
    }
}

fn strip_reference(name: &str) -> &str {
    let mut rest = name.trim_start();
    while let Some(shorter) =
        ["&", "mut ", "*const ", "*mut ", "dyn "].iter().find_map(|prefix| rest.strip_prefix(prefix))
    {
        rest = shorter.trim_start();
    }
    rest
}

/// Splits `<inner>after` (or `{inner}after`) at the bracket that matches the first one. The `>` in an arrow `->` is not
/// counted.
fn split_bracket(text: &str) -> (&str, &str) {
    let mut depth = 0usize;
    let mut previous = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'{' => depth += 1,
            b'>' if previous == b'-' => {}
            b'>' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return (&text[1..at], &text[at + 1..]);
                }
            }
            _ => {}
        }
        previous = byte;
    }
    (&text[1..], "")
}

/// Splits at the first `separator` that is outside all brackets.
fn split_outside<'a>(text: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    let mut depth = 0usize;
    let mut previous = 0;
    for (at, byte) in text.bytes().enumerate() {
        if depth == 0 && text.as_bytes()[at..].starts_with(separator.as_bytes()) {
            return Some((&text[..at], &text[at + separator.len()..]));
        }
        match byte {
            b'<' | b'{' | b'(' => depth += 1,
            b'>' if previous == b'-' => {}
            b'>' | b'}' | b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        previous = byte;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hash_is_removed() {
        assert_eq!(readable("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(readable("a::b::h0123"), "a::b::h0123");
        assert_eq!(readable("a::hello"), "a::hello");
    }

    #[test]
    fn names_of_both_manglings_become_plain_paths() {
        for (name, path) in [
            ("candle_core::tensor::Tensor::matmul", "candle_core::tensor::Tensor::matmul"),
            ("<candle_core::tensor::Tensor>::matmul", "candle_core::tensor::Tensor::matmul"),
            ("<candle_core::Tensor as core::ops::arith::Add>::add", "candle_core::Tensor::add"),
            (
                "<&candle_core::Tensor as core::ops::Add<&candle_core::Tensor>>::add",
                "candle_core::Tensor::add",
            ),
            (
                "candle_core::tensor::<impl core::ops::Add for candle_core::Tensor>::add",
                "candle_core::Tensor::add",
            ),
            ("m::<impl a::X<T>>::f", "a::X::f"),
            ("alloc::vec::Vec<T,A>::push", "alloc::vec::Vec::push"),
            ("<alloc::vec::Vec<u8>>::push", "alloc::vec::Vec::push"),
            ("a::f::<u8, fn(u8) -> u8>::{closure#0}", "a::f"),
            ("a::f::{{closure}}", "a::f"),
            ("a::f::{{closure}}::h0123456789abcdef", "a::f"),
            ("<a::X<fn(u8) -> u8> as b::Y<c::Z as d>>::f", "a::X::f"),
            ("<<a::X as b::Y>::Z as c::W>::f", "a::X::Z::f"),
            ("core::ptr::drop_in_place<a::X>", "core::ptr::drop_in_place"),
            ("main", "main"),
            ("", ""),
        ] {
            assert_eq!(plain_path(name), path, "{name}");
        }
    }

    #[test]
    fn malformed_names_do_not_panic() {
        for name in ["<", "<<<", "a<b", ">", "}{", "<é as ü>::ö", "::", "<impl ", &"<".repeat(5000)] {
            let _ = plain_path(name);
        }
    }
}

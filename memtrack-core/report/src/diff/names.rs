//! Removes the parts of names that differ from run to run: addresses, compiler hashes, and the indices of layers of the
//! same kind.

use memtrack_frames::torch_stacks::MODULE_FRAME_PREFIX;

/// The placeholder for an index or a line number.
const PLACEHOLDER: &str = "*";

/// Returns a module or operator path without indices, so `layers.3.attn` becomes `layers.*.attn` and `layers[3].attn`
/// becomes `layers[*].attn`.
pub(super) fn strip_indices(path: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let segment = |segment: &str| -> String {
        if is_number(segment) {
            return PLACEHOLDER.into();
        }
        match segment.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) {
            Some((name, index)) if is_number(index) => format!("{name}[{PLACEHOLDER}]"),
            _ => segment.to_owned(),
        }
    };
    let parts = path.split('.').map(segment).collect::<Vec<_>>().join(".");
    strip_addresses(&parts)
}

/// Normalizes a function's name: `f at 0x7f00` becomes `f at 0x…`, and the hash at the end of a Rust name, the number
/// of an LLVM clone and the number of a profiler's module are removed.
pub(super) fn normalize_function(name: &str) -> String {
    let name = match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => name,
    };
    let name = match name.rsplit_once(".llvm.") {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    };
    if name.starts_with(MODULE_FRAME_PREFIX)
        && let Some((class, number)) = name.rsplit_once('_')
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
    {
        return format!("{class}_{PLACEHOLDER}");
    }
    strip_addresses(name)
}

/// Replaces the hexadecimal digits after each `0x` with `…`.
fn strip_addresses(name: &str) -> String {
    let mut rest = name;
    let mut short = String::with_capacity(name.len());
    while let Some(at) = rest.find("0x") {
        let digits = rest[at + 2..].bytes().take_while(u8::is_ascii_hexdigit).count();
        short.push_str(&rest[..at + 2]);
        if digits > 0 {
            short.push('…');
        }
        rest = &rest[at + 2 + digits..];
    }
    short + rest
}

/// Returns a name with its line numbers replaced, as in `model.py:* > attention.py:*`, and those numbers. A name
/// without line numbers is returned unchanged.
pub(super) fn extract_line_numbers(name: &str) -> (String, Vec<u32>) {
    let (mut short, mut lines) = (String::with_capacity(name.len()), Vec::new());
    let mut rest = name;
    while let Some(at) = rest.find(".py:") {
        let (before, after) = rest.split_at(at + ".py:".len());
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        short.push_str(before);
        if let Ok(line) = after[..digits].parse() {
            lines.push(line);
            short.push_str(PLACEHOLDER);
        }
        rest = &after[digits..];
    }
    (short + rest, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_one_kind_have_one_name() {
        for (name, kind) in [
            ("layers.3.attn", "layers.*.attn"),
            ("0.forward.aten::mm", "*.forward.aten::mm"),
            ("blocks[12].mlp.fc2", "blocks[*].mlp.fc2"),
            ("conv2d", "conv2d"),
            ("a.b1.[x]", "a.b1.[x]"),
            ("", ""),
        ] {
            assert_eq!(strip_indices(name), kind);
        }
    }

    #[test]
    fn addresses_and_hashes_do_not_distinguish_functions() {
        for (name, plain) in [
            (
                "<built-in method mul_ of Parameter object at 0x7f12ab>",
                "<built-in method mul_ of Parameter object at 0x…>",
            ),
            ("app::work::h0123456789abcdef", "app::work"),
            ("app::work::hello", "app::work::hello"),
            ("method_vectorcall.llvm.5455514332722937381", "method_vectorcall"),
            ("nn.Module: Linear_12", "nn.Module: Linear_*"),
            ("linear_12", "linear_12"),
            ("0xé", "0xé"),
        ] {
            assert_eq!(normalize_function(name), plain);
        }
    }

    #[test]
    fn line_numbers_of_modules_are_extracted() {
        assert_eq!(
            extract_line_numbers("model.py:382 > attention.py:39"),
            ("model.py:* > attention.py:*".into(), vec![382, 39])
        );
        assert_eq!(extract_line_numbers("Attention"), ("Attention".into(), Vec::new()));
        assert_eq!(extract_line_numbers("a.py:"), ("a.py:".into(), Vec::new()));
    }
}

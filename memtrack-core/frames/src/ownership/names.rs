//! Names of Python, Rust, C++ and C functions, both in the form that rules are compared with and in readable form.

use super::Owner;
use crate::language::{is_javascript, is_script};
use crate::torch_stacks::{ParsedFrame, built_in_name, operator};
use memtrack_model::Frame;
use memtrack_model::paths::file_name;
use memtrack_symbols::names::plain_path;

/// Returns the plain path of a native function, e.g. `at::native::add` for
/// `at::Tensor at::native::add<float>(at::Tensor const&)`.
pub fn qualified_path(function: &str) -> String {
    plain_path(strip_signature(function))
}

/// Returns the path of a frame's function. The names of Python's and JavaScript's functions are their own paths.
pub fn path_of(frame: &Frame) -> String {
    if is_script(frame) { frame.function.clone() } else { qualified_path(&frame.function) }
}

/// Strips the return type and parameters from the name of a C++ function; returns any other name as it is.
fn strip_signature(function: &str) -> &str {
    const ANONYMOUS: &str = "(anonymous namespace)";
    let bytes = function.as_bytes();
    let (mut depth, mut start, mut at) = (0usize, 0, 0);
    while at < bytes.len() {
        let before_is_operator = function.get(..at).is_some_and(|before| before.ends_with("operator"));
        match bytes[at] {
            b'<' if !before_is_operator => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' => depth = depth.saturating_sub(1),
            b'(' if function.get(at..).is_some_and(|rest| rest.starts_with(ANONYMOUS)) => {
                at += ANONYMOUS.len();
                continue;
            }
            b'(' if before_is_operator => {}
            b'(' if depth == 0 && at > start => return &function[start..at],
            // `operator new` is a single name.
            b' ' if depth == 0 && !before_is_operator => start = at + 1,
            _ => {}
        }
        at += 1;
    }
    // A name without parameters does not belong to a C++ function. Text before a space is then part of the name, not a
    // return type.
    function
}

/// Returns the crate or outermost namespace of a path.
pub(super) fn crate_name(path: &str) -> Option<&str> {
    path.split_once("::").map(|(first, _)| first).filter(|first| !first.is_empty())
}

/// Returns whether a function has a C name, i.e. one without a path or parameters.
pub(super) fn is_c_name(function: &str) -> bool {
    !function.contains("::") && !function.contains('(')
}

/// Returns whether a frame has no function name but only `??`, an address, or an offset into a binary that was not
/// found.
pub(super) fn is_unnamed(function: &str) -> bool {
    let place = function.split(" [build id").next().unwrap_or(function);
    let in_a_binary = place.rsplit_once("+0x").is_some_and(|(_, offset)| is_hex(offset));
    let address = place.strip_prefix("0x").is_some_and(is_hex);
    in_a_binary || address || matches!(function, "" | "??" | "[unknown]")
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Formats a frame for human readers, as in `train.py:53 step`, `model.rs:12 Linear::forward` or `aten::mm`, or just as
/// the function's path if no file is known.
pub fn short(frame: &Frame) -> String {
    let line = ParsedFrame::of(frame);
    let file = Some(file_name(line.file)).filter(|file| !file.is_empty() && *file != "??");
    let number = line.line.filter(|&number| number > 0);
    if line.is_python || is_javascript(frame) {
        return format_with_location(file, number, line.function);
    }
    if let Some(function) = built_in_name(frame) {
        return function;
    }
    if let Some(operator) = operator(line.function) {
        return format!("aten::{operator}");
    }
    let path = qualified_path(line.function);
    let path = path.replace("(anonymous namespace)::", "");
    // If there is a file, the modules in the path would be redundant; otherwise, they are the only location.
    match (file, number) {
        (Some(file), Some(_)) => format_with_location(Some(file), number, last_segments(&path)),
        _ => path,
    }
}

fn format_with_location(file: Option<&str>, line: Option<u32>, function: &str) -> String {
    match (file, line) {
        (Some(file), Some(line)) => format!("{file}:{line} {function}"),
        (Some(file), None) => format!("{file} {function}"),
        _ => function.to_owned(),
    }
}

/// Returns the function, with its type if it is a method: `Layer::new` for `app::model::Layer::new`, but `step` for
/// `app::step`.
fn last_segments(path: &str) -> &str {
    let Some((before, _)) = path.rsplit_once("::") else { return path };
    let start = before.rfind("::").map_or(0, |at| at + 2);
    let of_type = before[start..].starts_with(char::is_uppercase);
    if of_type { &path[start..] } else { &path[before.len() + 2..] }
}

/// Returns the prefix for the name of a stack that has none of the user's frames.
pub(super) fn foreign_prefix(owner: Owner) -> &'static str {
    match owner {
        Owner::Mine | Owner::Framework => "not your code: ",
        Owner::Noise => "(no named frame)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_functions_lose_their_return_type_and_parameters() {
        for (function, path) in [
            ("at::Tensor at::native::add<float>(at::Tensor const&, long)", "at::native::add"),
            ("void at::native::(anonymous namespace)::f(int)", "at::native::(anonymous namespace)::f"),
            ("at::native::x(int)::{lambda(int)#1}::operator()(int) const", "at::native::x"),
            ("std::vector<at::Tensor, std::allocator<at::Tensor> >::~vector()", "std::vector::~vector"),
            (
                "_object* torch::autograd::TypeError_to_NotImplemented_<&torch::autograd::THPVariable_div>(_object*)",
                "torch::autograd::TypeError_to_NotImplemented_",
            ),
            ("operator new(unsigned long)", "operator new"),
            ("my::Functor::operator()(int) const", "my::Functor::operator()"),
            ("<my::Layer as core::ops::Fn>::call", "my::Layer::call"),
            ("main", "main"),
            ("(anonymous namespace)", "(anonymous namespace)"),
            ("(anonymous)", "(anonymous)"),
            ("", ""),
        ] {
            assert_eq!(qualified_path(function), path, "{function}");
        }
    }

    #[test]
    fn offset_in_binary_is_not_name() {
        for unnamed in ["??", "libfoo.so+0x12a", "train+0x1b1862 [build id 24608a6efe03]", "0x7f00aa"] {
            assert!(is_unnamed(unnamed), "{unnamed}");
        }
        for named in ["main", "a+b", "add+0xyz", "operator+"] {
            assert!(!is_unnamed(named), "{named}");
        }
    }
}

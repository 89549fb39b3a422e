//! The language that a frame was written in.

use memtrack_model::Frame;

/// The ends of the names of JavaScript's files, and of files in languages that are compiled to it.
const JAVASCRIPT_FILES: [&str; 10] =
    [".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".vue", ".svelte"];

/// Returns whether this is a frame of Python or JavaScript. Unlike the C++ frames around them, these are the program as its
/// author knows it.
pub fn is_script(frame: &Frame) -> bool {
    is_python(frame) || is_javascript(frame)
}

/// Returns whether this is a frame of JavaScript, which comes from a file of JavaScript or from Node.js itself, such as
/// `node:internal/timers`.
pub fn is_javascript(frame: &Frame) -> bool {
    let of = |file: &str| file.starts_with("node:") || JAVASCRIPT_FILES.iter().any(|end| file.ends_with(end));
    frame.file.as_deref().is_some_and(of)
}

/// Returns whether this is a Python frame, which comes from a Python file or from generated code, such as `<string>` or
/// `<eval_with_key>.7`.
pub fn is_python(frame: &Frame) -> bool {
    let of = |file: &str| file.ends_with(".py") || (file.starts_with('<') && file.contains('>'));
    frame.file.as_deref().is_some_and(of)
}

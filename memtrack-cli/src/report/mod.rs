//! What text reports share on their way to a terminal.

use std::io;

/// The width in characters of the terminal that standard output is; none when it is a file or a pipe, where tables
/// may be as wide as they need.
pub(crate) fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
}

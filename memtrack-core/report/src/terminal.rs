//! The width of reports on standard output, for the reports of the command and those that a recorded program prints.
//!
//! **Why not the crate `terminal_size`?** Every program that records would build it and `rustix`, four crates, for one call.
#![allow(unsafe_code)]

/// The number of characters per line if the width is unknown, as for a file or a pipe.
const DEFAULT_WIDTH: usize = 120;
/// The width below which tables do not fit.
const MIN_WIDTH: usize = 40;

/// Returns the number of characters per line: the value of `COLUMNS`, or the width of the terminal, or 120; at least
/// 40.
pub fn width() -> usize {
    let columns = || std::env::var("COLUMNS").ok()?.trim().parse::<usize>().ok();
    columns().or_else(stdout_width).map_or(DEFAULT_WIDTH, |width| width.max(MIN_WIDTH))
}

/// Returns the width of the terminal, in characters, if standard output is a terminal.
#[cfg(unix)]
fn stdout_width() -> Option<usize> {
    // SAFETY: the struct contains only integers, for which zero is valid.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills `size` or fails.
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    // A terminal whose width is unknown reports 0.
    (result == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(not(unix))]
fn stdout_width() -> Option<usize> {
    None
}

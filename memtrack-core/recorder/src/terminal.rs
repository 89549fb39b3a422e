//! How wide the lines of a report are that goes to standard output: of the command, and of a recording that is printed.
#![allow(unsafe_code)]

/// Characters of a line if the width is unknown: in a file or a pipe.
const WIDTH_OF_FILES: usize = 120;
/// Narrower than this no table can be.
const NARROWEST: usize = 40;

/// Characters of a line: what `COLUMNS` says, or the terminal has room for, or a usual page; 40 at least.
pub fn width() -> usize {
    let columns = || std::env::var("COLUMNS").ok()?.trim().parse::<usize>().ok();
    columns().or_else(of_stdout).map_or(WIDTH_OF_FILES, |width| width.max(NARROWEST))
}

/// Of the terminal behind standard output, if it is one.
#[cfg(unix)]
fn of_stdout() -> Option<usize> {
    // SAFETY: numbers only, for which zeros are a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills `size`, or fails.
    let asked = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    // A terminal that does not know its width says 0.
    (asked == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(not(unix))]
fn of_stdout() -> Option<usize> {
    None
}

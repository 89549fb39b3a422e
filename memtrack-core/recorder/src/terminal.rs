//! The width of reports on standard output: of the command, and of a recording that is printed.
#![allow(unsafe_code)]

/// Characters of a line if the width is unknown: in a file or a pipe.
const WIDTH_OF_FILES: usize = 120;
/// No table can be narrower than this.
const NARROWEST: usize = 40;

/// Returns the characters of a line: the value of `COLUMNS`, or the width of the terminal, or of a usual page; at
/// least 40.
pub fn width() -> usize {
    let columns = || std::env::var("COLUMNS").ok()?.trim().parse::<usize>().ok();
    columns().or_else(of_stdout).map_or(WIDTH_OF_FILES, |width| width.max(NARROWEST))
}

/// Returns the width of the terminal behind standard output, if it is one.
#[cfg(unix)]
fn of_stdout() -> Option<usize> {
    // SAFETY: numbers only, for which zeros are a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills `size`, or fails.
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    // A terminal that does not know its width returns 0.
    (result == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(not(unix))]
fn of_stdout() -> Option<usize> {
    None
}

//! How a command ends: exit codes, and errors that name the problem, the place and the remedy in one line.

use std::path::Path;
use std::{fmt, io};

/// Exit codes of `memtrack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Success,
    /// The command succeeded, but its result, such as a leak or an exceeded limit, should fail a CI job.
    Finding,
    /// The command line is invalid.
    Usage,
    /// An input cannot be read or an output cannot be written.
    Io,
    /// The exit code of the program that the command ran or would have run.
    #[cfg(unix)]
    Program(u8),
}

impl Exit {
    /// Returns the process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Finding => 1,
            Self::Usage => 2,
            Self::Io => 3,
            #[cfg(unix)]
            Self::Program(code) => code,
        }
    }
}

/// The reason a command failed. It displays as a single line.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Wrong usage. The line describes what to do instead.
    Usage(String),
    /// Unreadable input or unwritable output.
    Io(String),
    /// A program that cannot be run, with the exit code that a shell would return and the reason.
    #[cfg(unix)]
    Program(u8, String),
    /// The reader of the output closed the pipe, which is not reported to the user as an error.
    ClosedPipe,
}

impl CliError {
    /// Returns the error for an input that cannot be read, where `why` is the reason.
    pub(crate) fn input(path: &Path, why: impl fmt::Display) -> Self {
        Self::Io(format!("cannot read {}: {why}", display_input(path)))
    }

    /// Returns the error for an output that cannot be written, where `why` is the reason.
    pub(crate) fn output(path: &Path, why: impl fmt::Display) -> Self {
        Self::Io(format!("cannot write {}: {why}", path.display()))
    }

    /// Returns the exit code for this kind of error.
    pub(crate) fn exit_code(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Io(_) => Exit::Io,
            #[cfg(unix)]
            Self::Program(code, _) => Exit::Program(*code),
            Self::ClosedPipe => Exit::Success,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Names from files may contain line breaks, and an error must be one line.
            Self::Usage(line) | Self::Io(line) => f.write_str(&line.replace(['\n', '\r'], " ")),
            #[cfg(unix)]
            Self::Program(_, line) => f.write_str(&line.replace(['\n', '\r'], " ")),
            Self::ClosedPipe => f.write_str("the output pipe was closed"),
        }
    }
}

/// Converts a failure to write to standard output.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::Io(format!("cannot write the output: {error}"))
        }
    }
}

/// Returns the name that messages use for an input.
fn display_input(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

//! The `memtrack` command as a library: [`run()`] takes arguments and streams and returns an exit code, so that it can be
//! tested and embedded. Commands are thin: they load the input, make one call into memtrack-core, and write the result.
//! Only `run` does something else: it starts a program.
//!
//! The modules:
//!
//! - `args`: the command line; `commands`: one file per verb; `answers`: the JSON output, a row for each verb
//!   (`schemas/`).
//! - Shared by verbs: `load` (one input), `many` (many inputs), `output` (files to write), `scrub` (pseudonyms),
//!   `ownership` (the user's code), `sizes` (sizes on the command line).
//! - `error`, `tips`, `neighbours`, `unmatched`: errors of a command, and suggestions.
//! - `report`, `plot`, `serve`: the output of text, figures and pages; `export/` has the Python scripts of `memtrack
//!   export-script`.
//! - `run`: starts a program with the libraries of `preload/` and `preload-heap/`, which `build.rs` builds and embeds;
//!   `c_heap`: a setting of glibc's heap.
//! - `sql`: `memtrack sql` over a data set; its queries are in `queries/`, the scripts for clusters in `spark/`.

mod answers;
mod args;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod c_heap;
mod commands;
mod error;
mod load;
mod many;
mod neighbours;
mod output;
mod ownership;
mod plot;
mod report;
#[cfg(unix)]
mod run;
mod scrub;
mod serve;
mod sizes;
#[cfg(feature = "sql")]
mod sql;
mod tips;
mod unmatched;

use clap::Parser;
use error::CliError;
use std::ffi::OsString;
use std::io::{self, Read, Write};

/// The standard streams of a command.
struct Streams<'a> {
    /// Read for the input named `-`.
    stdin: &'a mut dyn Read,
    /// Receives data and reports.
    stdout: &'a mut dyn Write,
    /// Receives hints and errors.
    stderr: &'a mut dyn Write,
}

/// Runs the command line `arguments` (the program's name first) and returns the exit code: 0 success, 1 a finding,
/// 2 wrong usage, 3 unreadable input or unwritable output. If the output pipe is closed, it returns 0 without a message.
///
/// Errors are written to `stderr` as one line; they neither cause a panic nor exit the process.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    stdin: &mut dyn Read,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> u8 {
    let mut streams = Streams { stdin, stdout, stderr };
    let result = match args::Cli::try_parse_from(arguments) {
        Ok(cli) => commands::dispatch(cli.command, &mut streams),
        Err(mut refusal) => {
            tips::add(&mut refusal);
            return explain(&refusal, &mut streams);
        }
    };
    let result = result.and_then(|code| streams.stdout.flush().map(|()| code).map_err(CliError::from));
    match result {
        Ok(code) => code.code(),
        Err(CliError::ClosedPipe) => 0,
        Err(error) => {
            let _ = writeln!(streams.stderr, "memtrack: {error}");
            error.exit_code().code()
        }
    }
}

/// Returns why [`run`] would reject a command line (the program's name first), without running it; `None` if the command
/// line is valid.
pub fn refusal(arguments: impl IntoIterator<Item = OsString>) -> Option<String> {
    let refusal = args::Cli::try_parse_from(arguments).err().filter(clap::Error::use_stderr);
    refusal.map(|refusal| refusal.to_string())
}

/// Prints clap's help or version to standard output, or its error to standard error.
fn explain(refusal: &clap::Error, streams: &mut Streams<'_>) -> u8 {
    let text = refusal.render();
    let (target, code): (&mut dyn Write, _) = if refusal.use_stderr() {
        (streams.stderr, error::Exit::Usage)
    } else {
        (streams.stdout, error::Exit::Success)
    };
    // Without colours, since the stream may be anything but a terminal.
    let written: io::Result<()> = write!(target, "{text}").and_then(|()| target.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => error::Exit::Io.code(),
        _ => code.code(),
    }
}

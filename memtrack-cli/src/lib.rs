//! The `memtrack` command as a library: [`run()`] takes arguments and streams and returns an exit code, so that it can be
//! tested and embedded. Commands are thin: parse, load, one call into memtrack-core, write. `run` starts a program
//! instead.
//!
//! The modules:
//!
//! - `args`: the command line; `commands`: one file per verb; `answers`: the JSON output, a row for each verb
//!   (`schemas/`).
//! - `load`, `many`, `output`, `scrub`, `ownership`, `sizes`: shared by verbs: one input, many, files, pseudonyms, the
//!   owners of code, sizes.
//! - `error`, `tips`, `neighbours`, `unmatched`: the failures of a command, and suggestions.
//! - `report`, `plot`, `serve`: text, figures and pages on their way out; `export/` has the Python scripts of `memtrack
//!   export-script`.
//! - `run`: starts a program with the libraries of `preload/` and `preload-heap/`, which `build.rs` builds and embeds;
//!   `c_heap`: glibc's heap.
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

/// The streams that a command may use besides the files it was given.
struct Streams<'a> {
    /// Standard input, for the input named `-`.
    stdin: &'a mut dyn Read,
    /// Data and reports.
    stdout: &'a mut dyn Write,
    /// Hints and errors.
    stderr: &'a mut dyn Write,
}

/// Runs the command line `arguments` (the program's name first) and returns the exit code: 0 fine, 1 a finding,
/// 2 wrong usage, 3 unreadable input or unwritable output. A closed output pipe ends the run quietly with 0.
///
/// Errors go to `stderr` as one line; this function neither panics on them nor exits the process.
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

/// Returns why [`run`] would refuse a command line (the program's name first), without running it; `None` if it would
/// not.
pub fn refusal(arguments: impl IntoIterator<Item = OsString>) -> Option<String> {
    let refusal = args::Cli::try_parse_from(arguments).err().filter(clap::Error::use_stderr);
    refusal.map(|refusal| refusal.to_string())
}

/// Prints clap's help, version or complaint where it belongs.
fn explain(refusal: &clap::Error, streams: &mut Streams<'_>) -> u8 {
    let text = refusal.render();
    let (target, code): (&mut dyn Write, _) = if refusal.use_stderr() {
        (streams.stderr, error::Exit::Usage)
    } else {
        (streams.stdout, error::Exit::Success)
    };
    // `run` writes to any stream, which may be no terminal: plain text, no colours.
    let written: io::Result<()> = write!(target, "{text}").and_then(|()| target.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => error::Exit::Io.code(),
        _ => code.code(),
    }
}

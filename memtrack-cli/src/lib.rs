//! The `memtrack` command as a library: [`run()`] takes arguments and streams and returns an exit code, so that it can be
//! tested and embedded. Commands are thin: they load the input, make one call into memtrack-core, and write the result.
//! Only `run` does something else: it starts a program.
//!
//! The modules:
//!
//! - `verbs` has one file per verb, with its arguments, its JSON and what it does. `args` has the arguments that several verbs
//!   share, and `answers` prints JSON and its schemas.
//! - `context` has what a report about one file starts from; `load` reads one input, `many` many; `optrace` reads operator
//!   traces, and `progress` shows how far it is. `ownership` reads the rules about the user's code, `scrub` makes pseudonyms, and `sizes` parses sizes.
//! - `report` lays out text, `page` and `serve` make pages, `flame` and `png` pictures, and `output` writes files; `export/` has
//!   the Python scripts for `memtrack export-script`.
//! - `error`, `tips` and `neighbours` deal with errors and suggestions.
//! - `run` starts a program with the libraries in `preload/` and `preload-heap/`, which `build.rs` builds and embeds;
//!   `c_heap` changes a setting of glibc's heap.
//! - `queries/` has SQL for the data set that `memtrack export --parquet` writes, and `spark/` the scripts for clusters.

mod answers;
mod args;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod c_heap;
mod context;
mod error;
mod flame;
mod load;
mod many;
mod neighbours;
mod optrace;
mod output;
mod ownership;
mod page;
mod png;
mod progress;
mod report;
#[cfg(unix)]
mod run;
mod scrub;
mod serve;
mod sizes;
mod tips;
mod verbs;

use error::CliError;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use verbs::Cli;

/// The standard streams of a command.
struct Streams<'a> {
    /// The stream that is read for the input named `-`.
    stdin: &'a mut dyn Read,
    /// The stream that receives data and reports.
    stdout: &'a mut dyn Write,
    /// The stream that receives hints and errors.
    stderr: &'a mut dyn Write,
}

impl Streams<'_> {
    /// Prints a hint or a warning to standard error. A failure is ignored, because the output is complete without this line.
    fn note(&mut self, line: fmt::Arguments<'_>) {
        let _ = writeln!(self.stderr, "{line}");
    }
}

/// Runs the command line `arguments`, which starts with the program's name, and returns the exit code: 0 for success, 1 for a
/// finding, 2 for wrong usage, 3 for unreadable input or unwritable output. If the output pipe is closed, it returns 0 without a
/// message.
///
/// Errors are written to `stderr` as one line; they neither cause a panic nor exit the process.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    stdin: &mut dyn Read,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> u8 {
    let mut streams = Streams { stdin, stdout, stderr };
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let result = match Cli::parse_line(&arguments) {
        Ok(cli) => cli.run(&mut streams),
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
            streams.note(format_args!("memtrack: {error}"));
            error.exit_code().code()
        }
    }
}

/// Returns the reason [`run()`] would reject a command line, without running it, or `None` if the command line is valid. The
/// command line starts with the program's name.
pub fn refusal(arguments: impl IntoIterator<Item = OsString>) -> Option<String> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let refusal = Cli::parse_line(&arguments).err().filter(clap::Error::use_stderr);
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
    // Write without colours, because the stream may not be a terminal.
    let written: io::Result<()> = write!(target, "{text}").and_then(|()| target.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => error::Exit::Io.code(),
        _ => code.code(),
    }
}

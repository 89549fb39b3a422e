//! `memtrack completions`: completion of the arguments in a shell.

use crate::Streams;
use crate::args::{Cli, CompletionsArgs};
use crate::error::{CliError, Exit};
use clap::CommandFactory;

/// Prints the shell's script.
pub(crate) fn run(args: &CompletionsArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    // The whole script before the first byte: the generator panics at a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "memtrack", &mut script);
    streams.stdout.write_all(&script)?;
    Ok(Exit::Fine)
}

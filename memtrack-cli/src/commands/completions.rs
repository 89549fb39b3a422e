//! `memtrack completions`: prints a script that completes arguments in a shell.

use crate::Streams;
use crate::args::{Cli, CompletionsArgs};
use crate::error::{CliError, Exit};
use clap::CommandFactory;

/// Prints the completion script for the shell.
pub(crate) fn run(args: &CompletionsArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    // Generate the whole script before printing any of it, because the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "memtrack", &mut script);
    streams.stdout.write_all(&script)?;
    Ok(Exit::Success)
}

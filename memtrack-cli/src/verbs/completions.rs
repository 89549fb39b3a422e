//! `memtrack completions`: prints a script that completes arguments in a shell.

use super::prelude::*;
use crate::verbs::Cli;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a shell completion script
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack completions bash > ~/.local/share/bash-completion/completions/memtrack
  memtrack completions zsh > ~/.zfunc/_memtrack      with fpath+=~/.zfunc before compinit
  memtrack completions fish > ~/.config/fish/completions/memtrack.fish

Exit codes: 0 success, 2 wrong usage, 3 unwritable output.")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Prints the completion script for the shell.
pub(super) fn run(args: &CompletionsArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    // Generate the whole script before printing any of it, because the generator panics on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "memtrack", &mut script);
    streams.stdout.write_all(&script)?;
    Ok(Exit::Success)
}

//! Arguments for the verbs that produce files for an installation: `memtrack completions` and `memtrack man`.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

/// Arguments for `memtrack completions`.
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

/// Arguments for `memtrack man`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack man ~/.local/share/man/man1               then: man memtrack, man memtrack-top
  memtrack man pages                                 to look at them: man ./pages/memtrack-top.1

Writes memtrack.1 and memtrack-COMMAND.1, about what this build of memtrack can do. Either all pages are written or none.
Exit codes: 0 success, 2 wrong usage, 3 unwritable output.")]
pub(crate) struct ManArgs {
    /// The folder for the man pages; it is created if it does not exist
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Replace pages that exist
    #[arg(long)]
    pub(crate) force: bool,
}

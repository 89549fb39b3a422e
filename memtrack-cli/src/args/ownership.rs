//! Arguments that define which code is the user's own.

use clap::Args;
use std::path::PathBuf;

/// Which code is the user's own.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RulesArgs {
    /// Code that is yours: a folder, file, function or binary, such as 'site-packages/mylib', 'my_crate::*' or libmine.so
    #[arg(long, value_name = "GLOB", help_heading = "Code ownership")]
    pub(crate) mine: Vec<String>,
    /// Code that is not yours, such as 'third_party', '*/generated/*' or libvendor.so; the longest matching glob decides
    #[arg(long, value_name = "GLOB", help_heading = "Code ownership")]
    pub(crate) not_mine: Vec<String>,
    /// Read ownership globs from this file [default: memtrack.toml in the current folder, if there is one]
    #[arg(long, value_name = "FILE", help_heading = "Code ownership")]
    pub(crate) rules: Option<PathBuf>,
}

/// The code ownership rules for a report that can explain which rule decided.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OwnershipArgs {
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// For the first rows, show the rule that classified each frame
    #[arg(long, help_heading = "Code ownership")]
    pub(crate) explain: bool,
}

//! Arguments that say whose code is whose.

use clap::Args;
use std::path::PathBuf;

/// Which code is the user's own.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RulesArgs {
    /// Code that is yours: a folder, file, function or binary, such as 'site-packages/mylib', 'my_crate::*' or libmine.so
    #[arg(long, value_name = "GLOB", help_heading = "Whose code is whose")]
    pub(crate) mine: Vec<String>,
    /// Code that is not yours, such as 'third_party', '*/generated/*' or libvendor.so; of several that match, the longest decides
    #[arg(long, value_name = "GLOB", help_heading = "Whose code is whose")]
    pub(crate) not_mine: Vec<String>,
    /// Read such globs from this file [default: memtrack.toml in the current folder, if there is one]
    #[arg(long, value_name = "FILE", help_heading = "Whose code is whose")]
    pub(crate) rules: Option<PathBuf>,
}

/// The same, of a report that can say why.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OwnershipArgs {
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Show, for the first rows, which rule decided for each frame
    #[arg(long, help_heading = "Whose code is whose")]
    pub(crate) explain: bool,
}

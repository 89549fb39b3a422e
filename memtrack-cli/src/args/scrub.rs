//! Arguments for the verbs that write files to share.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

/// Whether and how to replace names in the output.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ScrubArgs {
    /// Replace paths, names, process ids and the time of day with pseudonyms, except those of public libraries
    #[arg(long, help_heading = "Sharing")]
    pub(crate) scrub: bool,
    /// With --scrub: also keep the names of this code, such as 'my_crate::*', or of these scopes; repeatable
    #[arg(long, value_name = "GLOB", requires = "scrub", help_heading = "Sharing")]
    pub(crate) scrub_keep: Vec<String>,
    /// With --scrub: a secret without which no guessed name can be confirmed; the same secret gives the same pseudonyms
    #[arg(
        long,
        value_name = "TEXT",
        requires = "scrub",
        help_heading = "Sharing",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) scrub_key: Option<String>,
}

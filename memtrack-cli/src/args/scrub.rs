//! Arguments of the verbs that write files for others to read.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

/// What becomes of the names in what is written.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ScrubArgs {
    /// Replace paths, names, process ids and the time of day by pseudonyms, except those of public libraries
    #[arg(long, help_heading = "For others to read")]
    pub(crate) scrub: bool,
    /// With --scrub: also keep the names of this code, such as 'my_crate::*', or of these scopes; repeatable
    #[arg(long, value_name = "GLOB", requires = "scrub", help_heading = "For others to read")]
    pub(crate) scrub_keep: Vec<String>,
    /// With --scrub: a secret without which no guessed name can be confirmed; the same one gives the same pseudonyms
    #[arg(
        long,
        value_name = "TEXT",
        requires = "scrub",
        help_heading = "For others to read",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) scrub_key: Option<String>,
}

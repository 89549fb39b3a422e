//! Arguments for `memtrack schema`.

use clap::Args;

/// Arguments for `memtrack schema`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack schema                          the verbs, and the version of each one's output
  memtrack schema top                      what `memtrack top --json` prints, as JSON Schema
  memtrack schema top > top.schema.json    for a validator

Within a version, only human-readable sentences, names of functions and the order of keys may change. A key that is added,
removed or renamed, or whose meaning, type or unit changes, makes a new version.
Exit codes: 0 success, 2 wrong usage.")]
pub(crate) struct SchemaArgs {
    /// The verb; without it, the verbs that have a schema are listed
    #[arg(value_name = "VERB")]
    pub(crate) verb: Option<String>,
}

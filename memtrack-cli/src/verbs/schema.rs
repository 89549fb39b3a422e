//! `memtrack schema`: the JSON schemas of the verbs' output.

use super::answers;
use super::prelude::*;
use std::io;

/// Print the JSON Schema of a verb's --json output, or list the verbs that have one
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

/// Prints the schema of a verb's output, or lists the verbs.
pub(super) fn run(args: &SchemaArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let Some(verb) = &args.verb else {
        for answer in answers() {
            writeln!(streams.stdout, "{:<14} {}", answer.verb(), answer.name())?;
        }
        return Ok(Exit::Success);
    };
    let wanted = verb.replace('_', "-");
    let Some(answer) = answers().into_iter().find(|answer| answer.verb() == wanted) else {
        let known: Vec<_> = answers().into_iter().map(|answer| answer.verb()).collect();
        return Err(CliError::Usage(format!("no schema for {verb}; there is one for: {}", known.join(", "))));
    };
    serde_json::to_writer_pretty(&mut *streams.stdout, answer.schema().as_value())
        .map_err(io::Error::from)?;
    writeln!(streams.stdout)?;
    Ok(Exit::Success)
}

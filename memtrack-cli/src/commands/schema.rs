//! `memtrack schema`: the JSON schemas of the verbs' output.

use crate::Streams;
use crate::answers;
use crate::args::SchemaArgs;
use crate::error::{CliError, Exit};
use crate::report::print_json;

/// Prints the schema of a verb's output, or lists the verbs.
pub(crate) fn run(args: &SchemaArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let Some(verb) = &args.verb else {
        for answer in answers::all() {
            writeln!(streams.stdout, "{:<14} {}", answer.verb(), answer.name())?;
        }
        return Ok(Exit::Success);
    };
    let wanted = verb.replace('_', "-");
    let Some(answer) = answers::all().iter().find(|answer| answer.verb() == wanted) else {
        let known: Vec<_> = answers::all().iter().map(|answer| answer.verb()).collect();
        return Err(CliError::Usage(format!("no schema for {verb}; there is one for: {}", known.join(", "))));
    };
    print_json(answer.schema().as_value(), streams)?;
    Ok(Exit::Success)
}

//! `memtrack trace`: prints every event as a line.

use super::prelude::*;
use crate::answers::AnswerSchema;
use memtrack_core::viz::{TraceAnswer, trace, trace_json};

/// List every event, in PyTorch's text format
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack trace snapshot.pickle            PyTorch's text, byte for byte
  memtrack trace snapshot.pickle --json     every event with its stack, one per line

Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(super) const ANSWER: Answer<TraceAnswer> = Answer::new("trace", 1);

/// Loads the snapshot and prints the events.
pub(super) fn run(args: &TraceArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let snapshot = load_pytorch(&args.file, streams)?;
    let report_error = |error| report_error(&args.file.path, error);
    let odd = if args.format.json {
        trace_json(&snapshot, &ANSWER.name(), &mut streams.stdout).map_err(report_error)?
    } else {
        let odd = trace(&snapshot, &mut streams.stdout).map_err(report_error)?;
        writeln!(streams.stdout)?;
        odd
    };
    mention_inconsistencies(&odd, streams);
    mention_samples(&snapshot, streams);
    Ok(Exit::Success)
}

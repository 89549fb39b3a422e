//! `memtrack trace`: prints every event as a line.

use crate::Streams;
use crate::answers::{self, AnswerSchema};
use crate::args::ViewArgs;
use crate::error::{CliError, Exit};
use crate::load::load_pytorch;
use crate::report::{mention_inconsistencies, mention_samples, report_error};
use memtrack_core::viz::{trace, trace_json};

/// Loads the snapshot and prints the events.
pub(crate) fn run(args: &ViewArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let snapshot = load_pytorch(&args.file, streams)?;
    let report_error = |error| report_error(&args.file.path, error);
    let odd = if args.format.json {
        trace_json(&snapshot, &answers::TRACE.name(), &mut streams.stdout).map_err(report_error)?
    } else {
        let odd = trace(&snapshot, &mut streams.stdout).map_err(report_error)?;
        writeln!(streams.stdout)?;
        odd
    };
    mention_inconsistencies(&odd, streams);
    mention_samples(&snapshot, streams);
    Ok(Exit::Success)
}

//! `memtrack export-script`: the Python scripts that write operator traces and object graphs.

use crate::Streams;
use crate::answers;
use crate::args::ExportScriptArgs;
use crate::error::{CliError, Exit};
use crate::output::{check_targets, write_files};
use std::path::Path;

// The scripts are written in Python so that they can inspect the profiler and garbage collector of the program they run in.
const OPERATOR_TRACE_SCRIPT: &str = include_str!("../export/optrace.py");
const CYCLES_SCRIPT: &str = include_str!("../export/cycles.py");

/// Prints a script, or writes it to a file.
pub(crate) fn run(args: &ExportScriptArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let script = if args.cycles { CYCLES_SCRIPT } else { OPERATOR_TRACE_SCRIPT };
    let target = args.output.as_deref().unwrap_or(Path::new("-"));
    match Some(target).filter(|&target| target != Path::new("-")) {
        None => streams.stdout.write_all(script.as_bytes())?,
        Some(target) => {
            check_targets([target], args.force)?;
            write_files(&[(target.to_owned(), script.into())])?;
        }
    }
    answers::EXPORT_SCRIPT.report_written(target, "py", args.written, streams)?;
    Ok(Exit::Success)
}

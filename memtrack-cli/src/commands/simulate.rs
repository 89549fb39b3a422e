//! `memtrack simulate`: runs a workload on a model of PyTorch's allocator.

use crate::Streams;
use crate::answers;
use crate::args::SimulateArgs;
use crate::error::{CliError, Exit};
use crate::neighbours::{Kind, read_head, read_stdin_head, unusable_file_error};
use crate::output::check_targets;
use memtrack_core::__ReplacingFile as ReplacingFile;
use memtrack_core::allocator::workload::{Workload, WorkloadError, simulate};
use std::fs::File;
use std::path::Path;

/// Reads the workload, runs it, and writes the results.
pub(crate) fn run(args: &SimulateArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    check_targets(args.output.as_deref(), args.force)?;
    let workload = read(&args.workload, args.input.max_input, streams)?;
    for hint in &workload.hints {
        // Ignore a failure to print this hint, because the results are complete without it.
        let _ = writeln!(streams.stderr, "memtrack: {}: {hint}", args.workload.display());
    }
    match &args.output {
        None => simulate(&workload, &mut streams.stdout)?,
        Some(path) => {
            let written = ReplacingFile::create(path).and_then(|mut file| {
                simulate(&workload, &mut file)?;
                file.commit()
            });
            written.map_err(|error| CliError::output(path, error))?;
        }
    }
    if args.written.json {
        let target = args.output.as_deref().unwrap_or(Path::new("-"));
        answers::SIMULATE.report_written(target, "jsonl", args.written, streams)?;
    }
    Ok(Exit::Success)
}

fn read(path: &Path, max_input: u64, streams: &mut Streams<'_>) -> Result<Workload, CliError> {
    let own = [Kind::Workload];
    if path == Path::new("-") {
        let (head, stdin) = read_stdin_head(&mut *streams.stdin)?;
        return Workload::read(stdin, max_input)
            .map_err(|error| unusable_file_error(path, &head, &own, error));
    }
    let workload =
        File::open(path).map_err(WorkloadError::from).and_then(|file| Workload::read(file, max_input));
    workload.map_err(|error| unusable_file_error(path, &read_head(path), &own, error))
}

//! `memtrack simulate`: a workload through PyTorch's allocator.

use crate::Streams;
use crate::args::SimulateArgs;
use crate::error::{CliError, Exit};
use crate::output::check_targets;
use memtrack_core::ReplacingFile;
use memtrack_core::allocator::workload::{Workload, WorkloadError, simulate};
use std::fs::File;
use std::path::Path;

/// Reads the workload, runs it, writes the results.
pub(crate) fn run(args: &SimulateArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    check_targets(args.output.as_deref(), args.force)?;
    let workload = read(&args.workload, args.input.max_input, streams)
        .map_err(|e| CliError::input(&args.workload, e))?;
    for hint in &workload.hints {
        // For who reads it; the results are there all the same.
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
    Ok(Exit::Fine)
}

fn read(path: &Path, max_input: u64, streams: &mut Streams<'_>) -> Result<Workload, WorkloadError> {
    if path == Path::new("-") {
        return Workload::read(&mut *streams.stdin, max_input);
    }
    Workload::read(File::open(path)?, max_input)
}

//! `memtrack simulate`: runs a workload on a model of PyTorch's allocator.

use super::prelude::*;
use crate::output::write_file;
use memtrack_core::allocator::workload::{Workload, simulate};

/// Run a sequence of requests through PyTorch's caching allocator, on a simulated GPU
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack simulate pattern.jsonl                    what PyTorch's allocator does, operation by operation
  memtrack simulate pattern.jsonl.gz -o out.jsonl    to a file
  generate | memtrack simulate - | jq .events        from a pipe

A workload has one JSON object per line. The first describes the devices, the others are operations:
  {\"op\":\"config\",\"devices\":1,\"total_bytes\":1073741824,\"settings\":\"max_split_size_mb:64\"}
  {\"op\":\"alloc\",\"id\":1,\"size\":1000}
  {\"op\":\"free\",\"id\":1}
  {\"op\":\"stats\"}
Others: record_stream, events_ready, empty_cache, reset_peak, reset_accumulated, set_fraction, settings, snapshot,
begin_pool, end_pool, delete_pool. An operation that fails is a result; the exit code is 0 all the same.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct SimulateArgs {
    /// The workload, compressed or not; `-` reads standard input
    #[arg(value_name = "WORKLOAD.jsonl")]
    pub(crate) workload: PathBuf,
    /// Write the results to this file instead of standard output
    #[arg(short, long, value_name = "RESULT.jsonl")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) written: WrittenArgs,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) input: InputSizeArgs,
}

pub(super) const ANSWER: Answer<WrittenAnswer> = Answer::new("simulate", 1);

/// Reads the workload, runs it, and writes the results.
pub(super) fn run(args: &SimulateArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    check_targets(args.output.as_deref(), args.force)?;
    let workload = read_file(&args.workload, &[Kind::Workload], streams, |file| {
        Workload::read(file, args.input.max_input)
    })?;
    for hint in &workload.hints {
        streams.note(format_args!("memtrack: {}: {hint}", args.workload.display()));
    }
    match &args.output {
        None => simulate(&workload, &mut streams.stdout)?,
        Some(path) => write_file(path, |mut out| simulate(&workload, &mut out))?,
    }
    if args.written.json {
        let target = args.output.as_deref().unwrap_or(Path::new("-"));
        ANSWER.report_written(target, "jsonl", args.written, streams)?;
    }
    Ok(Exit::Success)
}

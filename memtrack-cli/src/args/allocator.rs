//! Arguments of the verbs around the caching allocator.

use super::InputArgs;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `memtrack simulate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack simulate pattern.jsonl                    what PyTorch's allocator does, operation by operation
  memtrack simulate pattern.jsonl.gz -o out.jsonl    to a file
  generate | memtrack simulate - | jq .events        from a pipe

A workload is one JSON object a line. The first says what the devices are, the others what is done:
  {\"op\":\"config\",\"devices\":1,\"total_bytes\":1073741824,\"settings\":\"max_split_size_mb:64\"}
  {\"op\":\"alloc\",\"id\":1,\"size\":1000}
  {\"op\":\"free\",\"id\":1}
  {\"op\":\"stats\"}
Others: record_stream, events_ready, empty_cache, reset_peak, reset_accumulated, set_fraction, settings, snapshot,
begin_pool, end_pool, delete_pool. An operation that fails is a result; the exit code is 0 all the same.
Exit codes: 0 fine, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct SimulateArgs {
    /// The workload, packed or not; `-` reads standard input
    #[arg(value_name = "WORKLOAD.jsonl")]
    pub(crate) workload: PathBuf,
    /// Write the results here instead of to standard output
    #[arg(short, long, value_name = "RESULT.jsonl")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) input: InputArgs,
}

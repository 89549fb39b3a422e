//! Arguments for the verbs that simulate PyTorch's caching allocator.

use super::device::DeviceArgs;
use super::{FileArgs, FormatArgs, InputSizeArgs, WrittenArgs};
use crate::sizes::parse_bytes;
use clap::Args;
use std::path::PathBuf;

/// Arguments for `memtrack simulate`.
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

/// Arguments for `memtrack replay`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack replay snapshot.pickle                                which settings would have needed the least memory
  memtrack replay snapshot.pickle --capacity 24GiB               … and whether it would have fitted into 24 GiB
  memtrack replay run.memtrack --set expandable_segments:True    compare the recorded settings with this one
  memtrack replay snapshot.pickle --set '' --set max_split_size_mb:128 --json

The recorded requests run through PyTorch's caching allocator again. The table begins with the best settings: fewest
failures, then fewest retries, then least memory reserved. Fragmentation is the share of reserved memory that no active
block used when most was reserved. Nothing is recommended if the trace is too short, if the recorded settings do not
reproduce the recorded peak, or if less than 1 % would be gained.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Try these settings instead of the usual grid; a string as in PYTORCH_CUDA_ALLOC_CONF; repeatable
    #[arg(long = "set", value_name = "KEY:VALUE,…")]
    pub(crate) settings: Vec<String>,
    /// The device's memory [default: that of the snapshot's device, if memory ran out, else unlimited]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) capacity: Option<u64>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

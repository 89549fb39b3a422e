//! The arguments of `memtrack export-script`.

use clap::Args;
use std::path::PathBuf;

/// Arguments of `memtrack export-script`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack export-script -o memtrack_export.py
  python memtrack_export.py run.optrace.jsonl.gz train.py --epochs 1
  memtrack timeline run.optrace.jsonl.gz -o memory.html

The first writes the script, the second runs train.py under PyTorch's profiler and writes what it did, the third shows what
its memory was for. Or a part of a program, in Python:

  import memtrack_export
  with memtrack_export.operator_trace(\"step.optrace.jsonl.gz\", model):
      train_step()

The script needs PyTorch 2.1 or newer and nothing else; its first lines say how it takes a profile that a program makes
itself. Pass it on as you like: it does not need memtrack.
Exit codes: 0 success, 2 wrong usage, 3 unwritable output.")]
pub(crate) struct ExportScriptArgs {
    /// Write it to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

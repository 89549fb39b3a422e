//! `memtrack export-script`: the Python scripts that write operator traces and object graphs.

use super::prelude::*;

/// Print the Python script that turns a PyTorch profile into an operator trace
#[derive(Clone, Debug, Args)]
#[command(
    alias = "export_script",
    after_help = "\
Examples:
  memtrack export-script -o memtrack_export.py
  python memtrack_export.py run.optrace.jsonl.gz train.py --epochs 1
  memtrack timeline run.optrace.jsonl.gz -o memory.html

The first writes the script, the second runs train.py under PyTorch's profiler and writes what it did, the third shows what
its memory was for. Or a part of a program, in Python:

  import memtrack_export
  with memtrack_export.operator_trace(\"step.optrace.jsonl.gz\", model):
      train_step()

Another script finds the reference cycles that keep tensors in device memory:

  memtrack export-script --cycles -o memtrack_cycles.py
  python memtrack_cycles.py train.py --epochs 1
  memtrack cycles cycles-1.json -o cycles-1.html

The scripts need PyTorch 2.1 or newer and nothing else; their first lines explain how to use them in a program. Pass them on
as you like: they do not need memtrack.
Exit codes: 0 success, 2 wrong usage, 3 unwritable output."
)]
pub(crate) struct ExportScriptArgs {
    /// Print the script that finds the reference cycles holding tensors, for `memtrack cycles`
    #[arg(long)]
    pub(crate) cycles: bool,
    /// Write the script to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) written: WrittenArgs,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

pub(super) const ANSWER: Answer<WrittenAnswer> = Answer::new("export-script", 1);

// The scripts are written in Python so that they can inspect the profiler and garbage collector of the program they run in.
const OPERATOR_TRACE_SCRIPT: &str = include_str!("../export/optrace.py");
const CYCLES_SCRIPT: &str = include_str!("../export/cycles.py");

/// Prints a script, or writes it to a file.
pub(super) fn run(args: &ExportScriptArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let script = if args.cycles { CYCLES_SCRIPT } else { OPERATOR_TRACE_SCRIPT };
    let target = args.output.as_deref().unwrap_or(Path::new("-"));
    check_output(target, args.force)?;
    write_output(target, streams, |out| out.write_all(script.as_bytes()))?;
    ANSWER.report_written(target, "py", args.written, streams)?;
    Ok(Exit::Success)
}

//! `memtrack processes`: the processes of a run.

use super::prelude::*;
use crate::load::read_processes;
use memtrack_core::analysis::layout::Layout;
use memtrack_core::analysis::processes::Processes;
use memtrack_core::snapshot::recording::merge;

/// List the processes of a run that `memtrack run` recorded: the peak of each and of all together, and how they ended
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack processes run.memtrack                    each process: peak, what it allocated, how it ended
  memtrack processes run.memtrack --json             the same as JSON, with every process
  memtrack top run.memtrack --process 4711           then any report about one of them, by id …
  memtrack peak run.memtrack --process worker.py     … or by the name of the program or script
  memtrack peak run.memtrack --all                   … or about all together

`memtrack run` records all processes of a run into one file. Reports are about the program, which is marked with *: what the
process that the command started finally became. If that is a shell or another launcher, or held less than 1 % of what all
processes held, it is the process that held most. Peak, all together: the largest sum of what all processes held at one
moment, which is what the limit of a container applies to; the memory of a process that has ended no longer counts. When a
process has ended is known to about 10 ms.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct ProcessesArgs {
    /// The recording; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) size: InputSizeArgs,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    /// Do not shorten command lines; by default, lines are as wide as COLUMNS, else the terminal, else 120 characters
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(super) const ANSWER: Answer<Processes> = Answer::new("processes", 1);

/// Reads the recording and prints its processes.
pub(super) fn run(args: &ProcessesArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (snapshots, report) = read_processes(&args.path, args.size, streams)?;
    let processes = Processes::of(snapshots, &report.removed, report.unrecorded.count(), merge);
    if args.format.json {
        ANSWER.print(&processes, streams)?;
    } else {
        let layout = Layout::new().width(width(args.wide));
        write!(streams.stdout, "{}", processes.to_text(layout, args.rows.limit()))?;
    }
    Ok(Exit::Success)
}

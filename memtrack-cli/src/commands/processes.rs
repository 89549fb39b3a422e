//! `memtrack processes`: the processes of a run.

use crate::Streams;
use crate::answers;
use crate::args::ProcessesArgs;
use crate::error::{CliError, Exit};
use crate::load::read_processes;
use memtrack_core::analysis::layout::Layout;
use memtrack_core::analysis::processes::Processes;
use memtrack_core::snapshot::recording::merge;

/// Reads the recording and prints its processes.
pub(crate) fn run(args: &ProcessesArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (snapshots, report) = read_processes(&args.path, args.size, streams)?;
    let processes = Processes::of(snapshots, &report.removed, report.unrecorded.count(), merge);
    if args.format.json {
        answers::PROCESSES.print(&processes.answer(), streams)?;
    } else {
        let layout = Layout::new().width((!args.wide).then(memtrack_core::__report_width));
        write!(streams.stdout, "{}", processes.to_text(layout, args.rows.limit()))?;
    }
    Ok(Exit::Success)
}

//! The verbs, with one file for each. A verb receives its arguments and the process's streams, loads the input, makes
//! one call into memtrack-core, writes the result and returns the exit code.

mod advise;
mod categories;
mod categories_read;
mod check;
mod compare;
mod completions;
mod convert;
mod cycles;
mod devices;
mod diff;
#[cfg(feature = "parquet")]
mod export;
mod export_script;
#[cfg(feature = "gpus")]
mod gpus;
mod leaks;
mod live_flame;
mod man;
mod modules;
mod moments;
mod optrace;
mod page;
mod peak;
mod processes;
mod ranks;
mod ranks_pages;
mod replay;
#[cfg(unix)]
mod run;
mod schema;
mod simulate;
mod stats;
mod summary;
mod timeline;
mod top;
mod trace;
mod tracker;
mod usage;

use crate::Streams;
use crate::args::Command;
use crate::error::{CliError, Exit};
use memtrack_core::viz::Grouping;

/// Runs the requested verb.
pub(crate) fn dispatch(command: Command, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    match command {
        Command::Advise(args) => advise::run(&args, streams),
        Command::Completions(args) => completions::run(&args, streams),
        Command::Convert(args) => convert::run(&args, streams),
        Command::Categories(args) => categories::run(&args, streams),
        Command::Check(args) => check::run(&args, streams),
        Command::Compare(args) => compare::run(&args, streams),
        Command::Cycles(args) => cycles::run(&args, streams),
        Command::Diff(args) => diff::run(&args, streams),
        #[cfg(feature = "parquet")]
        Command::Export(args) => export::run(&args, streams),
        Command::ExportScript(args) => export_script::run(&args, streams),
        #[cfg(feature = "gpus")]
        Command::Gpus(args) => gpus::run(&args, streams),
        Command::Leaks(args) => leaks::run(&args, streams),
        Command::Man(args) => man::run(&args, streams),
        Command::Memory(args) => live_flame::run(&args, streams),
        Command::Modules(args) => modules::run(&args, streams),
        Command::Peak(args) => peak::run(&args, streams),
        Command::ProfilePlot(args) => page::run_profile_plot(&args, streams),
        Command::Processes(args) => processes::run(&args, streams),
        Command::Ranks(args) => ranks::run(&args, streams),
        Command::Replay(args) => replay::run(&args, streams),
        #[cfg(unix)]
        Command::Run(args) => run::run(&args, streams),
        Command::Schema(args) => schema::run(&args, streams),
        Command::SegmentPlot(args) => page::run_segment_plot(&args, streams),
        Command::Segments(args) => usage::run(&args, Grouping::Segment, streams),
        Command::Simulate(args) => simulate::run(&args, streams),
        Command::Stats(args) => stats::run(&args, streams),
        Command::Summary(args) => summary::run(&args, streams),
        Command::Timeline(args) => timeline::run(&args, streams),
        Command::Top(args) => top::run(&args, streams),
        Command::Trace(args) => trace::run(&args, streams),
        Command::TracePlot(args) => page::run_trace_plot(&args, streams),
        Command::Tracker(args) => tracker::run(&args, streams),
        Command::View(args) => page::run_view(&args, streams),
    }
}

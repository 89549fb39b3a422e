//! The verbs, a file each: parse, load, one call, write. A verb takes its arguments and the process's streams and
//! returns how it ended.

mod compare;
mod convert;
mod stats;
mod top;
mod trace;
mod tracker;
mod usage;

use crate::Streams;
use crate::args::Command;
use crate::error::{CliError, Exit};
use memtrack_core::viz::Grouping;

/// Runs the verb the user asked for.
pub(crate) fn dispatch(command: Command, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    match command {
        Command::Convert(args) => convert::run(&args, streams),
        Command::Compare(args) => compare::run(&args, streams),
        Command::Memory(args) => usage::run(&args, Grouping::Stream, streams),
        Command::Segments(args) => usage::run(&args, Grouping::Segment, streams),
        Command::Stats(args) => stats::run(&args, streams),
        Command::Top(args) => top::run(&args, streams),
        Command::Trace(args) => trace::run(&args, streams),
        Command::Tracker(args) => tracker::run(&args, streams),
    }
}

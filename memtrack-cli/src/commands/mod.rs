//! The verbs, a file each: parse, load, one call, write. A verb takes its arguments and the process's streams and
//! returns how it ended.

mod convert;
mod top;
mod tracker;

use crate::Streams;
use crate::args::Command;
use crate::error::{CliError, Exit};

/// Runs the verb the user asked for.
pub(crate) fn dispatch(command: Command, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    match command {
        Command::Convert(args) => convert::run(&args, streams),
        Command::Top(args) => top::run(&args, streams),
        Command::Tracker(args) => tracker::run(&args, streams),
    }
}

//! `memtrack modules`: the memory of each module.

use super::optrace;
use crate::Streams;
use crate::answers;
use crate::args::{ModulesArgs, TextArgs};
use crate::error::{CliError, Exit};
use crate::report::layout;
use memtrack_core::profile::modules::{DEPTH, ModuleReport};

/// Analyses the trace and prints the memory of its modules.
pub(crate) fn run(args: &ModulesArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let source = optrace::load(&args.trace, streams)?;
    let (profile, repairs) = optrace::analyse_trace(&args.trace, &source, streams)?;
    let device = optrace::select_device(&args.trace, &profile)?;
    let mut report = ModuleReport::of(&profile, device, repairs);
    if source.recording.is_some() {
        optrace::rename_device(&mut report.device);
    }
    if args.format.json {
        answers::MODULES.print(&report.listed(args.depth.unwrap_or(u32::MAX)), streams)?;
    } else {
        let width = layout(TextArgs { frames: 0, wide: args.wide }).width;
        streams.stdout.write_all(report.to_text(args.depth.unwrap_or(DEPTH), width).as_bytes())?;
    }
    Ok(Exit::Success)
}

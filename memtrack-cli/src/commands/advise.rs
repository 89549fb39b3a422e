//! `memtrack advise`: what would lower the peak.

use super::optrace;
use crate::Streams;
use crate::answers;
use crate::args::{AdviseArgs, TextArgs};
use crate::error::{CliError, Exit};
use crate::report::layout;
use memtrack_core::profile::advice::Advice;

/// Analyses the trace and prints the findings.
pub(crate) fn run(args: &AdviseArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let read = optrace::load(&args.trace, streams)?.read;
    let (profile, repairs) = optrace::analysed(&args.trace, &read, streams)?;
    let device = optrace::device(&args.trace, &profile)?;
    let advice = Advice::of(&profile, device, repairs);
    let rows = if args.rows == 0 { usize::MAX } else { args.rows };
    if args.format.json {
        answers::ADVISE.print(&advice.answer(rows), streams)?;
    } else {
        let width = layout(TextArgs { frames: 0, wide: args.wide }).width;
        streams.stdout.write_all(advice.to_text(rows, width).as_bytes())?;
    }
    Ok(Exit::Fine)
}

//! `memtrack segments` and `memtrack memory`: the contents of the segments, by segment or by stream.

use crate::Streams;
use crate::answers::{self, MemoryAnswer, UsageRowsAnswer};
use crate::args::UsageArgs;
use crate::error::{CliError, Exit};
use crate::load::load_segments;
use crate::plot::flame;
use crate::report::{mention_inconsistencies, mention_samples, report_error};
use crate::scrub;
use memtrack_core::viz::{Grouping, Usage, memory_folded, segments_folded};

/// Loads the snapshot, then draws the segments or prints the figure's data.
pub(crate) fn run(args: &UsageArgs, grouping: Grouping, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (path, flame) = (&args.file.path, &args.flame);
    if !flame.folded && !flame.json {
        flame::check_target(&flame.output, flame.force)?;
    }
    let snapshot = load_segments(path, &args.file.input, &args.file.symbols, streams)?;
    let snapshot = scrub::scrub_pytorch(snapshot, &args.scrub, streams);
    if flame.folded {
        let folded = match grouping {
            Grouping::Segment => segments_folded(&snapshot, &mut streams.stdout),
            Grouping::Stream => memory_folded(&snapshot, &mut streams.stdout),
        };
        mention_inconsistencies(&folded.map_err(|error| report_error(path, error))?, streams);
        mention_samples(&snapshot, streams);
        return Ok(Exit::Success);
    }
    let usage = Usage::of(&snapshot, grouping);
    if flame.json {
        let rows = usage.answer();
        match grouping {
            Grouping::Segment => answers::SEGMENTS.print(&UsageRowsAnswer { rows }, streams)?,
            Grouping::Stream => {
                answers::MEMORY.print(&MemoryAnswer { rows: Some(rows), devices: None }, streams)?;
            }
        }
    } else {
        flame::write(&flame.output, &usage.title(grouping.title()), &usage.lines(""), streams)?;
    }
    mention_inconsistencies(&usage.odd, streams);
    Ok(Exit::Success)
}

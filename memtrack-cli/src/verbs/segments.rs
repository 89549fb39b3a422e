//! `memtrack segments` and `memtrack memory`: the contents of the segments, by segment or by stream.

use super::prelude::*;
use memtrack_core::viz::{Grouping, Usage, UsageAnswer, memory_folded, segments_folded};

/// Draw what each segment holds, as a flame graph, or print PyTorch's folded lines
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack segments snapshot.pickle                  writes output.svg
  memtrack segments snapshot.pickle -o fill.svg      every segment by itself
  memtrack segments snapshot.pickle --folded         PyTorch's folded lines, for other flame graph tools
  memtrack segments snapshot.pickle --json           what is drawn, as JSON

The picture shows free blocks as free, and rounding separately. The folded lines are those that PyTorch prints, with stale
sizes of free blocks and gaps that may be negative.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct SegmentsArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) flame: FlameArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

pub(super) const ANSWER: Answer<UsageRowsAnswer> = Answer::new("segments", 2);

/// The contents of the segments.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UsageRowsAnswer {
    /// The bytes for each combination of stream or segment, state, part and stack.
    pub(crate) rows: Vec<UsageAnswer>,
}

/// Draws the segments, or prints the figure's data.
pub(super) fn run(args: &SegmentsArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    draw_segments(&args.file, &args.flame, &args.scrub, Grouping::Segment, streams, |rows, streams| {
        ANSWER.print(&UsageRowsAnswer { rows }, streams)
    })
}

/// Loads the snapshot, then draws what its segments hold or prints the figure's data. `print_json` prints it as JSON.
pub(super) fn draw_segments(
    file: &FileArgs,
    flame: &FlameArgs,
    scrub: &ScrubArgs,
    grouping: Grouping,
    streams: &mut Streams<'_>,
    print_json: impl FnOnce(Vec<UsageAnswer>, &mut Streams<'_>) -> Result<(), CliError>,
) -> Result<Exit, CliError> {
    if !flame.folded && !flame.json {
        flame::check_target(&flame.output, flame.force)?;
    }
    let snapshot = load_segments(&file.path, &file.input, &file.symbols, streams)?;
    let snapshot = scrub::scrub_pytorch(snapshot, scrub, streams);
    if flame.folded {
        let folded = match grouping {
            Grouping::Segment => segments_folded(&snapshot, &mut streams.stdout),
            Grouping::Stream => memory_folded(&snapshot, &mut streams.stdout),
        };
        mention_inconsistencies(&folded.map_err(|error| report_error(&file.path, error))?, streams);
        mention_samples(&snapshot, streams);
        return Ok(Exit::Success);
    }
    let usage = Usage::of(&snapshot, grouping);
    if flame.json {
        print_json(usage.answer(), streams)?;
    } else {
        flame::write(&flame.output, &usage.title(grouping.title()), &usage.lines(""), streams)?;
    }
    mention_inconsistencies(&usage.odd, streams);
    Ok(Exit::Success)
}

//! `memtrack memory`: draws the contents of the segments as a flame graph, or with `--at` the memory live at a moment.

use super::prelude::*;
use super::segments::draw_segments;
use crate::flame::folded_text;
use memtrack_core::analysis::live_flame::{FlameDevice, LiveFlame, flame_graph};
use memtrack_core::viz::{Grouping, UsageAnswer};

/// Draw what each stream holds, or what was live at a moment, as a flame graph, or print the folded lines
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack memory snapshot.pickle                    writes output.svg: what the segments hold, by stream
  memtrack memory snapshot.pickle --folded           PyTorch's folded lines, for other flame graph tools
  memtrack memory snapshot.pickle --json             what is drawn, as JSON
  memtrack memory train.memtrack --at peak -o peak.svg
                                                     what was live at the peak, in at most 1,000 rectangles
  memtrack memory snapshot.pickle --at oom -o oom.folded
                                                     every stack that was live when memory last ran out
  memtrack memory snapshot.pickle --at end --folded | other-tool

Without --at, the picture shows free blocks as free, and rounding separately; the folded lines are those that PyTorch prints,
with stale sizes of free blocks and gaps that may be negative.
With --at, bytes are requested bytes, and frames that only pass a call on are left out. In the picture the smallest stacks
are summed up as \"… 12 more (3.4 MiB)\"; folded lines and JSON have all of them.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct MemoryArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) flame: FlameArgs,
    /// Draw what was live at a moment, by stack: peak, end, oom (the last), or an event's number in its device's trace
    #[arg(long, value_name = "MOMENT", value_parser = parse_at, allow_hyphen_values = true)]
    pub(crate) at: Option<At>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

pub(super) const ANSWER: Answer<MemoryAnswer> = Answer::new("memory", 3);

/// The contents of the segments, or with `--at` the memory live at a moment.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MemoryAnswer {
    /// The bytes for each combination of stream, state, part and stack; null with `--at`.
    pub(crate) rows: Option<Vec<UsageAnswer>>,
    /// The devices, each with the memory that was live at the moment given by `--at`; null without `--at`.
    pub(crate) devices: Option<Vec<FlameDevice>>,
}

/// Draws the segments, as PyTorch does, or the memory that was live at a moment.
pub(super) fn run(args: &MemoryArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    // These options are valid only with `--at`.
    let given = args.device.device.map(|_| "--device").or_else(|| args.rules.given());
    match (args.at, given) {
        (Some(at), _) => draw_moment(args, at, streams),
        (None, Some(option)) => Err(CliError::Usage(format!(
            "{option} needs a moment: add --at peak, end, oom or an event's number"
        ))),
        (None, None) => {
            draw_segments(&args.file, &args.flame, &args.scrub, Grouping::Stream, streams, |rows, streams| {
                ANSWER.print(&MemoryAnswer { rows: Some(rows), devices: None }, streams)
            })
        }
    }
}

/// Adds up the memory that was live at the moment, then draws or prints the sums.
fn draw_moment(args: &MemoryArgs, at: At, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let to_file = !args.flame.folded && !args.flame.json;
    let target = &args.flame.output;
    let picture = if to_file { Some(is_picture(target)?) } else { None };
    if to_file {
        check_targets([target.as_path()], args.flame.force)?;
    }
    let (context, rules) =
        Context::load(&args.file, &args.rules, args.device, Some(at), streams, |loaded, _, streams| {
            scrub::scrub_snapshot(loaded.snapshot, &args.scrub, streams)
        })?;
    let Context { snapshot, devices, moments, mut symbols, .. } = context;
    let mut flame = LiveFlame::new();
    for (device, at) in devices.into_iter().zip(moments) {
        flame.add(&snapshot, &mut symbols, device, at, &rules);
    }
    if args.device.device.is_none() {
        flame.remove_empty_devices();
    }
    let folded = || folded_text(flame.folded());
    match picture {
        Some(is_picture) => {
            let mut content = Vec::new();
            match is_picture {
                true => flame_graph(&flame, &mut content).map_err(|error| CliError::output(target, error))?,
                false => content = folded(),
            }
            mention_missing(&symbols, streams);
            write_files(&[(target.clone(), content)])?;
            mention_written(target, streams);
            return Ok(Exit::Success);
        }
        None if args.flame.json => {
            ANSWER.print(&MemoryAnswer { rows: None, devices: Some(flame.devices) }, streams)?;
        }
        None => streams.stdout.write_all(&folded())?,
    }
    mention_missing(&symbols, streams);
    Ok(Exit::Success)
}

/// Returns whether the suffix of `target` selects a picture rather than folded lines.
fn is_picture(target: &Path) -> Result<bool, CliError> {
    let suffix = target.extension().map(|suffix| suffix.to_string_lossy().to_ascii_lowercase());
    match suffix.as_deref() {
        None | Some("svg") => Ok(true),
        Some("folded") => Ok(false),
        Some(_) => Err(CliError::Usage(format!(
            "{}: unknown kind of picture; end the name in .svg, or in .folded for the lines of other tools",
            target.display()
        ))),
    }
}

//! `memtrack memory`: draws the contents of the segments as a flame graph, or with `--at` the memory live at a moment.

use super::devices::select_devices;
use super::moments::{find_moment, keep_devices_with_moment};
use super::top::mention_missing;
use super::usage;
use crate::Streams;
use crate::answers::{self, MemoryAnswer};
use crate::args::{At, MemoryArgs, UsageArgs};
use crate::error::{CliError, Exit};
use crate::load::load_file;
use crate::output::{check_targets, write_files};
use crate::ownership::read_rules;
use crate::report::mention_reordered;
use crate::scrub;
use crate::unmatched::Unmatched;
use memtrack_core::analysis::live_flame::{LiveFlame, flame_graph};
use memtrack_core::snapshot::Loaded;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_core::viz::Grouping;
use std::path::Path;

/// Draws the segments, as PyTorch does, or the memory that was live at a moment.
pub(crate) fn run(args: &MemoryArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    match (args.at, args.moment_option()) {
        (Some(at), _) => draw_moment(args, at, streams),
        (None, Some(option)) => Err(CliError::Usage(format!(
            "{option} needs a moment: add --at peak, end, oom or an event's number"
        ))),
        (None, None) => {
            let args =
                UsageArgs { file: args.file.clone(), flame: args.flame.clone(), scrub: args.scrub.clone() };
            usage::run(&args, Grouping::Stream, streams)
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
    let rules = read_rules(&args.rules)?;
    let loaded = load_file(&args.file, streams)?;
    let Loaded { mut snapshot, .. } = scrub::scrub_loaded(loaded, &args.scrub, &[], streams);
    mention_reordered(snapshot.order_by_time(), streams);
    let mut devices = select_devices(&snapshot, args.device.device)?;
    keep_devices_with_moment(&snapshot, &mut devices, Some(at));
    let mut symbols = Symbolizer::of(&snapshot);
    let mut flame = LiveFlame::new();
    for device in devices {
        let at = find_moment(&snapshot, device, at)?;
        flame.add(&snapshot, &mut symbols, device, at, &rules);
    }
    let mut unmatched = Unmatched::new(&args.rules);
    unmatched.scan(&snapshot, &mut symbols);
    unmatched.mention(streams);
    if args.device.device.is_none() {
        flame.remove_empty_devices();
    }
    let folded =
        || flame.folded().into_iter().flat_map(|line| (line + "\n").into_bytes()).collect::<Vec<u8>>();
    let content = match picture {
        Some(true) => {
            let mut svg = Vec::new();
            flame_graph(&flame, &mut svg).map_err(|error| CliError::output(target, error))?;
            svg
        }
        Some(false) => folded(),
        None if args.flame.json => {
            let devices = Some(flame.rows().devices);
            answers::MEMORY.print(&MemoryAnswer { rows: None, devices }, streams)?;
            mention_missing(&symbols, streams);
            return Ok(Exit::Success);
        }
        None => {
            streams.stdout.write_all(&folded())?;
            mention_missing(&symbols, streams);
            return Ok(Exit::Success);
        }
    };
    mention_missing(&symbols, streams);
    write_files(&[(target.clone(), content)])?;
    // Ignore a failure to print this hint, because the file is complete without it.
    let _ = writeln!(streams.stderr, "wrote {}", target.display());
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

//! `memtrack compare`: the segments that only one of two snapshots has.

use crate::Streams;
use crate::answers::{self, CompareAnswer, CompareSideAnswer, SegmentAnswer};
use crate::args::CompareArgs;
use crate::error::{CliError, Exit};
use crate::load::load_segments;
use crate::plot::flame;
use crate::report::{mention_inconsistencies, mention_samples, report_error};
use crate::scrub;
use memtrack_core::analysis::units::{counted, human_bytes};
use memtrack_core::answer::WideAnswer;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::viz::{SegmentKey, Usage, compare_folded, compare_usage, only_in};
use std::path::Path;

/// The maximum number of segments to list with their sizes, largest first.
const MAX_LISTED: usize = 20;

/// Loads both snapshots, prints the addresses of the segments that only one of them has, then draws those segments or
/// prints the figure's data.
pub(crate) fn run(args: &CompareArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let flame = &args.flame;
    if args.before == Path::new("-") && args.after == Path::new("-") {
        return Err(CliError::Usage("only one of the two can be standard input".into()));
    }
    if !flame.folded && !flame.json {
        flame::check_target(&flame.output, flame.force)?;
    }
    let mut pseudonyms = scrub::from_args(&args.scrub);
    let mut load = |path| {
        let snapshot = load_segments(path, &args.input, &args.symbols, streams)?;
        Ok::<_, CliError>(scrub::scrub_pytorch_with(snapshot, pseudonyms.as_mut()))
    };
    let (before, after) = (load(&args.before)?, load(&args.after)?);
    scrub::mention_security(&args.scrub, pseudonyms.as_ref(), streams);
    let report_error = |error| report_error(&args.before, error);
    if flame.folded {
        let odd = compare_folded(&before, &after, &mut streams.stdout).map_err(report_error)?;
        mention_inconsistencies(&odd, streams);
        mention_any_samples(&before, &after, streams);
        return Ok(Exit::Success);
    }
    let gone = only_in(&before, &after);
    let new = only_in(&after, &before);
    let [usage_gone, usage_new] = compare_usage(&before, &after);
    if flame.json {
        let side = |keys: &[SegmentKey], usage: &Usage<'_>| {
            let segment = |key: &SegmentKey| SegmentAnswer {
                address: format!("{:#x}", key.address),
                total_bytes: WideAnswer(key.total_size),
            };
            let segments = keys.iter().map(segment).collect();
            CompareSideAnswer { total_bytes: usage.bytes(), segments, usage: usage.answer() }
        };
        let (only_before, only_after) = (side(&gone, &usage_gone), side(&new, &usage_new));
        answers::COMPARE.print(&CompareAnswer { only_before, only_after }, streams)?;
    } else {
        for (name, keys) in [("only_before", &gone), ("only_after", &new)] {
            let addresses: Vec<_> = keys.iter().map(|key| key.address.to_string()).collect();
            writeln!(streams.stdout, "{name} = [{}]", addresses.join(", "))?;
        }
        for (title, keys, usage) in [("Only before", &gone, &usage_gone), ("Only after", &new, &usage_new)] {
            print_sizes(title, keys, usage, streams)?;
        }
        let lines = [usage_gone.lines("only_before;"), usage_new.lines("only_after;")].concat();
        let title = format!(
            "Segments that are only before ({}) or only after ({})",
            usage_gone.format_with_error(usage_gone.bytes()),
            usage_new.format_with_error(usage_new.bytes())
        );
        flame::write(&flame.output, &title, &lines, streams)?;
        mention_any_samples(&before, &after, streams);
    }
    for usage in [&usage_gone, &usage_new] {
        mention_inconsistencies(&usage.odd, streams);
    }
    Ok(Exit::Success)
}

/// Warns that sizes are estimates from samples, and does so only once if both files were sampled.
fn mention_any_samples(before: &Snapshot, after: &Snapshot, streams: &mut Streams<'_>) {
    if let Some(sampled) = [before, after].into_iter().find(|snapshot| snapshot.has_samples()) {
        mention_samples(sampled, streams);
    }
}

/// Prints the total size of the segments, followed by the largest of them.
fn print_sizes(
    title: &str,
    keys: &[SegmentKey],
    usage: &Usage<'_>,
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    let size = |key: &SegmentKey| u64::try_from(key.total_size).unwrap_or(0);
    let total = keys.iter().fold(0u64, |sum, key| sum.saturating_add(size(key)));
    let count = counted(keys.len() as u64, "segment");
    writeln!(streams.stdout, "\n{title}: {count}, {}", usage.format_with_error(total))?;
    let mut largest: Vec<&SegmentKey> = keys.iter().collect();
    largest.sort_by_key(|key| std::cmp::Reverse(size(key)));
    for key in largest.iter().take(MAX_LISTED) {
        let address = format!("{:#x}", key.address);
        writeln!(streams.stdout, "  {address:<18} {:>10}", human_bytes(size(key)))?;
    }
    if let Some(rest) = largest.get(MAX_LISTED..).filter(|rest| !rest.is_empty()) {
        let bytes = rest.iter().fold(0u64, |sum, key| sum.saturating_add(size(key)));
        writeln!(streams.stdout, "  … and {} more, {}", rest.len(), human_bytes(bytes))?;
    }
    Ok(())
}

//! `memtrack compare`: the segments that only one of two snapshots has.

use super::diff::check_inputs;
use super::prelude::*;
use memtrack_core::analysis::units::{counted, human_bytes};
use memtrack_core::answer::WideAnswer;
use memtrack_core::viz::{SegmentKey, Usage, UsageAnswer, compare_folded, compare_usage, only_in};

/// Show which segments two snapshots do not share, in PyTorch's text format; `diff` shows what grew and why
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack compare before.pickle after.pickle            the addresses, and output.svg
  memtrack compare before.pickle after.pickle --folded   the addresses and PyTorch's folded lines
  memtrack compare before.pickle after.pickle --json     both as JSON

Segments are identified by address and size: an expandable segment that grew counts as removed and added. The contents of
segments that both snapshots have are not compared. `memtrack diff` shows what grew and which lines made it grow.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct CompareArgs {
    /// The earlier recording or PyTorch snapshot; `-` reads standard input
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// The later recording or PyTorch snapshot
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) flame: FlameArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

pub(super) const ANSWER: Answer<CompareAnswer> = Answer::new("compare", 2);

/// The segments that two snapshots do not share.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompareAnswer {
    /// The segments that only the earlier snapshot has.
    pub(crate) only_before: CompareSideAnswer,
    /// The segments that only the later snapshot has.
    pub(crate) only_after: CompareSideAnswer,
}

/// Segments that only one snapshot has.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompareSideAnswer {
    /// The total number of bytes in the blocks of these segments.
    pub(crate) total_bytes: u64,
    /// The segments, each with its address and size.
    pub(crate) segments: Vec<SegmentAnswer>,
    /// The bytes in these segments by state, part and stack.
    pub(crate) usage: Vec<UsageAnswer>,
}

/// A segment of an allocator's memory.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SegmentAnswer {
    /// The segment's address, as `0x…`.
    pub(crate) address: String,
    /// The segment's size in bytes.
    pub(crate) total_bytes: WideAnswer,
}

/// The maximum number of segments to list with their sizes, largest first.
const MAX_LISTED: usize = 20;

/// Loads both snapshots, prints the addresses of the segments that only one of them has, then draws those segments or
/// prints the figure's data.
pub(super) fn run(args: &CompareArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let flame = &args.flame;
    check_inputs(&args.before, &args.after)?;
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
        ANSWER.print(&CompareAnswer { only_before, only_after }, streams)?;
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

//! `memtrack check`: a gate for CI. `memtrack_core::analysis::check` compares the numbers with the limits; this module reads the
//! files and prints the verdict.

use super::diff::{ReduceOptions, check_common, check_inputs};
use crate::Streams;
use crate::answers;
use crate::args::{CheckArgs, InputArgs, RulesArgs};
use crate::error::{CliError, Exit};
use crate::load::{convert_to_pytorch, load_with};
use crate::ownership::read_rules;
use crate::report::mention_reordered;
use memtrack_core::analysis::check::{Limits, Measurements, Verdict};
use memtrack_core::analysis::diff::{Diff, DiffAt, DiffBy, PeakComparison, Side};
use memtrack_core::analysis::ownership::Rules;
use memtrack_core::snapshot::Loaded;
use std::path::Path;

/// Loads the snapshot, compares it with the limits, and prints which limits it exceeds.
pub(crate) fn run(args: &CheckArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let rules = read_rules(&RulesArgs::default())?;
    if let Some(base) = &args.against {
        check_inputs(base, &args.file.path)?;
    }
    let loaded = load_with(&args.file.path, &args.file.input, &args.file.symbols, streams)?;
    let Loaded { mut snapshot, report, .. } = loaded;
    mention_reordered(snapshot.order_by_time(), streams);
    // In the baseline, read the process with the same command line as the one read from the file.
    let input = args.file.input.matching(report.as_ref());
    let base =
        args.against.as_deref().map(|base| read_base(base, args, &input, &rules, streams)).transpose()?;
    let against = match (&base, args.against.as_deref()) {
        (Some(base), Some(path)) => {
            let (now, _) =
                reduce_options(Some(base.by), &rules).reduce(&args.file.path, &snapshot, streams)?;
            let diff = Diff::of(base, &now, usize::MAX);
            check_common(&diff, [path, &args.file.path], [base, &now])?;
            Some(PeakComparison::of(&diff, args.tolerance))
        }
        _ => None,
    };
    let snapshot = convert_to_pytorch(snapshot);
    let limits = Limits::new().peak(args.max_peak).leak(args.max_leak).fragmentation(args.max_fragmentation);
    let found = Measurements::of(&snapshot);
    let (mut exceeded, mut cannot_tell) = (found.exceeded(&limits), found.cannot_tell(&limits));
    if let Some(against) = &against {
        exceeded.extend(against.lines(Verdict::Exceeded));
        cannot_tell.extend(against.lines(Verdict::CannotTell));
    }
    let within = exceeded.is_empty() && cannot_tell.is_empty();
    if let Some(why) = found.unchecked_reason(&limits).filter(|_| within) {
        return Err(CliError::Io(format!("cannot check {}: {why}", args.file.path.display())));
    }
    for caveat in found.caveats(&limits) {
        // Ignore a failure to print this hint, because the verdict is complete without it.
        let _ = writeln!(streams.stderr, "memtrack: warning: {caveat}");
    }
    if args.format.json {
        let mut answer = found.answer(&limits);
        answer.exceeded = exceeded;
        answer.cannot_tell = cannot_tell;
        answer.against = against.as_ref().map(PeakComparison::answer);
        answers::CHECK.print(&answer, streams)?;
    } else if within {
        let against = against.map_or(String::new(), |against| format!("; {}", against.to_text()));
        writeln!(streams.stdout, "within the limits: {}{against}", found.to_text())?;
    } else {
        let exceeded = exceeded.iter().map(|line| ("exceeded", line));
        for (verdict, line) in exceeded.chain(cannot_tell.iter().map(|line| ("uncertain", line))) {
            writeln!(streams.stdout, "{verdict}: {line}")?;
        }
    }
    // The check also fails if an estimate may exceed a limit, because the gate exists to enforce limits.
    Ok(if within { Exit::Success } else { Exit::Finding })
}

/// Reads the baseline file, and adds up its memory in groups.
fn read_base(
    path: &Path,
    args: &CheckArgs,
    input: &InputArgs,
    rules: &Rules,
    streams: &mut Streams<'_>,
) -> Result<Side, CliError> {
    let mut snapshot = load_with(path, input, &args.file.symbols, streams)?.snapshot;
    mention_reordered(snapshot.order_by_time(), streams);
    Ok(reduce_options(None, rules).reduce(path, &snapshot, streams)?.0)
}

/// Returns options that add up a file's memory at its peak, grouped by `by`. If `by` is `None`, files with lines are grouped by
/// line.
fn reduce_options(by: Option<DiffBy>, rules: &Rules) -> ReduceOptions<'_> {
    ReduceOptions { by, at: DiffAt::Peak, device: None, symbols: &[], rules, stacks: false }
}

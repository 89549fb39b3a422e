//! `memtrack check`: a gate for CI. `memtrack_core::analysis::check` compares the numbers with the limits; this module reads the
//! files and prints the verdict.

use super::diff::{ReduceOptions, check_common, check_inputs};
use super::prelude::*;
use memtrack_core::analysis::check::{FoundAnswer, Limits, Measurements};
use memtrack_core::analysis::diff::{Diff, DiffAt, PeakComparison};

/// Fail if a recording or snapshot exceeds limits for its peak, leaks or fragmentation: for CI
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack check snapshot.pickle --max-peak 10GiB               fails if more was ever live
  memtrack check run.memtrack --max-leak 0                      … if anything allocated is still live at the end
  memtrack check snapshot.pickle --max-fragmentation 25%        … if more is free in split segments
  memtrack check new.pickle --against good.pickle               … if a device's peak grew by more than 5 %
  memtrack check new.pickle --against good.pickle --tolerance 0 … if it grew at all

Of several devices, the worst one counts. Peak: the most requested bytes that were live at once. Leak: requested bytes that
were allocated within the trace and are live at its end. Fragmentation: free bytes in split segments as a share of
reserved bytes. Against another file: the most requested bytes that were live at once, on each device; the lines that grew
most are named, as by `memtrack diff`.
Where small blocks of a heap were sampled, numbers are known within a 95 % interval: a limit is kept if the whole
interval lies below it, and exceeded if the whole interval lies above it. Otherwise the result is uncertain, and the
exit code is 1 too. Options::exact() records every block.
A file without events or memory (for a leak: without events) passes no limit: exit code 3.
Exit codes: 0 within the limits, 1 beyond one, or uncertain, 2 wrong usage, 3 unreadable input or unwritable output.")]
#[command(group = clap::ArgGroup::new("limits").required(true).multiple(true))]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// The most requested bytes that may be live at once, such as 10GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, group = "limits", allow_hyphen_values = true)]
    pub(crate) max_peak: Option<u64>,
    /// Requested bytes that may be allocated within the trace and live at its end
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, group = "limits", allow_hyphen_values = true)]
    pub(crate) max_leak: Option<u64>,
    /// Free bytes in split segments ÷ reserved bytes: 0 to 1, or a percentage such as 25%
    #[arg(long, value_name = "SHARE", value_parser = parse_share, group = "limits", allow_hyphen_values = true)]
    pub(crate) max_fragmentation: Option<f64>,
    /// A recording or snapshot to compare the peaks with; `-` reads standard input
    #[arg(long, value_name = "BASE", group = "limits")]
    pub(crate) against: Option<PathBuf>,
    /// How much a device's peak may exceed its peak in BASE: 0 to 1, or a percentage
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "5%", requires = "against", allow_hyphen_values = true)]
    pub(crate) tolerance: f64,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(super) const ANSWER: Answer<FoundAnswer> = Answer::new("check", 3);

/// Loads the snapshot, compares it with the limits, and prints which limits it exceeds.
pub(super) fn run(args: &CheckArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let rules = read_rules(&RulesArgs::default())?;
    if let Some(base) = &args.against {
        check_inputs(base, &args.file.path)?;
    }
    let (file, symbols) = (&args.file, &args.file.symbols);
    let (mut context, report) = Context::read(&file.path, &file.input, symbols, None, streams)?;
    let against = match args.against.as_deref() {
        None => None,
        Some(path) => {
            // In the baseline, read the process with the same command line as the one read from the file.
            let input = file.input.matching(report.as_ref());
            let mut options = ReduceOptions { by: None, at: DiffAt::Peak, rules: &rules, stacks: false };
            let (base, _) = {
                let (mut base, _) = Context::read(path, &input, symbols, None, streams)?;
                options.reduce(path, &mut base, streams)?
            };
            options.by = Some(base.by);
            let (now, _) = options.reduce(&file.path, &mut context, streams)?;
            let diff = Diff::of(&base, &now, usize::MAX);
            check_common(&diff, [path, &file.path], [&base, &now])?;
            Some(PeakComparison::of(&diff, args.tolerance))
        }
    };
    let limits = Limits::new().peak(args.max_peak).leak(args.max_leak).fragmentation(args.max_fragmentation);
    let found = Measurements::of(&context.snapshot);
    let (mut exceeded, mut cannot_tell) = (found.exceeded(&limits), found.cannot_tell(&limits));
    if let Some(against) = &against {
        exceeded.extend_from_slice(&against.exceeded);
        cannot_tell.extend_from_slice(&against.cannot_tell);
    }
    let within = exceeded.is_empty() && cannot_tell.is_empty();
    if let Some(why) = found.unchecked_reason(&limits).filter(|_| within) {
        return Err(CliError::Io(format!("cannot check {}: {why}", args.file.path.display())));
    }
    for caveat in found.caveats(&limits) {
        streams.note(format_args!("memtrack: warning: {caveat}"));
    }
    if args.format.json {
        let mut answer = found.answer(&limits);
        answer.exceeded = exceeded;
        answer.cannot_tell = cannot_tell;
        answer.against = against;
        ANSWER.print(&answer, streams)?;
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

//! `memtrack advise`: suggestions that would lower the peak.

use super::prelude::*;
use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::top::{By, TopOptions, TopReport, top_with};
use memtrack_core::profile::advice::Advice;

/// Find what would lower the peak, and by how much: memory obtained early, freed late, idle, or worth recomputing
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack advise run.optrace.jsonl.gz                      what would lower the peak most, as sentences
  memtrack advise run.optrace.jsonl.gz -n 3                 three findings
  memtrack advise run.optrace.jsonl.gz --json               all numbers, as JSON

Finds memory that is live at the peak and not used around it: obtained early, freed late, idle, or activations that could be
recomputed. Each number is how much lower the device's peak would be, wherever the new peak is: memtrack computes the peak again
without that memory.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    pub(crate) trace: OptraceArgs,
    /// How many findings to show; 0 shows all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = parse_count, allow_hyphen_values = true)]
    pub(crate) rows: usize,
    /// Do not wrap lines
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(super) const ANSWER: Answer<Advice> = Answer::new("advise", 2);

/// Analyses the trace and prints the findings.
pub(super) fn run(args: &AdviseArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let source = optrace::load(&args.trace, streams)?;
    let (profile, repairs) = optrace::analyse_trace(&args.trace, &source, streams)?;
    let device = optrace::select_device(&args.trace, &profile)?;
    let mut advice = Advice::of(&profile, device, repairs);
    if let Some(recording) = &source.recording {
        optrace::rename_device(&mut advice.device);
        if let Some(at_peak) = lines_at_peak(recording, &advice.device.name) {
            advice = advice.with_largest(&at_peak);
        }
    }
    let rows = if args.rows == 0 { usize::MAX } else { args.rows };
    if args.format.json {
        ANSWER.print(&advice.listed(rows), streams)?;
    } else {
        let width = width(args.wide);
        streams.stdout.write_all(advice.to_text(rows, width).as_bytes())?;
    }
    Ok(Exit::Success)
}

/// Returns the memory that each line of the user's code holds at the peak of the device named `device` in reports, or
/// `None` if no such line is known.
fn lines_at_peak(recording: &Snapshot, device: &str) -> Option<TopReport> {
    let device = recording.device_ids().into_iter().find(|&id| recording.device_name(id) == device)?;
    let options = TopOptions::new().limit(Advice::MAX_LARGEST).at(Moment::Peak);
    let report = top_with(recording, &mut Symbolizer::of(recording), By::Line, device, &options);
    report.rows.iter().any(|row| row.owned.mine.is_some()).then_some(report)
}

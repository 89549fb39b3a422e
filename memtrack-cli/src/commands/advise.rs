//! `memtrack advise`: suggestions that would lower the peak.

use super::optrace;
use crate::Streams;
use crate::answers;
use crate::args::{AdviseArgs, TextArgs};
use crate::error::{CliError, Exit};
use crate::report::layout;
use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::top::{By, TopOptions, TopReport, top_with};
use memtrack_core::profile::advice::Advice;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;

/// Analyses the trace and prints the findings.
pub(crate) fn run(args: &AdviseArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
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
        answers::ADVISE.print(&advice.listed(rows), streams)?;
    } else {
        let width = layout(TextArgs { frames: 0, wide: args.wide }).width;
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

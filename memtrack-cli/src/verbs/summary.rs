//! `memtrack summary`: one page about a snapshot.

use super::prelude::*;
use memtrack_core::analysis::holds::{HeldAt, HoldsQuery, WhoHolds};
use memtrack_core::analysis::layout::Layout;
use memtrack_core::analysis::ownership::Rules;
use memtrack_core::analysis::process_memory::ProcessMemory;
use memtrack_core::analysis::summary::{DeviceSummary, DeviceSummaryAnswer, summary_with};
use memtrack_core::event::Action;

/// Summarise each device, including the host heap: what it holds, its peak, and what to look at first
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack summary snapshot.pickle           what each device holds, its peak, and what to look at first
  memtrack summary run.memtrack --json       the numbers as JSON

Bytes at the end are those of blocks, rounded up by the allocator; the peak, and what was live then, are requested bytes,
which is what events contain.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct SummaryArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) ownership: OwnershipArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(super) const ANSWER: Answer<SummaryAnswer> = Answer::new("summary", 3);

/// The memory of each device.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SummaryAnswer {
    /// The host memory of the process as a whole; null if the file has none.
    pub(crate) process: Option<ProcessMemory>,
    /// The devices.
    pub(crate) devices: Vec<DeviceSummaryAnswer>,
    /// What held the memory, if the recording was cut off or the program ran out of memory; null otherwise.
    pub(crate) who_holds: Option<WhoHolds>,
}

/// Returns what held the memory, if the recording was cut off or memory ran out during it.
fn who_holds(loaded: &Loaded, rules: &Rules) -> Option<WhoHolds> {
    let snapshot = &loaded.snapshot;
    let is_cut = !loaded.report.as_ref()?.complete;
    if !is_cut && !snapshot.events.action.contains(&Action::Oom) {
        return None;
    }
    let mut query = HoldsQuery::for_ended_run(snapshot, is_cut).rules(rules.clone());
    if is_cut {
        // The summary describes the recording's cut-off, because the file does not record how the program ended.
        query.at = HeldAt::Cut;
    }
    WhoHolds::of_all(snapshot, &mut Symbolizer::of(snapshot), &query)
}

/// Loads the snapshot and prints a summary for each device.
pub(super) fn run(args: &SummaryArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let mut held = None;
    let (context, rules) =
        Context::load(&args.file, &args.ownership.rules, args.device, None, streams, |loaded, rules, _| {
            held = who_holds(&loaded, rules);
            loaded.snapshot
        })?;
    let Context { snapshot, devices, mut symbols, .. } = context;
    let process = ProcessMemory::of(&snapshot);
    let ordinals: Vec<u16> = devices.into_iter().map(|device| snapshot.ordinal(device)).collect();
    let mut devices = summary_with(&snapshot, &mut symbols, &rules);
    devices.retain(|device| ordinals.contains(&device.device));
    if args.format.json {
        let answer = |device: &DeviceSummary| {
            let mut answer = device.answer();
            answer.explained = args.ownership.explain_rows(&rules, &device.peak.live.rows);
            answer
        };
        let devices = devices.iter().map(answer).collect();
        ANSWER.print(&SummaryAnswer { process, devices, who_holds: held }, streams)?;
        return Ok(Exit::Success);
    }
    if let Some(held) = held.filter(|_| args.device.device.is_none()) {
        writeln!(streams.stdout, "{held}")?;
    }
    if let Some(line) = process.as_ref().and_then(ProcessMemory::to_line) {
        writeln!(streams.stdout, "Process: {line}\n")?;
    }
    print_devices(&devices, streams)?;
    for device in &devices {
        args.ownership.print_explained(&rules, &device.peak.live.rows, Layout::default(), streams)?;
    }
    Ok(Exit::Success)
}

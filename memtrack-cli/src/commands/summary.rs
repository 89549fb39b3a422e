//! `memtrack summary`: one page about a snapshot.

use super::devices::select_devices;
use crate::Streams;
use crate::answers::{self, SummaryAnswer};
use crate::args::SummaryArgs;
use crate::error::{CliError, Exit};
use crate::load::{convert_to_pytorch, load_file};
use crate::ownership::{explain_rows, print_explained, read_rules};
use crate::report::{mention_reordered, print_devices};
use crate::unmatched::Unmatched;
use memtrack_core::analysis::holds::{HeldAt, HoldsQuery, WhoHolds};
use memtrack_core::analysis::layout::Layout;
use memtrack_core::analysis::ownership::Rules;
use memtrack_core::analysis::process_memory::ProcessMemory;
use memtrack_core::analysis::summary::{DeviceSummary, summary_with};
use memtrack_core::event::Action;
use memtrack_core::snapshot::Loaded;
use memtrack_core::stack::symbols::Symbolizer;

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
pub(crate) fn run(args: &SummaryArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let rules = read_rules(&args.ownership.rules)?;
    let loaded = load_file(&args.file, streams)?;
    let held = who_holds(&loaded, &rules);
    let mut snapshot = convert_to_pytorch(loaded.snapshot);
    mention_reordered(snapshot.order_by_time(), streams);
    let process = ProcessMemory::of(&snapshot);
    let ordinals: Vec<u16> = select_devices(&snapshot, args.device.device)?
        .into_iter()
        .map(|device| snapshot.ordinal(device))
        .collect();
    let mut symbols = Symbolizer::of(&snapshot);
    let mut unmatched = Unmatched::new(&args.ownership.rules);
    unmatched.scan(&snapshot, &mut symbols);
    unmatched.mention(streams);
    let mut devices = summary_with(&snapshot, &mut symbols, &rules);
    devices.retain(|device| ordinals.contains(&device.device));
    if args.format.json {
        let answer = |device: &DeviceSummary| {
            let mut answer = device.answer();
            let explained = || explain_rows(&rules, &device.peak.live.rows);
            answer.explained = args.ownership.explain.then(explained);
            answer
        };
        let devices = devices.iter().map(answer).collect();
        let process = process.as_ref().map(ProcessMemory::answer);
        answers::SUMMARY.print(&SummaryAnswer { process, devices, who_holds: held }, streams)?;
        return Ok(Exit::Success);
    }
    if let Some(held) = held.filter(|_| args.device.device.is_none()) {
        writeln!(streams.stdout, "{held}")?;
    }
    if let Some(line) = process.as_ref().and_then(ProcessMemory::to_line) {
        writeln!(streams.stdout, "Process: {line}\n")?;
    }
    print_devices(&devices, streams)?;
    if args.ownership.explain {
        for device in &devices {
            print_explained(&rules, &device.peak.live.rows, Layout::default(), streams)?;
        }
    }
    Ok(Exit::Success)
}

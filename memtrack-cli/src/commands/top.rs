//! `memtrack top`: the code that allocated the most memory.

use super::devices::select_devices;
use super::moments::{find_moment, keep_devices_with_moment};
use crate::Streams;
use crate::answers::{self, TopAnswer};
use crate::args::RankArgs;
use crate::error::{CliError, Exit};
use crate::load::load_file;
use crate::ownership::{explain_rows, print_explained, read_rules};
use crate::report::{layout, mention_reordered};
use crate::unmatched::Unmatched;
use memtrack_core::analysis::framework_operators::Patterns;
use memtrack_core::analysis::process_memory::ProcessMemory;
use memtrack_core::analysis::top::{By, TopOptions, TopReport, top_with};
use memtrack_core::analysis::units::printable;
use memtrack_core::snapshot::Loaded;
use memtrack_core::stack::symbols::Symbolizer;

/// Loads the recording and prints a ranking for each requested device.
pub(crate) fn run(args: &RankArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let rules = read_rules(&args.ownership.rules)?;
    let Loaded { mut snapshot, report, .. } = load_file(&args.file, streams)?;
    mention_reordered(snapshot.order_by_time(), streams);
    let complete = report.is_none_or(|report| report.complete);
    let mut devices = select_devices(&snapshot, args.device.device)?;
    keep_devices_with_moment(&snapshot, &mut devices, args.at);
    let patterns = args.patterns.iter().fold(Patterns::default(), |patterns, glob| patterns.with(glob));
    let options = TopOptions::new().limit(args.rows.limit()).patterns(patterns).rules(rules.clone());
    // When every frame is shown, stacks that differ in any frame get separate rows.
    let mut options = options.fold_hidden(args.text.frames > 0);
    let mut symbols = Symbolizer::of(&snapshot);
    let by = args.by.unwrap_or_else(|| By::default_for(&snapshot, &mut symbols, &options));
    let mut reports: Vec<TopReport> = Vec::new();
    for device in devices {
        options.at = args.at.map(|at| find_moment(&snapshot, device, at)).transpose()?;
        reports.push(top_with(&snapshot, &mut symbols, by, device, &options));
    }
    let mut unmatched = Unmatched::new(&args.ownership.rules);
    unmatched.scan(&snapshot, &mut symbols);
    unmatched.mention(streams);
    if args.format.json {
        for report in reports.iter_mut().filter(|_| args.ownership.explain) {
            report.explained = Some(explain_rows(&rules, &report.rows));
        }
        answers::TOP.print(&TopAnswer { complete, devices: reports }, streams)?;
    } else {
        if reports.is_empty() {
            writeln!(streams.stdout, "The recording holds no events.")?;
        }
        for (place, report) in reports.iter().enumerate() {
            let between = if place > 0 { "\n" } else { "" };
            write!(streams.stdout, "{between}{}", report.to_text(layout(args.text)))?;
            if args.ownership.explain {
                print_explained(&rules, &report.rows, layout(args.text), streams)?;
            }
        }
        let process = ProcessMemory::of(&snapshot).filter(|_| args.device.device.is_none());
        if let Some(line) = process.as_ref().and_then(ProcessMemory::to_line) {
            writeln!(streams.stdout, "\nProcess: {line}")?;
        }
        mention_missing(&symbols, streams);
    }
    Ok(Exit::Success)
}

/// Reports the missing binaries without which frames cannot be named.
pub(super) fn mention_missing(symbols: &Symbolizer, streams: &mut Streams<'_>) {
    // Modules without a file, such as the vDSO, cannot be found anywhere.
    for module in symbols.missing().filter(|module| module.path.starts_with('/')) {
        let id = if module.build_id.is_empty() { "none" } else { &module.build_id };
        let _ = writeln!(
            streams.stderr,
            "memtrack: no names from {} (build id {id}): moved or rebuilt; point --symbols to a folder that has it",
            printable(&module.path)
        );
    }
}

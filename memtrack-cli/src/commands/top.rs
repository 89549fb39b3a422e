//! `memtrack top`: who made the memory of a recording.

use crate::Streams;
use crate::args::{RankArgs, RankBy};
use crate::error::{CliError, Exit};
use crate::load::load;
use crate::report::terminal_width;
use memtrack_core::analysis::patterns::Patterns;
use memtrack_core::analysis::top::{By, TopOptions, TopReport, top_with};
use memtrack_core::analysis::units::printable;
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::{Loaded, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use std::io;

/// Loads the recording, ranks each device that was asked for, prints the rankings.
pub(crate) fn run(args: &RankArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    if let Some(missing) = args.symbols.iter().find(|folder| !folder.is_dir()) {
        return Err(CliError::Usage(format!("--symbols {}: there is no such folder", missing.display())));
    }
    let Loaded { snapshot, report, .. } = load(&args.file, args.input, streams)?;
    let complete = report.is_none_or(|report| report.complete);
    let devices = devices(&snapshot, args.device)?;
    let by = match args.by {
        None => By::suited_to(&snapshot),
        Some(RankBy::Operator) => By::Operator,
        Some(RankBy::Module) => By::Module,
        Some(RankBy::Stack) => By::Stack,
        Some(RankBy::Phase) => By::Phase,
    };
    let patterns = args.patterns.iter().fold(Patterns::default(), |patterns, glob| patterns.with(glob));
    let options = TopOptions { limit: args.rows, patterns };
    let symbols = Symbolizer::of(&snapshot);
    let mut symbols = args.symbols.iter().fold(symbols, |symbols, folder| symbols.with_folder(folder));
    let reports: Vec<TopReport> =
        devices.into_iter().map(|device| top_with(&snapshot, &mut symbols, by, device, &options)).collect();
    if args.format.json {
        let devices: Vec<_> = reports.iter().map(TopReport::to_json).collect();
        let value = serde_json::json!({ "complete": complete, "devices": devices });
        serde_json::to_writer_pretty(&mut *streams.stdout, &value).map_err(io::Error::from)?;
        writeln!(streams.stdout)?;
    } else {
        if reports.is_empty() {
            writeln!(streams.stdout, "The recording holds no events.")?;
        }
        for (place, report) in reports.iter().enumerate() {
            let between = if place > 0 { "\n" } else { "" };
            write!(streams.stdout, "{between}{}", report.to_text(terminal_width()))?;
        }
        mention_missing(&symbols, streams);
    }
    Ok(Exit::Fine)
}

/// The devices to report on: the one asked for, or all that the snapshot has.
fn devices(snapshot: &Snapshot, asked: Option<u16>) -> Result<Vec<DeviceId>, CliError> {
    let Some(ordinal) = asked else { return Ok(snapshot.device_ids()) };
    snapshot.device_at(ordinal).map(|device| vec![device]).ok_or_else(|| {
        let there: Vec<_> =
            snapshot.device_ids().iter().map(|&device| snapshot.ordinal(device).to_string()).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        CliError::Usage(format!("the recording has no device {ordinal}; it has: {there}"))
    })
}

/// Says which binaries would have named the frames that have no names.
fn mention_missing(symbols: &Symbolizer, streams: &mut Streams<'_>) {
    // The loader's own inventions (the vdso) are no files that could be found.
    for module in symbols.missing().filter(|module| module.path.starts_with('/')) {
        let id = if module.build_id.is_empty() { "none" } else { &module.build_id };
        let _ = writeln!(
            streams.stderr,
            "memtrack: no names from {} (build id {id}): moved or rebuilt; point --symbols to a folder that has it",
            printable(&module.path)
        );
    }
}

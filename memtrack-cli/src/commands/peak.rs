//! `memtrack peak`: all memory that was live at the peak.

use super::devices::select_devices;
use crate::Streams;
use crate::answers::{self, PeakAnswer};
use crate::args::{PeakArgs, PeakOf};
use crate::error::{CliError, Exit};
use crate::load::{convert_to_pytorch, load_file};
use crate::ownership::{explain_rows, print_explained, read_rules};
use crate::report::{layout, mention_reordered, print_devices};
use crate::unmatched::Unmatched;
use memtrack_core::analysis::at_peak::{self, AtPeak};
use memtrack_core::analysis::top::TopOptions;
use memtrack_core::stack::symbols::Symbolizer;

/// Loads the snapshot and prints the memory that was live at each device's peak.
pub(crate) fn run(args: &PeakArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let rules = read_rules(&args.ownership.rules)?;
    let mut snapshot = convert_to_pytorch(load_file(&args.file, streams)?.snapshot);
    mention_reordered(snapshot.order_by_time(), streams);
    let of = match args.of {
        PeakOf::Requested => at_peak::PeakKind::Requested,
        PeakOf::Reserved => at_peak::PeakKind::Reserved,
    };
    let mut symbols = Symbolizer::of(&snapshot);
    let mut unmatched = Unmatched::new(&args.ownership.rules);
    unmatched.scan(&snapshot, &mut symbols);
    unmatched.mention(streams);
    let options = TopOptions::new().limit(args.rows.limit()).rules(rules.clone());
    // When every frame is shown, stacks that differ in any frame get separate rows.
    let options = options.fold_hidden(args.text.frames > 0);
    let find = |device| AtPeak::find_with(&snapshot, &mut symbols, device, of, &options);
    let mut devices: Vec<AtPeak> =
        select_devices(&snapshot, args.device.device)?.into_iter().map(find).collect();
    if args.device.device.is_none() && !devices.iter().all(AtPeak::is_empty) {
        devices.retain(|device| !device.is_empty());
    }
    if args.format.json {
        for live in devices.iter_mut().map(|device| &mut device.live).filter(|_| args.ownership.explain) {
            live.explained = Some(explain_rows(&rules, &live.rows));
        }
        answers::PEAK.print(&PeakAnswer { devices }, streams)?;
        return Ok(Exit::Success);
    }
    let texts: Vec<String> = devices.iter().map(|device| device.to_text(layout(args.text))).collect();
    print_devices(&texts, streams)?;
    if args.ownership.explain {
        for device in &devices {
            print_explained(&rules, &device.live.rows, layout(args.text), streams)?;
        }
    }
    Ok(Exit::Success)
}

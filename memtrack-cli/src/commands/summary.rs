//! `memtrack summary`: one page about a snapshot.

use super::devices::chosen;
use crate::Streams;
use crate::args::SummaryArgs;
use crate::error::{CliError, Exit};
use crate::load::load_pytorch;
use crate::report::{mention_reordered, print_devices, print_json};
use memtrack_core::analysis::summary::{DeviceSummary, summary};
use memtrack_core::stack::symbols::Symbolizer;

/// Loads the snapshot, prints what each device comes to.
pub(crate) fn run(args: &SummaryArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let mut snapshot = load_pytorch(&args.file.path, args.file.input, streams)?;
    mention_reordered(snapshot.order_by_time(), streams);
    let chosen: Vec<u16> =
        chosen(&snapshot, args.device.device)?.into_iter().map(|device| snapshot.ordinal(device)).collect();
    let mut devices = summary(&snapshot, &mut Symbolizer::of(&snapshot));
    devices.retain(|device| chosen.contains(&device.device));
    if args.format.json {
        let devices: Vec<_> = devices.iter().map(DeviceSummary::to_json).collect();
        print_json(&serde_json::json!({ "devices": devices }), streams)?;
        return Ok(Exit::Fine);
    }
    print_devices(&devices, streams)?;
    Ok(Exit::Fine)
}

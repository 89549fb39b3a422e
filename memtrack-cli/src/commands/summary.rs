//! `memtrack summary`: one page about a snapshot.

use super::devices::chosen;
use crate::Streams;
use crate::args::SummaryArgs;
use crate::error::{CliError, Exit};
use crate::load::load_pytorch;
use crate::ownership::{explained_json, print_explained, rules};
use crate::report::{mention_reordered, print_devices, print_json};
use memtrack_core::analysis::layout::Layout;
use memtrack_core::analysis::summary::{DeviceSummary, summary_with};
use memtrack_core::stack::symbols::Symbolizer;

/// Loads the snapshot, prints what each device comes to.
pub(crate) fn run(args: &SummaryArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let rules = rules(&args.ownership.rules)?;
    let mut snapshot = load_pytorch(&args.file.path, args.file.input, streams)?;
    mention_reordered(snapshot.order_by_time(), streams);
    let chosen: Vec<u16> =
        chosen(&snapshot, args.device.device)?.into_iter().map(|device| snapshot.ordinal(device)).collect();
    let mut devices = summary_with(&snapshot, &mut Symbolizer::of(&snapshot), &rules);
    devices.retain(|device| chosen.contains(&device.device));
    if args.format.json {
        let json = |device: &DeviceSummary| {
            let mut value = device.to_json();
            if args.ownership.explain {
                value["explained"] = explained_json(&rules, &device.peak.live.rows);
            }
            value
        };
        let devices: Vec<_> = devices.iter().map(json).collect();
        print_json(&serde_json::json!({ "devices": devices }), streams)?;
        return Ok(Exit::Fine);
    }
    print_devices(&devices, streams)?;
    if args.ownership.explain {
        for device in &devices {
            print_explained(&rules, &device.peak.live.rows, Layout::default(), streams)?;
        }
    }
    Ok(Exit::Fine)
}

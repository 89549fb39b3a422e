//! `memtrack peak`: everything that was live at the peak.

use super::devices::chosen;
use crate::Streams;
use crate::args::{PeakArgs, PeakOf};
use crate::error::{CliError, Exit};
use crate::load::load_pytorch;
use crate::ownership::{explained_json, print_explained, rules};
use crate::report::{layout, mention_reordered, print_devices, print_json};
use memtrack_core::analysis::at_peak::{self, AtPeak};
use memtrack_core::analysis::top::TopOptions;
use memtrack_core::stack::symbols::Symbolizer;

/// Loads the snapshot, prints what was live at the peak of each device.
pub(crate) fn run(args: &PeakArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let rules = rules(&args.ownership.rules)?;
    let mut snapshot = load_pytorch(&args.file.path, args.file.input, streams)?;
    mention_reordered(snapshot.order_by_time(), streams);
    let of = match args.of {
        PeakOf::Requested => at_peak::PeakOf::Requested,
        PeakOf::Reserved => at_peak::PeakOf::Reserved,
    };
    let mut symbols = Symbolizer::of(&snapshot);
    let options = TopOptions::new().limit(args.rows.limit()).rules(rules.clone());
    // Who wants to see every frame wants them told apart.
    let options = options.fold_hidden(args.text.frames > 0);
    let find = |device| AtPeak::find_with(&snapshot, &mut symbols, device, of, &options);
    let mut devices: Vec<AtPeak> = chosen(&snapshot, args.device.device)?.into_iter().map(find).collect();
    if args.device.device.is_none() && !devices.iter().all(AtPeak::is_empty) {
        devices.retain(|device| !device.is_empty());
    }
    if args.format.json {
        let json = |device: &AtPeak| {
            let mut value = device.to_json();
            if args.ownership.explain {
                value["explained"] = explained_json(&rules, &device.live.rows);
            }
            value
        };
        let devices: Vec<_> = devices.iter().map(json).collect();
        print_json(&serde_json::json!({ "devices": devices }), streams)?;
        return Ok(Exit::Fine);
    }
    let texts: Vec<String> = devices.iter().map(|device| device.to_text(layout(args.text))).collect();
    print_devices(&texts, streams)?;
    if args.ownership.explain {
        for device in &devices {
            print_explained(&rules, &device.live.rows, layout(args.text), streams)?;
        }
    }
    Ok(Exit::Fine)
}

//! `memtrack categories` for a snapshot or recording, whose categories are inferred from its stacks, its scopes and the order of
//! its events.

use super::devices::select_devices;
use crate::Streams;
use crate::answers::{self, CategoriesAnswer, DeviceCategories};
use crate::args::device::{DeviceSelector, parse_device};
use crate::args::{AtMoment, CategoriesArgs};
use crate::error::{CliError, Exit};
use crate::report::{mention_reordered, print_devices};
use memtrack_core::analysis::attribution::EventNames;
use memtrack_core::profile::reading::{BlockCategories, CategoryReading, ReadingAt};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;

/// Infers the categories of each device and prints them.
pub(super) fn run(
    args: &CategoriesArgs,
    mut snapshot: Snapshot,
    streams: &mut Streams<'_>,
) -> Result<Exit, CliError> {
    let only_traces = [(args.trace.compat, "--compat"), (args.tensors, "--tensors")];
    if let Some((_, option)) = only_traces.into_iter().find(|&(is_given, _)| is_given) {
        let path = args.trace.path.display();
        let why = "is not an operator trace; `memtrack export-script` prints the script that records one";
        return Err(CliError::Usage(format!("{option}: {path} {why}")));
    }
    let requested = args.trace.device.as_deref().map(parse_device_selector).transpose()?;
    mention_reordered(snapshot.order_by_time(), streams);
    let moments = match args.at {
        None => vec![ReadingAt::Peak, ReadingAt::End],
        Some(AtMoment::Peak) => vec![ReadingAt::Peak],
        Some(AtMoment::End) => vec![ReadingAt::End],
        Some(AtMoment::After(ns)) => vec![ReadingAt::Seconds(ns as f64 / 1e9)],
    };
    if matches!(args.at, Some(AtMoment::After(_))) && !snapshot.has_times() {
        let path = args.trace.path.display();
        let why = "its events have no times: use --at peak or --at end";
        return Err(CliError::Usage(format!("--at: {path}: {why}")));
    }
    let mut symbols = Symbolizer::of(&snapshot);
    let names = EventNames::of(&snapshot, &mut symbols);
    let read = |device| {
        let blocks = BlockCategories::infer(&snapshot, &mut symbols, device);
        CategoryReading::of(&snapshot, device, &blocks, &moments, &names)
    };
    let mut devices: Vec<CategoryReading> =
        select_devices(&snapshot, requested)?.into_iter().map(read).collect();
    let is_used = |device: &CategoryReading| device.all.blocks > 0;
    if requested.is_none() && devices.iter().any(is_used) {
        devices.retain(is_used);
    }
    if args.format.json {
        let devices = devices.into_iter().map(|device| DeviceCategories::Read(Box::new(device))).collect();
        answers::CATEGORIES.print(&CategoriesAnswer { devices }, streams)?;
    } else {
        print_devices(&devices, streams)?;
    }
    Ok(Exit::Success)
}

/// Parses a device name as used in reports (`0`) or in operator traces (`cuda:0`).
fn parse_device_selector(text: &str) -> Result<DeviceSelector, CliError> {
    let number = text.strip_prefix("cuda:").unwrap_or(text);
    parse_device(number).map_err(|error| CliError::Usage(format!("--device {text}: {error}")))
}

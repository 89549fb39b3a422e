//! `memtrack categories`: the categories of memory.

use super::categories_read;
use super::optrace::{self, Source};
use crate::Streams;
use crate::answers::{self, CategoriesAnswer, DeviceCategories};
use crate::args::{AtMoment, CategoriesArgs, TextArgs};
use crate::error::{CliError, Exit};
use crate::load::load_with;
use crate::report::layout;
use memtrack_core::profile::analysis::Profile;
use memtrack_core::profile::optrace::looks_like_trace;
use memtrack_core::profile::report::{CategoryReport, ReportMoment};
use memtrack_core::snapshot::Loaded;
use std::io::Read;

/// Prints the categories of an operator trace or of a recording that has operators, or the categories that can be
/// inferred from any other recording or from a snapshot.
pub(crate) fn run(args: &CategoriesArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let head = optrace::read_head(&args.trace, streams)?;
    // Put the head back in front of standard input, so that it is read again.
    let mut stdin = head.as_slice().chain(&mut *streams.stdin);
    let streams =
        &mut Streams { stdin: &mut stdin, stdout: &mut *streams.stdout, stderr: &mut *streams.stderr };
    if looks_like_trace(&head) {
        return print_trace_categories(args, &optrace::load(&args.trace, streams)?, streams);
    }
    let Loaded { snapshot, .. } =
        load_with(&args.trace.path, &args.trace.input, &args.trace.symbols, streams)?;
    match optrace::from_recording(snapshot) {
        Ok(source) => print_trace_categories(args, &source, streams),
        Err(snapshot) => categories_read::run(args, *snapshot, streams),
    }
}

/// Analyses the trace and prints its categories. If it comes from a recording, the device is named as in reports about
/// recordings rather than as in operator traces (`cuda:0`).
fn print_trace_categories(
    args: &CategoriesArgs,
    source: &Source,
    streams: &mut Streams<'_>,
) -> Result<Exit, CliError> {
    let (profile, repairs) = optrace::analyse_trace(&args.trace, source, streams)?;
    if args.tensors {
        return print_tensors(args, &profile, streams);
    }
    let device = optrace::select_device(&args.trace, &profile)?;
    let moments = match args.at {
        None => vec![ReportMoment::Peak, ReportMoment::End],
        Some(AtMoment::Peak) => vec![ReportMoment::Peak],
        Some(AtMoment::End) => vec![ReportMoment::End],
        Some(AtMoment::After(ns)) => vec![ReportMoment::After(ns)],
    };
    let mut report = CategoryReport::of(&profile, device, &moments, repairs);
    if source.recording.is_some() {
        optrace::rename_device(&mut report.device);
    }
    if args.format.json {
        let devices = vec![DeviceCategories::Traced(report.listed(args.rows.limit()))];
        answers::CATEGORIES.print(&CategoriesAnswer { devices }, streams)?;
    } else {
        let width = layout(TextArgs { frames: 0, wide: args.wide }).width;
        streams.stdout.write_all(report.to_text(args.rows.limit(), width).as_bytes())?;
    }
    Ok(Exit::Success)
}

/// Prints every version of every tensor.
fn print_tensors(
    args: &CategoriesArgs,
    profile: &Profile<'_>,
    streams: &mut Streams<'_>,
) -> Result<Exit, CliError> {
    let device =
        args.trace.device.as_ref().map(|_| optrace::select_device(&args.trace, profile)).transpose()?;
    let mut first = true;
    if args.format.json {
        streams.stdout.write_all(b"[")?;
    }
    for labelled in profile.labelled() {
        let Some(storage) = profile.storages()[labelled.storage as usize] else { continue };
        if device.is_some_and(|device| device != storage.device) {
            continue;
        }
        let category = labelled.category.map(|category| category.name());
        if args.format.json {
            let separator = if std::mem::take(&mut first) { "" } else { ",\n " };
            let row = serde_json::json!({
                "id": storage.tensor,
                "ptr": storage.address,
                "alloc": labelled.storage,
                "device": profile.device_name(storage.device),
                "version": labelled.version,
                "category": category,
            });
            write!(streams.stdout, "{separator}{row}")?;
        } else {
            if std::mem::take(&mut first) {
                writeln!(
                    streams.stdout,
                    "{:>8} {:>10} {:>18}  {:>7}  category",
                    "tensor", "allocation", "address", "version"
                )?;
            }
            writeln!(
                streams.stdout,
                "{:>8} {:>10} {:#18x}  {:>7}  {}",
                storage.tensor,
                labelled.storage,
                storage.address,
                labelled.version,
                category.unwrap_or("UNKNOWN"),
            )?;
        }
    }
    if args.format.json {
        streams.stdout.write_all(b"]\n")?;
    }
    Ok(Exit::Success)
}

//! `memtrack convert`: converts a snapshot to another format of memtrack, PyTorch or another tool.

use super::devices::select_devices;
use super::moments::{find_moment, keep_devices_with_moment};
use super::top::mention_missing;
use crate::Streams;
use crate::answers;
use crate::args::{At, ConvertArgs};
use crate::error::{CliError, Exit};
use crate::load::load_with;
use crate::output::check_targets;
use crate::ownership::read_rules;
use crate::report::{mention_reordered, mention_samples};
use crate::scrub;
use memtrack_core::__ReplacingFile as ReplacingFile;
use memtrack_core::exports::{Export, ExportOptions, Target, target_named, target_of};
use memtrack_core::snapshot::pytorch::Compression;
use memtrack_core::snapshot::{Format, Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Symbolizer;
use std::io::{self, Write};
use std::path::Path;

/// Loads the snapshot and writes it in the format selected by `--to` or by the output's suffix.
pub(crate) fn run(args: &ConvertArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (target, compression) = requested_target(args)?;
    check_fits(args, target)?;
    let to_stdout = args.output == Path::new("-");
    if !to_stdout {
        check_targets([args.output.as_path()], args.force)?;
    }
    let loaded = load_with(&args.file, &args.input, &args.symbols, streams)?;
    let mut snapshot = scrub::scrub_loaded(loaded, &args.scrub, &[], streams).snapshot;
    let export_options = match target {
        Target::Export(_) => Some(export_options(args, &mut snapshot, streams)?),
        Target::Snapshot(_) => None,
    };
    let mut symbols = Symbolizer::of(&snapshot);
    let mut write = |output: &mut dyn Write| match (target, &export_options) {
        (Target::Export(export), Some(options)) => {
            export.write(&snapshot, &mut symbols, options, output, compression)
        }
        (Target::Snapshot(format), _) => snapshot.write_as(output, format, compression, &mut symbols),
        (Target::Export(_), None) => unreachable!("an export has options"),
    };
    if to_stdout {
        write(&mut *streams.stdout).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => CliError::output(&args.output, error),
            _ => error.into(),
        })?;
    } else {
        let written = ReplacingFile::create(&args.output).and_then(|mut file| {
            write(&mut file)?;
            file.commit()
        });
        written.map_err(|error| CliError::output(&args.output, error))?;
    }
    answers::CONVERT.report_written(&args.output, &target.suffix(compression), args.written, streams)?;
    match target {
        Target::Export(_) => {
            if snapshot.has_samples() {
                // Ignore a failure to print this hint, because the file is complete without it.
                let _ = writeln!(
                    streams.stderr,
                    "memtrack: warning: small blocks were sampled: numbers in the file are estimates (`memtrack summary` reports \
                     their error)"
                );
            }
            mention_missing(&symbols, streams);
        }
        Target::Snapshot(Format::Recording) => {}
        Target::Snapshot(_) if to_stdout => {}
        Target::Snapshot(_) => mention_samples(&snapshot, streams),
    }
    Ok(Exit::Success)
}

/// Returns the format to write.
fn requested_target(args: &ConvertArgs) -> Result<(Target, Compression), CliError> {
    if let Some(to) = &args.to {
        return target_named(to).map_err(|why| CliError::Usage(format!("--to {to}: {why}")));
    }
    if args.output == Path::new("-") {
        return Err(CliError::Usage(
            "choose the format for standard output with --to, such as --to json".into(),
        ));
    }
    target_of(&args.output).map_err(|why| {
        CliError::Usage(format!("cannot determine the format of {}: {why}", args.output.display()))
    })
}

/// Rejects options that do not apply to the format.
fn check_fits(args: &ConvertArgs, target: Target) -> Result<(), CliError> {
    if let Target::Export(Export { missing_feature: Some(feature), name, .. }) = target {
        return Err(CliError::Usage(format!(
            "this memtrack is built without {name} files: cargo install --path memtrack-cli --features {feature}"
        )));
    }
    let depends_on_moment = matches!(target, Target::Export(Export { depends_on_moment: true, .. }));
    if args.at.is_some() && !depends_on_moment {
        return Err(CliError::Usage(format!(
            "--at: a {} file covers the whole time, not one moment; leave it out",
            target.name()
        )));
    }
    let given = [("--device", args.device.device.is_some()), ("--mine", !args.rules.mine.is_empty())];
    let more = [("--not-mine", !args.rules.not_mine.is_empty()), ("--rules", args.rules.rules.is_some())];
    match (target, given.into_iter().chain(more).find(|(_, given)| *given)) {
        (Target::Snapshot(_), Some((option, _))) => Err(CliError::Usage(format!(
            "{option}: a {} file holds a whole snapshot; leave it out",
            target.name()
        ))),
        _ => Ok(()),
    }
}

/// Returns the export options for the requested devices, moment and rules.
fn export_options(
    args: &ConvertArgs,
    snapshot: &mut Snapshot,
    streams: &mut Streams<'_>,
) -> Result<ExportOptions, CliError> {
    let rules = read_rules(&args.rules)?;
    mention_reordered(snapshot.order_by_time(), streams);
    let mut devices = select_devices(snapshot, args.device.device)?;
    keep_devices_with_moment(snapshot, &mut devices, args.at);
    let at = args.at.unwrap_or(At::Peak);
    let with_moment = |device| Ok((device, find_moment(snapshot, device, at)?));
    let devices = devices.into_iter().map(with_moment).collect::<Result<Vec<_>, CliError>>()?;
    Ok(ExportOptions::of(snapshot).devices(devices).rules(rules))
}

//! `memtrack convert`: converts a snapshot to another format of memtrack, PyTorch or another tool.

use super::prelude::*;
use memtrack_core::exports::{EXPORTS, Export, ExportOptions, Target, target_named, target_of};
use memtrack_core::snapshot::pytorch::Compression;
use memtrack_core::snapshot::{Format, SnapshotFiles};

/// Formats the examples and the list of the registry's export formats.
fn format_convert_help() -> String {
    let formats = EXPORTS.iter().filter(|export| export.missing_feature.is_none()).map(|export| {
        let endings: Vec<String> = export.suffixes.iter().map(|suffix| format!(".{suffix}")).collect();
        format!("  {:<13} {:<19} {}\n", export.name, endings.join(" "), export.about)
    });
    format!(
        "\
Examples:
  memtrack convert train.memtrack train.pickle       for pytorch.org/memory_viz
  memtrack convert snapshot.pickle.gz snapshot.json  for scripts
  memtrack convert - small.pickle.zst < big.pickle   from a pipe, packed
  memtrack convert train.memtrack - --to json | jq   to a pipe
  memtrack convert snapshot.pickle end.pb.gz --at end
                                                     for go tool pprof: what is in use at the end
  memtrack convert train.memtrack blocks.csv --device host
                                                     a table of the heap's blocks
  memtrack convert train.memtrack events.parquet     a table of all events, for DuckDB, pandas or Spark
  memtrack convert train.memtrack for-you.pickle --scrub --scrub-key \"$(cat key)\"
                                                     with pseudonyms, for others to read

For other tools:
{}
The output's suffix or --to selects the format; .gz or .zst after it compresses the file. A PyTorch snapshot loses
nothing, unknown keys included; a recording loses what PyTorch's format cannot express. memtrack does not read files for
other tools back; the documentation describes what each contains and how to open it.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.",
        formats.collect::<String>()
    )
}

/// Write a snapshot or recording in another format: .pickle, .json or .memtrack, or for pprof, speedscope and other tools
#[derive(Clone, Debug, Args)]
#[command(after_help = format_convert_help())]
pub(crate) struct ConvertArgs {
    /// The recording or PyTorch snapshot; `-` reads standard input
    #[arg(value_name = "IN")]
    pub(crate) file: PathBuf,
    /// The file to write; `-` is standard output
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) written: WrittenArgs,
    /// The format, regardless of the output's name: pickle, json, memtrack or a format from the list below; .gz or .zst after it
    /// compresses the file
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<String>,
    /// For other tools: write the memory live at peak, end, oom (the last) or the event with this number [default: peak]
    #[arg(long, value_name = "MOMENT", value_parser = parse_at, allow_hyphen_values = true)]
    pub(crate) at: Option<At>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

pub(super) const ANSWER: Answer<WrittenAnswer> = Answer::new("convert", 1);

/// Loads the snapshot and writes it in the format selected by `--to` or by the output's suffix.
pub(super) fn run(args: &ConvertArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (target, compression) = requested_target(args)?;
    check_fits(args, target)?;
    check_output(&args.output, args.force)?;
    let loaded = load_with(&args.file, &args.input, &args.symbols, streams)?;
    let snapshot = scrub::scrub_snapshot(loaded.snapshot, &args.scrub, streams);
    let (snapshot, mut symbols, export_options) = match target {
        Target::Export(_) => {
            let rules = read_rules(&args.rules)?;
            let at = args.at.unwrap_or(At::Peak);
            let context = Context::of(snapshot, args.device.device, Some(at), streams)?;
            let devices = context.devices.into_iter().zip(context.moments).collect();
            let options = ExportOptions::of(&context.snapshot).devices(devices).rules(rules);
            (context.snapshot, context.symbols, Some(options))
        }
        Target::Snapshot(_) => {
            let symbols = Symbolizer::of(&snapshot);
            (snapshot, symbols, None)
        }
    };
    write_output(&args.output, streams, |output| match (target, &export_options) {
        (Target::Export(export), Some(options)) => {
            export.write(&snapshot, &mut symbols, options, output, compression)
        }
        (Target::Snapshot(format), _) => snapshot.write_as(output, format, compression, &mut symbols),
        (Target::Export(_), None) => unreachable!("an export has options"),
    })?;
    ANSWER.report_written(&args.output, &target.suffix(compression), args.written, streams)?;
    match target {
        Target::Export(_) => {
            if snapshot.has_samples() {
                streams.note(format_args!(
                    "memtrack: warning: small blocks were sampled: numbers in the file are estimates (`memtrack summary` \
                     reports their error)"
                ));
            }
            mention_missing(&symbols, streams);
        }
        Target::Snapshot(Format::Recording) => {}
        Target::Snapshot(_) if args.output == Path::new("-") => {}
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
    let given = args.device.device.map(|_| "--device").or_else(|| args.rules.given());
    match (target, given) {
        (Target::Snapshot(_), Some(option)) => Err(CliError::Usage(format!(
            "{option}: a {} file holds a whole snapshot; leave it out",
            target.name()
        ))),
        _ => Ok(()),
    }
}

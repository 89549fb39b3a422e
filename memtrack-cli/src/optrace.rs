//! Loads operator traces for the verbs that report on them, and selects the device.

use crate::Streams;
use crate::args::{InputArgs, SymbolsArgs};
use crate::error::CliError;
use crate::load::check_places;
use crate::neighbours::{Kind, open_head, unusable_file_error};
use clap::Args;
use memtrack_core::analysis::attribution::EventNames;
use memtrack_core::analysis::units::printable;
use memtrack_core::answer::DeviceAnswer;
use memtrack_core::profile::Repairs;
use memtrack_core::profile::analysis::{AnalysisError, Profile, analyse};
use memtrack_core::profile::optrace::{self, DeviceIndex, Mode, ReadTrace};
use memtrack_core::profile::recorded::{Attribution, lacks_records, operator_trace};
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::recording::MAGIC;
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Symbolizer;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The operator trace that a verb reads.
#[derive(Clone, Debug, Args)]
pub(crate) struct OptraceArgs {
    /// The operator trace, or a recording that has operators; `-` reads standard input
    #[arg(value_name = "TRACE")]
    pub(crate) path: PathBuf,
    /// Only this device, such as cuda:0; required if the trace covers several devices
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Report exactly what PyTorch's profiler does, including its errors: repair nothing, and use only PyTorch's categories
    #[arg(long)]
    pub(crate) compat: bool,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
}

/// Reads the first bytes of the file, which distinguish operator traces from other kinds of files.
///
/// # Errors
/// Fails if the file cannot be read.
pub(crate) fn read_head(args: &OptraceArgs, streams: &mut Streams<'_>) -> Result<Vec<u8>, CliError> {
    let mut head = Vec::new();
    let read = if args.path == Path::new("-") {
        streams.stdin.take(HEAD_BYTES).read_to_end(&mut head)
    } else {
        File::open(&args.path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
    };
    read.map_err(|error| CliError::input(&args.path, error))?;
    Ok(head)
}

/// The number of bytes of a file that are inspected to determine its kind.
const HEAD_BYTES: u64 = 4096;

/// An operator trace, and the recording it was derived from, if any.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) read: ReadTrace,
    pub(crate) recording: Option<Snapshot>,
    /// If the trace comes from a recording, the names that other reports give to its allocations, and exact sums over
    /// these allocations; `None` otherwise.
    pub(crate) attribution: Option<Attribution>,
    /// Whether the recording is complete except for small blocks, which samples represent.
    only_sampled: bool,
}

/// Reads an operator trace, or derives one from a recording.
///
/// # Errors
/// Fails if the file cannot be read or is a recording without operators.
pub(crate) fn load(args: &OptraceArgs, streams: &mut Streams<'_>) -> Result<Source, CliError> {
    let path = &args.path;
    let failed = |error: &dyn std::fmt::Display| CliError::input(path, error);
    if let (head, Some(stdin)) = open_head(path, &mut *streams.stdin)? {
        return read(args, &head, stdin);
    }
    // Open a recording by its path, because it may consist of several files.
    let mut file = File::open(path).map_err(|error| failed(&error))?;
    let mut head = Vec::new();
    file.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| failed(&error))?;
    if head.starts_with(&MAGIC) {
        let snapshot = crate::load::load_with(path, &args.input, &args.symbols, streams)?.snapshot;
        return trace_from_recording(args, snapshot);
    }
    read(args, &head, head.chain(file))
}

/// Reads `input`, whose first bytes are `head`.
fn read(args: &OptraceArgs, head: &[u8], input: impl Read) -> Result<Source, CliError> {
    let failed = |error: &dyn std::fmt::Display| CliError::input(&args.path, error);
    if !head.starts_with(&MAGIC) {
        let read = optrace::read(input, analysis_mode(args), args.input.size.max_input);
        // If the file is a snapshot, the trace reader's error names the verbs that read snapshots.
        let own = [Kind::OperatorTrace, Kind::Recording, Kind::Snapshot];
        let read = read.map_err(|error| unusable_file_error(&args.path, head, &own, error))?;
        return Ok(Source { read, ..Source::default() });
    }
    let options = LoadOptions::new().max_input(args.input.size.max_input);
    let loaded = Snapshot::open_stream(input, options).map_err(|error| failed(&error))?;
    check_places(&args.symbols)?;
    let mut snapshot = loaded.snapshot;
    snapshot.symbol_folders.clone_from(&args.symbols.places);
    trace_from_recording(args, snapshot)
}

/// Derives an operator trace from a recording.
fn trace_from_recording(args: &OptraceArgs, snapshot: Snapshot) -> Result<Source, CliError> {
    from_recording(snapshot).map_err(|_| {
        CliError::input(&args.path, "the recording has no operators: record with Options::operators()")
    })
}

/// Derives an operator trace from a recording, along with the names of its allocations. Returns the recording as the
/// error if it has no operators.
pub(crate) fn from_recording(snapshot: Snapshot) -> Result<Source, Box<Snapshot>> {
    let Some(recorded) = operator_trace(&snapshot) else { return Err(Box::new(snapshot)) };
    let names = EventNames::of(&snapshot, &mut Symbolizer::of(&snapshot));
    let attribution = Some(Attribution::of(&snapshot, &recorded, names));
    let only_sampled = snapshot.may_lack_small_blocks() && !lacks_records(&snapshot);
    Ok(Source { read: recorded.trace.into(), recording: Some(snapshot), attribution, only_sampled })
}

/// Names a device of an operator trace as in reports about recordings.
pub(crate) fn rename_device(device: &mut DeviceAnswer) {
    let name = match short_name(&device.name) {
        "host" => "host heap".to_owned(),
        "pinned" => "pinned host memory".to_owned(),
        number => format!("device {number}"),
    };
    *device = DeviceAnswer::from_name(&name);
}

/// Returns the device name that `--device` accepts in other reports: a number, `host` or `pinned`.
fn short_name(name: &str) -> &str {
    match name {
        "cpu" => "host",
        name => name.strip_prefix("cuda:").unwrap_or(name),
    }
}

/// Returns the requested analysis mode.
pub(crate) fn analysis_mode(args: &OptraceArgs) -> Mode {
    if args.compat { Mode::Compat } else { Mode::Tolerant }
}

/// Analyses the trace and reports what had to be repaired.
///
/// # Errors
/// Fails if the trace has no allocations or, with `--compat`, if PyTorch would reject it.
pub(crate) fn analyse_trace<'a>(
    args: &OptraceArgs,
    source: &'a Source,
    streams: &mut Streams<'_>,
) -> Result<(Profile<'a>, Repairs), CliError> {
    let Source { read, attribution, only_sampled, .. } = source;
    let mut profile = analyse(&read.trace, analysis_mode(args))
        .map_err(|error: AnalysisError| CliError::input(&args.path, error))?;
    // PyTorch's analysis does not support samples.
    if let Some(attribution) = attribution.as_ref().filter(|_| !profile.is_compat()) {
        profile = profile.with_attribution(attribution);
    }
    let repairs = read.repairs.and(profile.repairs());
    // Sampling alone does not make sums too small, because reports show sampled sums as estimates with an error.
    if read.trace.header.partial && (!only_sampled || profile.is_compat()) {
        let what =
            "the trace is partial: the program that wrote it left something out, so sums may be too small";
        streams.note(format_args!("memtrack: warning: {what}"));
    }
    for line in repairs.to_string().lines() {
        streams.note(format_args!("memtrack: warning: {line}"));
    }
    Ok((profile, repairs))
}

/// Returns the requested device or, if none is requested, the only device with memory.
///
/// # Errors
/// Returns a usage error that lists the devices if the trace lacks the requested one, or if it has several and none was
/// requested.
pub(crate) fn select_device(args: &OptraceArgs, profile: &Profile<'_>) -> Result<DeviceIndex, CliError> {
    let devices = profile.devices();
    let name = |device: &DeviceIndex| profile.device_name(*device);
    let list = || {
        // Device names may contain control characters, and there may be many of them.
        let mut names: Vec<String> = devices.iter().take(20).map(|device| printable(name(device))).collect();
        names.extend((devices.len() > 20).then(|| "…".to_owned()));
        names.join(", ")
    };
    match (&args.device, &devices[..]) {
        (Some(requested), _) => devices
            .iter()
            .copied()
            .find(|device| name(device) == requested || short_name(name(device)) == requested)
            .ok_or_else(|| {
                CliError::Usage(format!("the trace has no device {requested}: it has {}", list()))
            }),
        (None, [only]) => Ok(*only),
        (None, _) => {
            Err(CliError::Usage(format!("the trace has several devices: choose one by --device: {}", list())))
        }
    }
}

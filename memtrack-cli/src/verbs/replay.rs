//! `memtrack replay`: replays recorded requests through PyTorch's allocator with other settings.

use super::prelude::*;
use crate::context::select_devices;
use memtrack_core::allocator::replay::{GRID, ReplayReport, Requests, replay_grid};
use memtrack_core::allocator::{AllocatorBackend, Settings};
use memtrack_core::event::DeviceId;

/// Run the recorded requests with other settings of PyTorch's allocator, without a GPU, and rank the settings
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack replay snapshot.pickle                                which settings would have needed the least memory
  memtrack replay snapshot.pickle --capacity 24GiB               … and whether it would have fitted into 24 GiB
  memtrack replay run.memtrack --set expandable_segments:True    compare the recorded settings with this one
  memtrack replay snapshot.pickle --set '' --set max_split_size_mb:128 --json

The recorded requests run through PyTorch's caching allocator again. The table begins with the best settings: fewest
failures, then fewest retries, then least memory reserved. Fragmentation is the share of reserved memory that no active
block used when most was reserved. Nothing is recommended if the trace is too short, if the recorded settings do not
reproduce the recorded peak, or if less than 1 % would be gained.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Try these settings instead of the usual grid; a string as in PYTORCH_CUDA_ALLOC_CONF; repeatable
    #[arg(long = "set", value_name = "KEY:VALUE,…")]
    pub(crate) settings: Vec<String>,
    /// The device's memory [default: that of the snapshot's device, if memory ran out, else unlimited]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) capacity: Option<u64>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(super) const ANSWER: Answer<DevicesReplayAnswer> = Answer::new("replay", 1);

/// The replays of each device's requests with other allocator settings.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DevicesReplayAnswer {
    /// The devices, each with the replays of its requests.
    pub(crate) devices: Vec<ReplayReport>,
}

/// Loads the snapshot, replays each device's requests with each of the settings, and prints the rankings.
pub(super) fn run(args: &ReplayArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let requested = args.settings.iter().map(|text| parse_settings(text)).collect::<Result<Vec<_>, _>>()?;
    let snapshot = load_file(&args.file, streams)?.snapshot;
    let mut reports = Vec::new();
    let devices = select_devices(&snapshot, args.device.device)?;
    // PyTorch's caching allocator serves device memory only; pinned memory comes from another allocator.
    let is_host = |&device: &DeviceId| !snapshot.device_kind(device).is_accelerator();
    if args.device.device.is_some() && devices.iter().any(is_host) {
        return Err(CliError::Usage("only the memory of a device can be replayed, not the host's".into()));
    }
    for device in devices.into_iter().filter(|device| !is_host(device)) {
        let report = build_report(&snapshot, device, &requested, args.capacity, streams)?;
        if report.requests > 0 || report.existing_blocks > 0 {
            reports.push(report);
        }
    }
    if args.format.json {
        ANSWER.print(&DevicesReplayAnswer { devices: reports }, streams)?;
    } else if reports.is_empty() {
        writeln!(streams.stdout, "The snapshot holds no events of a device to replay.")?;
    } else {
        print_devices(&reports, streams)?;
    }
    Ok(Exit::Success)
}

fn parse_settings(text: &str) -> Result<Settings, CliError> {
    parse_replayable(text).map_err(|error| CliError::Usage(format!("--set {text}: {error}")))
}

/// Parses settings and rejects those for any allocator other than the native one.
fn parse_replayable(text: &str) -> Result<Settings, String> {
    let settings = Settings::parse(text).map_err(|error| error.to_string())?;
    match settings.backend() {
        AllocatorBackend::Native => Ok(settings),
        _ => Err("only PyTorch's native allocator can be replayed; the behaviour of the driver's pools is \
                 not known"
            .into()),
    }
}

fn build_report(
    snapshot: &Snapshot,
    device: DeviceId,
    requested: &[Settings],
    capacity: Option<u64>,
    streams: &mut Streams<'_>,
) -> Result<ReplayReport, CliError> {
    let requests = Requests::of(snapshot, device, capacity);
    let mut settings = Vec::new();
    match requests.settings.as_deref().map(parse_replayable) {
        None => {}
        Some(Ok(recorded)) => settings.push(recorded),
        Some(Err(error)) => {
            // The other settings can still be replayed.
            streams.note(format_args!(
                "memtrack: warning: the recorded settings cannot be replayed ({error}); they are left out"
            ));
        }
    }
    if requested.is_empty() {
        for text in GRID {
            settings.push(parse_settings(text)?);
        }
    } else {
        settings.extend_from_slice(requested);
    }
    // Remove duplicates.
    let mut seen = std::collections::HashSet::new();
    settings.retain(|settings| seen.insert(settings.text().to_owned()));
    let capacity = capacity.or(requests.capacity);
    replay_grid(&requests, &settings, capacity)
        .map_err(|error| CliError::Usage(format!("the requests cannot be replayed: {error}")))
}

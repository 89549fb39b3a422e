//! `memtrack replay`: replays recorded requests through PyTorch's allocator with other settings.

use super::devices::select_devices;
use crate::Streams;
use crate::answers::{self, DevicesReplayAnswer};
use crate::args::ReplayArgs;
use crate::error::{CliError, Exit};
use crate::load::load_pytorch;
use crate::report::print_devices;
use memtrack_core::allocator::replay::{GRID, ReplayReport, Requests, replay_grid};
use memtrack_core::allocator::{AllocatorBackend, Settings};
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;

/// Loads the snapshot, replays each device's requests with each of the settings, and prints the rankings.
pub(crate) fn run(args: &ReplayArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let requested = args.settings.iter().map(|text| parse_settings(text)).collect::<Result<Vec<_>, _>>()?;
    let snapshot = load_pytorch(&args.file, streams)?;
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
        answers::REPLAY.print(&DevicesReplayAnswer { devices: reports }, streams)?;
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
    snapshot: &PytorchSnapshot,
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
            let _ = writeln!(
                streams.stderr,
                "memtrack: warning: the recorded settings cannot be replayed ({error}); they are left out"
            );
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

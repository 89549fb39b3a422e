//! Replays requests under many settings and ranks the settings.

use super::requests::Requests;
use super::results::{ReplayReport, ReplayRow};
use super::run::replay;
use crate::{AllocatorError, Settings};
use memtrack_model::answer::DeviceAnswer;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The settings that `memtrack replay` tries by default.
pub const GRID: [&str; 10] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:8,max_split_size_mb:256",
    "expandable_segments:True,roundup_power2_divisions:8",
];

/// Replays the requests under each of `settings`, several at a time, and ranks the results: fewest failures first, then
/// fewest retries, then least memory, then fewest calls to the device. Settings that are equally good keep their order.
///
/// # Errors
/// The same as for [`replay`].
pub fn replay_grid(
    requests: &Requests,
    settings: &[Settings],
    capacity: Option<u64>,
) -> Result<ReplayReport, AllocatorError> {
    let outcomes = Mutex::new(Vec::with_capacity(settings.len()));
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(settings.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(settings) = settings.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = replay(requests, settings, capacity);
                    crate::api::caching::lock(&outcomes).push(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
    // The comparison with the recording needs a replay with the capacity of the recorded device.
    let reference = requests.settings.as_deref().unwrap_or_default();
    let reproduced = match settings.iter().find(|settings| settings.text() == reference) {
        Some(settings) if capacity != requests.capacity => {
            Some(replay(requests, settings, requests.capacity)?.peak_reserved_bytes)
        }
        _ => outcomes
            .iter()
            .find(|outcome| outcome.settings == reference)
            .map(|outcome| outcome.peak_reserved_bytes),
    };
    let position_of = |text: &str| settings.iter().position(|settings| settings.text() == text);
    let mut rows: Vec<ReplayRow> = outcomes
        .into_iter()
        .map(|outcome| ReplayRow {
            recorded: requests.settings.as_ref() == Some(&outcome.settings),
            fails_at_request: outcome
                .first_oom
                .map(|number| (number as u64 + 1).saturating_sub(requests.existing.0)),
            outcome,
        })
        .collect();
    rows.sort_by_key(|ReplayRow { outcome, .. }| {
        (
            outcome.num_ooms,
            outcome.num_alloc_retries,
            outcome.peak_reserved_bytes,
            outcome.num_device_alloc,
            position_of(&outcome.settings),
        )
    });
    let report = ReplayReport {
        device: DeviceAnswer::from_name(&requests.device_name),
        requests: requests.len() - requests.existing.0 as usize,
        existing_blocks: requests.existing.0,
        existing_bytes: requests.existing.1,
        capacity_bytes: capacity,
        recorded_peak_reserved_bytes: requests.recorded_peak,
        reproduced_peak_reserved_bytes: reproduced,
        driver_calls: requests.driver_calls,
        recommended: None,
        advice: None,
        rows,
    };
    Ok(report.with_advice())
}

//! The results of replays, as a table and as JSON.

use super::run::Outcome;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::units::{capitalised, counted, human_bytes, human_count, human_share, printable};
use serde::Serialize;
use std::fmt;

/// The result of a replay under one of the allocator settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ReplayRow {
    /// The result of the replay.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Whether the recorded program used these settings.
    pub recorded: bool,
    /// The number of the first request in the trace that failed, counted from 1; 0 if the memory that was live before
    /// the trace did not fit; null if no request failed.
    pub fails_at_request: Option<u64>,
}

/// The replays of one device's requests under several allocator settings, best settings first.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ReplayReport {
    /// The device.
    pub device: DeviceAnswer,
    /// The number of requests in the trace, including frees. Blocks that were live before the trace are not counted.
    pub requests: usize,
    /// The number of blocks that were live before the trace started.
    pub existing_blocks: u64,
    /// The number of bytes in blocks that were live before the trace started.
    pub existing_bytes: u64,
    /// The size of the device's memory in the replays, in bytes; null if it was not limited.
    pub capacity_bytes: Option<u64>,
    /// The peak number of reserved bytes in the recording; null if the trace contains no segments.
    pub recorded_peak_reserved_bytes: Option<u64>,
    /// The peak number of reserved bytes in a replay with the memory that was available to the program, under the
    /// recorded settings (the defaults if the file has none); null if these settings were not replayed.
    pub reproduced_peak_reserved_bytes: Option<u64>,
    /// Whether the program requested each block directly from the driver. The replay then uses an allocator that the
    /// program did not use.
    pub driver_calls: bool,
    /// The recommended allocator settings; empty for the defaults, null if none are recommended.
    pub recommended: Option<String>,
    /// The recommendation, or the reason there is none, as text; null if there are no replays.
    pub advice: Option<String>,
    /// The results of the replays, one for each of the settings, best settings first.
    #[serde(rename = "settings")]
    pub rows: Vec<ReplayRow>,
}

const HEADINGS: [&str; 7] =
    ["settings", "peak reserved", "peak allocated", "fragmentation", "retries", "fails at", "device calls"];

impl ReplayReport {
    fn row_cells(row: &ReplayRow) -> [String; 7] {
        let Outcome { settings, .. } = &row.outcome;
        let name = if settings.is_empty() { "(defaults)".to_owned() } else { printable(settings) };
        let outcome = &row.outcome;
        [
            if row.recorded { format!("{name} *") } else { name },
            human_bytes(outcome.peak_reserved_bytes),
            human_bytes(outcome.peak_allocated_bytes),
            human_share(outcome.fragmentation),
            outcome.num_alloc_retries.to_string(),
            match row.fails_at_request {
                None => "-".to_owned(),
                Some(0) => "the start".to_owned(),
                Some(number) => format!("request {}", human_count(number)),
            },
            human_count((outcome.num_device_alloc + outcome.num_device_free) as u64),
        ]
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capacity = match self.capacity_bytes {
            Some(bytes) => format!("{} of memory", human_bytes(bytes)),
            None => "unlimited memory".to_owned(),
        };
        let requests = counted(self.requests as u64, "request");
        writeln!(f, "{}: {requests} replayed with {capacity}", capitalised(&self.device.name))?;
        let rows: Vec<[String; 7]> = std::iter::once(HEADINGS.map(str::to_owned))
            .chain(self.rows.iter().map(Self::row_cells))
            .collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 7] = std::array::from_fn(width);
        for row in &rows {
            write!(f, "  {:<width$}", row[0], width = widths[0])?;
            for (cell, width) in row.iter().zip(widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
            writeln!(f)?;
        }
        if self.rows.iter().any(|row| row.recorded) {
            writeln!(f, "* the settings it was recorded under")?;
        }
        if let Some(bytes) = self.recorded_peak_reserved_bytes {
            writeln!(f, "The recording itself reserved at most {}.", human_bytes(bytes))?;
        }
        if self.existing_blocks > 0 {
            writeln!(
                f,
                "{} ({}) allocated before the first event; they are put in place first.",
                counted(self.existing_blocks, "block"),
                human_bytes(self.existing_bytes)
            )?;
        }
        self.advice.iter().try_for_each(|advice| writeln!(f, "{advice}"))
    }
}

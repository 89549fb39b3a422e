//! Readings of which pages of this process are in memory (`memtrack_resident`): at the end of a session, and from time to time
//! while it is streamed. Under `memtrack run`, the command makes them.

use super::resident::resident_bytes;
use crate::clock::ticks;
use crate::{internal_blocks, reentry};
use memtrack_file::MAX_RESIDENT_LENGTHS;
use memtrack_model::snapshot::ResidentReading;
use memtrack_resident::{MAX_SMAPS_BYTES, Marks, Reading, Schedule};
use std::path::Path;
use std::time::Instant;

/// Reads the pages of this process, which takes some 15 ms a GiB; `None` if the system does not allow it. Must not be
/// called under a lock that hooks take.
pub fn read_pages() -> Option<ResidentReading> {
    let _inside = reentry::enter();
    let own = internal_blocks::ranges();
    let process = Path::new("/proc/self");
    let begun = ticks();
    let request = Reading {
        process,
        own: &own,
        own_files: &[],
        max_smaps_bytes: MAX_SMAPS_BYTES,
        max_lengths: MAX_RESIDENT_LENGTHS,
    };
    // Marks are needed only from outside: the table above has mapped memory as well.
    let reading = request.read(&mut Marks::new());
    reading.ok().map(|reading| ResidentReading { ticks: begun, ended_ticks: ticks(), ..reading })
}

/// The readings of a stream.
pub(super) struct StreamReadings {
    schedule: Schedule,
}

impl StreamReadings {
    /// Begins without readings. `is_in_parts` if the stream's oldest parts are removed.
    pub(super) fn new(is_in_parts: bool) -> Self {
        Self { schedule: Schedule::new(is_in_parts) }
    }

    /// Reads the pages of this process if that is due.
    pub(super) fn read_if_due(&mut self) -> Option<ResidentReading> {
        let now = Instant::now();
        if !self.schedule.is_due(now, resident_bytes()) {
            return None;
        }
        let reading = read_pages();
        self.schedule.note(now, reading.as_ref().map_or(0, ResidentReading::resident_bytes));
        reading
    }
}

//! Readings of which pages of a process are in memory (`memtrack_resident`), from outside.

use memtrack_file::MAX_RESIDENT_LENGTHS;
use memtrack_model::snapshot::ResidentReading;
use memtrack_recorder::recorder::ticks;
use memtrack_resident::{MAX_SMAPS_BYTES, Marks, Reading, Schedule};
use std::path::PathBuf;
use std::time::Instant;

/// The readings of a process.
#[derive(Debug)]
pub(crate) struct ResidentReadings {
    schedule: Schedule,
    marks: Marks,
    /// Whether the system does not let the command read the process.
    is_refused: bool,
}

impl ResidentReadings {
    /// Begins without readings. `is_in_parts` if the file's oldest parts are removed.
    pub(crate) fn new(is_in_parts: bool) -> Self {
        Self { schedule: Schedule::new(is_in_parts), marks: Marks::new(), is_refused: false }
    }

    /// Reads the process if that is due. `resident_bytes` is the resident memory as it was last seen, and `libraries` are the
    /// names of memtrack's files.
    pub(crate) fn read(
        &mut self,
        pid: u32,
        resident_bytes: u64,
        libraries: &[String],
    ) -> Option<ResidentReading> {
        let now = Instant::now();
        if self.is_refused || !self.schedule.is_due(now, resident_bytes) {
            return None;
        }
        let own_files: Vec<&str> = libraries.iter().map(String::as_str).chain(["/memfd:memtrack"]).collect();
        let process = PathBuf::from(format!("/proc/{pid}"));
        let request = Reading {
            process: &process,
            own: &[],
            own_files: &own_files,
            max_smaps_bytes: MAX_SMAPS_BYTES,
            max_lengths: MAX_RESIDENT_LENGTHS,
        };
        let begun = ticks();
        let reading = request.read(&mut self.marks);
        self.schedule.note(now, reading.as_ref().map_or(0, ResidentReading::resident_bytes));
        match reading {
            Ok(reading) => Some(ResidentReading { ticks: begun, ended_ticks: ticks(), ..reading }),
            Err(error) => {
                // A process that has changed its user stays closed. Others may have ended.
                self.is_refused = error.kind() == std::io::ErrorKind::PermissionDenied;
                None
            }
        }
    }
}

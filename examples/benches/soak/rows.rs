//! The measurements between two laps: one row, which the service prints and the watcher parses.

use std::fmt;
use std::fs;
use std::ops::{Index, IndexMut};
use std::path::Path;

/// The columns of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The number of laps so far.
    Lap,
    /// Seconds since the service started.
    Seconds,
    /// memtrack's internal memory, as memtrack reports it.
    OwnBytes,
    /// Live bytes of the C library's heap: memtrack's and the program's.
    HeapBytes,
    /// The resident set.
    ResidentBytes,
    /// The bytes of all files in the folder of recordings.
    FileBytes,
    /// The bytes of all parts of the service's recording.
    RecordingBytes,
    Threads,
    Descriptors,
    Mappings,
    /// Nanoseconds per event of a device.
    DeviceEvent,
    /// Nanoseconds per event of the host heap.
    HostEvent,
    /// Nanoseconds per event with a new stack.
    NewStackEvent,
    /// Nanoseconds to enter and exit an operator.
    Operator,
}

/// The names of the columns, in the same order.
pub const NAMES: [&str; 14] = [
    "lap",
    "seconds",
    "own_bytes",
    "heap_bytes",
    "resident_bytes",
    "file_bytes",
    "recording_bytes",
    "threads",
    "descriptors",
    "mappings",
    "device_event_ns",
    "host_event_ns",
    "new_stack_event_ns",
    "operator_ns",
];

/// A row, which is printed as comma-separated values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row([f64; NAMES.len()]);

impl Index<Column> for Row {
    type Output = f64;

    fn index(&self, column: Column) -> &f64 {
        &self.0[column as usize]
    }
}

impl IndexMut<Column> for Row {
    fn index_mut(&mut self, column: Column) -> &mut f64 {
        &mut self.0[column as usize]
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, value) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let value = (value * 100.0).round() / 100.0;
            write!(f, "{comma}{value}")?;
        }
        Ok(())
    }
}

impl Row {
    /// Parses the output of `Display`.
    pub fn read(line: &str) -> Option<Self> {
        let mut row = Self::default();
        let mut fields = line.split(',');
        for value in &mut row.0 {
            *value = fields.next()?.parse().ok()?;
        }
        fields.next().is_none().then_some(row)
    }

    /// Measures the memory and files of this process and its recordings; the lap and all times are 0.
    pub fn of_now(recordings: &Path) -> Self {
        let mut row = Self::default();
        row[Column::OwnBytes] = memtrack_core::host::own_bytes() as f64;
        row[Column::HeapBytes] = heap_bytes();
        row[Column::ResidentBytes] = status("VmRSS:") * 1024.0;
        row[Column::Threads] = status("Threads:");
        row[Column::Descriptors] = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as f64;
        row[Column::Mappings] =
            fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count()) as f64;
        for file in fs::read_dir(recordings).into_iter().flatten().flatten() {
            let bytes = file.metadata().map_or(0, |data| data.len()) as f64;
            let name = file.file_name().to_string_lossy().into_owned();
            row[Column::FileBytes] += bytes;
            if name == "soak.memtrack" || name.starts_with("soak.memtrack.part-") {
                row[Column::RecordingBytes] += bytes;
            }
        }
        row
    }
}

/// Returns the number after `name` in `/proc/self/status`.
fn status(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value =
        status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    value.unwrap_or(0.0)
}

/// Returns the live bytes in all malloc arenas and in blocks with separate mappings.
#[allow(unsafe_code)]
fn heap_bytes() -> f64 {
    // SAFETY: only reads the C library's counts.
    let counts = unsafe { libc::mallinfo2() };
    (counts.uordblks + counts.hblkhd) as f64
}

//! Monitors that monitor nothing.

use crate::Recording;
use memtrack_model::Snapshot;
use memtrack_model::options::Options;
use std::io;
use std::path::Path;

/// Starts monitoring; without the recorder it does nothing.
pub fn start_monitor() {}

/// Starts monitoring; without the recorder it does nothing, and no file is created.
///
/// # Errors
/// None.
pub fn start_monitor_with(_options: &Options) -> io::Result<()> {
    Ok(())
}

/// Ends a monitor; without the recorder the recording is empty.
pub fn stop() -> Recording {
    Recording::default()
}

/// Marks a moment; without the recorder it does nothing.
#[inline(always)]
pub fn mark(_name: &str) {}

/// Everything recorded so far; without the recorder `None`.
pub fn snapshot() -> Option<Snapshot> {
    None
}

/// Writes what was recorded so far; without the recorder nothing is written.
///
/// # Errors
/// None.
pub fn dump_snapshot(_path: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}

/// Draws what each segment currently holds; without the recorder nothing is written.
///
/// # Errors
/// None.
#[cfg(feature = "plot")]
pub fn save_segment_usage(_path: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}

/// Draws what the segments of each stream currently hold; without the recorder nothing is written.
///
/// # Errors
/// None.
#[cfg(feature = "plot")]
pub fn save_memory_usage(_path: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}

/// Who holds the memory now; `None` without the recorder.
#[cfg(feature = "report")]
pub fn who_holds(
    _device: Option<memtrack_model::event::DeviceId>,
) -> Option<memtrack_report::analysis::holds::WhoHolds> {
    None
}

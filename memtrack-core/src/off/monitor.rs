//! The monitors in builds without the recorder, which record nothing.

use crate::Recording;
use memtrack_model::Snapshot;
use memtrack_model::options::Options;
use std::io;
use std::path::Path;

/// Starts monitoring. Does nothing without the recorder.
pub fn start_monitor() {}

/// Starts monitoring. Without the recorder, this does nothing and creates no file.
///
/// # Errors
/// Never fails.
pub fn start_monitor_with(_options: &Options) -> io::Result<()> {
    Ok(())
}

/// Ends a monitor. Without the recorder, the recording is empty.
pub fn stop() -> Recording {
    Recording::default()
}

/// Marks a point in time. Does nothing without the recorder.
#[inline(always)]
pub fn mark(_name: &str) {}

/// Returns everything recorded so far, which is `None` without the recorder.
pub fn snapshot() -> Option<Snapshot> {
    None
}

/// Writes what has been recorded so far. Without the recorder, nothing is written.
///
/// # Errors
/// Never fails.
pub fn dump_snapshot(_path: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}

/// Draws the current contents of each segment. Without the recorder, nothing is written.
///
/// # Errors
/// Never fails.
#[cfg(feature = "plot")]
pub fn save_segment_usage(_path: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}

/// Draws the current contents of each stream's segments. Without the recorder, nothing is written.
///
/// # Errors
/// Never fails.
#[cfg(feature = "plot")]
pub fn save_memory_usage(_path: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}

/// Returns the current holders of memory, or `None` without the recorder.
#[cfg(feature = "report")]
pub fn who_holds(
    _device: Option<memtrack_model::event::DeviceId>,
) -> Option<memtrack_report::holds::WhoHolds> {
    None
}

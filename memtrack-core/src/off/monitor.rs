//! The monitors of a build without the recorder, which record nothing.

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
/// Never fails.
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

/// Returns everything recorded so far; without the recorder `None`.
pub fn snapshot() -> Option<Snapshot> {
    None
}

/// Writes the recording so far; without the recorder nothing is written.
///
/// # Errors
/// Never fails.
pub fn dump_snapshot(_path: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}

/// Draws the current contents of each segment; without the recorder nothing is written.
///
/// # Errors
/// Never fails.
#[cfg(feature = "plot")]
pub fn save_segment_usage(_path: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}

/// Draws the current contents of each stream's segments; without the recorder nothing is written.
///
/// # Errors
/// Never fails.
#[cfg(feature = "plot")]
pub fn save_memory_usage(_path: impl AsRef<Path>) -> io::Result<()> {
    Ok(())
}

/// Returns the current holders of memory; `None` without the recorder.
#[cfg(feature = "report")]
pub fn who_holds(
    _device: Option<memtrack_model::event::DeviceId>,
) -> Option<memtrack_report::analysis::holds::WhoHolds> {
    None
}

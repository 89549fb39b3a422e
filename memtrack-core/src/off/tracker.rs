//! The tracker in builds without the recorder. It records nothing, but loads and displays saved data as usual.

use crate::tracker::{Mark, StatsError, Summary, TrackerStats};
use memtrack_model::event::DeviceId;
use memtrack_model::options::Options;
use std::io;
use std::path::Path;

/// The series of operators. Without the recorder, it is empty unless it was loaded from a file.
#[derive(Debug, Default)]
pub struct MemoryTracker {
    loaded: Option<TrackerStats>,
}

impl MemoryTracker {
    /// Creates a tracker. Without the recorder, it records nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a tracker for one device. Without the recorder, it records nothing.
    pub fn on(_device: DeviceId) -> Self {
        Self::default()
    }

    /// Drops the tracker's data. Without the recorder, this does nothing else.
    pub fn start_monitor(&mut self) {
        self.loaded = None;
    }

    /// Drops the tracker's data. Without the recorder, this does nothing else and creates no file.
    ///
    /// # Errors
    /// Never fails.
    pub fn start_monitor_with(&mut self, _options: &Options) -> io::Result<()> {
        self.start_monitor();
        Ok(())
    }

    /// Ends recording. Without the recorder, nothing was recorded.
    pub fn stop(&mut self) {}

    /// Returns the operators with the largest growth. Without the recorder there are none, unless the tracker was
    /// loaded from a file.
    ///
    /// # Errors
    /// Fails when the tracker was loaded and has no records.
    pub fn summary(&self, top: usize) -> Result<Summary, StatsError> {
        match &self.loaded {
            Some(stats) => stats.summary(top),
            None => TrackerStats::default().summary_since(top, 0.0),
        }
    }

    /// Writes four figures, as with the recorder.
    ///
    /// # Errors
    /// Fails when the suffix is neither `.html` nor `.svg`, when there are no records, or when a file cannot be
    /// written.
    #[cfg(feature = "plot")]
    pub fn show_traces(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<Vec<std::path::PathBuf>, memtrack_tracker::figures::FigureError> {
        memtrack_tracker::figures::write_figures(&self.stats(), path)
    }

    /// Writes the data as the pickle that PyTorch's `MemoryTracker.load` reads. An existing file is replaced. Without
    /// the recorder, nothing is written unless the tracker was loaded from a file.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub fn save_stats(&self, path: impl AsRef<Path>) -> Result<(), StatsError> {
        self.loaded.as_ref().map_or(Ok(()), |stats| stats.save_stats(path))
    }

    /// Reads a file written by PyTorch's or memtrack's `save_stats`. Nothing in the file is executed.
    ///
    /// # Errors
    /// Fails when the file cannot be read or was not written by `save_stats`.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, StatsError> {
        Ok(Self { loaded: Some(TrackerStats::load(path)?) })
    }

    /// Returns the data. Without the recorder, it is empty unless the tracker was loaded from a file.
    pub fn stats(&self) -> TrackerStats {
        self.loaded.clone().unwrap_or_default()
    }

    /// Returns the markers of all iterations. Without the recorder, there are none.
    pub fn marks(&self) -> Vec<Mark> {
        Vec::new()
    }
}

//! The tracker of a build without the recorder: it records nothing, but loads and displays saved data as usual.

use crate::tracker::{Mark, StatsError, Summary, TrackerStats};
use memtrack_model::event::DeviceId;
use memtrack_model::options::Options;
use std::io;
use std::path::Path;

/// The series of operators; without the recorder it is empty, unless it was loaded from a file.
#[derive(Debug, Default)]
pub struct MemoryTracker {
    loaded: Option<TrackerStats>,
}

impl MemoryTracker {
    /// Creates a tracker; without the recorder it records nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a tracker of one device; without the recorder it records nothing.
    pub fn on(_device: DeviceId) -> Self {
        Self::default()
    }

    /// Drops the tracker's data; without the recorder it does nothing else.
    pub fn start_monitor(&mut self) {
        self.loaded = None;
    }

    /// Drops the tracker's data; without the recorder it does nothing else, and no file is created.
    ///
    /// # Errors
    /// Never fails.
    pub fn start_monitor_with(&mut self, _options: &Options) -> io::Result<()> {
        self.start_monitor();
        Ok(())
    }

    /// Ends recording; without the recorder nothing was recorded.
    pub fn stop(&mut self) {}

    /// Returns the operators with the largest growth; without the recorder there are none, unless the tracker was loaded from a
    /// file.
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
    /// Fails when the suffix is neither `.html` nor `.svg`, there are no records, or a file cannot be
    /// written.
    #[cfg(feature = "plot")]
    pub fn show_traces(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<Vec<std::path::PathBuf>, memtrack_report::tracker::figures::FigureError> {
        memtrack_report::tracker::figures::write_figures(&self.stats(), path)
    }

    /// Writes the data as the pickle that PyTorch's `MemoryTracker.load` reads. An existing file is replaced. Without the
    /// recorder nothing is written, unless the tracker was loaded from a file.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub fn save_stats(&self, path: impl AsRef<Path>) -> Result<(), StatsError> {
        self.loaded.as_ref().map_or(Ok(()), |stats| stats.save_stats(path))
    }

    /// Reads a file that PyTorch's or memtrack's `save_stats` wrote. Nothing in the file is executed.
    ///
    /// # Errors
    /// Fails when the file cannot be read or was not written by `save_stats`.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, StatsError> {
        Ok(Self { loaded: Some(TrackerStats::load(path)?) })
    }

    /// Returns the data; without the recorder it is empty, unless the tracker was loaded from a file.
    pub fn stats(&self) -> TrackerStats {
        self.loaded.clone().unwrap_or_default()
    }

    /// Returns the markers of all iterations; without the recorder there are none.
    pub fn marks(&self) -> Vec<Mark> {
        Vec::new()
    }
}

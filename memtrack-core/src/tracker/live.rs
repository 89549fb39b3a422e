//! The tracker of a running program. It reads one device's counters after every operator and sets markers at the start
//! and the end of the root module. [`MemoryTracker`] is PyTorch's `MemoryTracker`, driven by memtrack's scopes.
//!
//! **Why is a backward or optimizer scope a single entry?** With candle or burn, the code inside it cannot be
//! annotated. PyTorch's series contain the operators inside it instead.

use super::{Mark, StatsError, Summary, TrackerStats};
use memtrack_model::event::DeviceId;
use memtrack_model::options::Options;
use std::io;
use std::path::Path;
#[cfg(feature = "record")]
use {
    super::run::{Observer, Run, State, change_trackers},
    memtrack_model::Snapshot,
    memtrack_recorder::recorder::{generation, recent_resident_bytes, session},
    memtrack_recorder::{message, reentry, scope},
    std::sync::{Arc, Mutex},
};

/// PyTorch's `MemoryTracker` for Rust: one device's counters after every operator, in order, with the markers
/// `fw_start` and `fw_bw_boundary` of the root module.
///
/// The semantics are those of PyTorch 2.15 with its known defects fixed: the module path is restored when a module
/// ends, and the markers of all iterations are kept ([`Self::marks`]; like PyTorch's, the file contains only the
/// newest). Values are in MiB. For the host heap, allocated and active are both the bytes allocated since monitoring
/// started minus those freed (below zero if older memory was freed), and reserved is the process's resident set, read
/// at most about 2.4 ms earlier. A `backward` or `optimizer` scope is recorded like an operator when it ends, because
/// with most frameworks the code inside it cannot be annotated. A long run keeps the newest operators
/// ([`Options::tracker_entries`]) and only the data about older ones that [`Self::summary`] needs. An operator that
/// ends in a panic is not recorded, just as PyTorch's hooks would not run.
///
/// ```
/// use memtrack_core::{scope, tracker::MemoryTracker};
///
/// let mut tracker = MemoryTracker::new();
/// tracker.start_monitor();
/// {
///     let _net = scope::root("Net");
///     let _op = scope::operator("matmul");
/// }
/// tracker.stop();
/// assert_eq!(&*tracker.stats().memories_allocated[0].operator, ".forward.matmul_0");
/// println!("{}", tracker.summary(20)?);
/// # Ok::<(), memtrack_core::tracker::StatsError>(())
/// ```
#[derive(Debug)]
pub struct MemoryTracker {
    /// The run; `None` only while the tracker is being dropped.
    #[cfg(feature = "record")]
    run: Option<Arc<Run>>,
    #[cfg(feature = "record")]
    running: bool,
    /// Whether the data was loaded from a file, in which case the summary is the one that PyTorch prints.
    #[cfg(feature = "record")]
    loaded: bool,
    /// The data, if it was loaded from a file. Without the recorder, there is no other.
    #[cfg(not(feature = "record"))]
    loaded: Option<TrackerStats>,
}

impl Default for MemoryTracker {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryTracker {
    /// Creates a tracker for the first accelerator that reports memory, or for the host heap if none does.
    pub fn new() -> Self {
        Self::with_device(None)
    }

    /// Creates a tracker for one device.
    pub fn on(device: DeviceId) -> Self {
        Self::with_device(Some(device))
    }

    #[cfg(feature = "record")]
    fn with_device(device: Option<DeviceId>) -> Self {
        let _inside = reentry::enter();
        let run = Arc::new(Run { device, state: Mutex::default() });
        Self { run: Some(run), running: false, loaded: false }
    }

    #[cfg(not(feature = "record"))]
    fn with_device(_: Option<DeviceId>) -> Self {
        Self { loaded: None }
    }

    /// Drops the tracker's data and starts recording, alongside any other monitors. If the tracker is already running,
    /// this only prints a message on stderr (PyTorch raises an assertion error).
    pub fn start_monitor(&mut self) {
        let started = self.start_monitor_with(&Options::default());
        debug_assert!(started.is_ok(), "without a file nothing can fail");
    }

    /// Starts recording like [`Self::start_monitor`], but with options. They apply only if no other monitor is running;
    /// otherwise, those of the first monitor remain in effect.
    ///
    /// # Errors
    /// Fails when the output file cannot be created or the suffix of [`Options::dump_on_oom`] does not belong to a
    /// known format. The tracker is not running in that case.
    pub fn start_monitor_with(&mut self, options: &Options) -> io::Result<()> {
        #[cfg(feature = "record")]
        return self.start(options);
        #[cfg(not(feature = "record"))]
        {
            self.loaded = None;
            Ok(())
        }
    }

    /// Stops recording and keeps the data. If this was the last monitor, the session's recording is written.
    pub fn stop(&mut self) {
        #[cfg(feature = "record")]
        if let Some(snapshot) = self.end() {
            self.find_peak(&snapshot);
            let _inside = reentry::enter();
            drop(snapshot);
        }
    }

    /// Returns the operators with the largest growth. The summary of a loaded tracker is exactly PyTorch's, which uses
    /// the first record only as a baseline. The summary of a recorded tracker also lists the first record.
    ///
    /// # Errors
    /// Fails when the tracker was loaded and has no records.
    pub fn summary(&self, top: usize) -> Result<Summary, StatsError> {
        #[cfg(feature = "record")]
        let (is_loaded, baseline_mib) = (self.loaded, self.run().lock_state().baseline_mib());
        #[cfg(not(feature = "record"))]
        let (is_loaded, baseline_mib) = (self.loaded.is_some(), 0.0);
        if is_loaded { self.stats().summary(top) } else { self.stats().summary_since(top, baseline_mib) }
    }

    /// Writes four figures with markers: allocated, active and reserved memory, both together and separately. `F.html`
    /// is a single page, while `F.svg` becomes `F-{all,allocated,active,reserved}.svg`. Existing files are replaced.
    /// Returns the paths written.
    ///
    /// # Errors
    /// Fails when the suffix is neither `.html` nor `.svg`, when there are no records, or when a file cannot be
    /// written.
    #[cfg(feature = "plot")]
    pub fn show_traces(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<Vec<std::path::PathBuf>, memtrack_report::tracker::figures::FigureError> {
        memtrack_report::tracker::figures::write_figures(&self.stats(), path)
    }

    /// Writes the data as the pickle that PyTorch's `MemoryTracker.load` reads. An existing file is replaced. Without the
    /// recorder, nothing is written unless the tracker was loaded from a file.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub fn save_stats(&self, path: impl AsRef<Path>) -> Result<(), StatsError> {
        #[cfg(not(feature = "record"))]
        if self.loaded.is_none() {
            return Ok(());
        }
        self.stats().save_stats(path)
    }

    /// Reads a file written by PyTorch's or memtrack's `save_stats`. Nothing in the file is executed.
    ///
    /// # Errors
    /// Fails when the file cannot be read or was not written by `save_stats`.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, StatsError> {
        let stats = TrackerStats::load(path)?;
        let mut tracker = Self::new();
        #[cfg(feature = "record")]
        {
            tracker.loaded = true;
            tracker.run().lock_state().loaded = Some(stats);
        }
        #[cfg(not(feature = "record"))]
        {
            tracker.loaded = Some(stats);
        }
        Ok(tracker)
    }

    /// Returns the data so far: the newest operators, and a summary of older ones.
    pub fn stats(&self) -> TrackerStats {
        #[cfg(feature = "record")]
        return self.copy();
        #[cfg(not(feature = "record"))]
        self.loaded.clone().unwrap_or_default()
    }

    /// Returns the newest 65,536 markers of all iterations, in order.
    pub fn marks(&self) -> Vec<Mark> {
        #[cfg(feature = "record")]
        return self.run().marks();
        #[cfg(not(feature = "record"))]
        Vec::new()
    }
}

#[cfg(feature = "record")]
impl MemoryTracker {
    fn run(&self) -> &Arc<Run> {
        self.run.as_ref().expect("the run is present until the tracker is dropped")
    }

    /// Creates a tracker that can stop the session that a forked child inherited. In any other process, the tracker is
    /// not running.
    pub(crate) fn inherited() -> Self {
        let mut tracker = Self::new();
        tracker.running = generation() > 0;
        tracker
    }

    /// Starts recording, unless this tracker is already running.
    fn start(&mut self, options: &Options) -> io::Result<()> {
        if self.running {
            message::print("this tracker is already running; start_monitor changes nothing");
            return Ok(());
        }
        scope::observe(&Observer);
        let joined = crate::monitor::begin(options)?;
        let inside = reentry::enter();
        let start_sums = session::sums_at_start();
        let mut state = State::starting_at(start_sums, options.tracker_entries);
        // Drop the earlier data while no lock is held.
        std::mem::swap(&mut *self.run().lock_state(), &mut state);
        drop(state);
        // Create the reader for the resident set now rather than when an operator ends.
        recent_resident_bytes();
        self.run().set_baseline();
        self.loaded = false;
        if !joined {
            return Ok(());
        }
        change_trackers(|trackers| trackers.push(Arc::clone(self.run())));
        self.running = true;
        drop(inside);
        crate::monitor::warn_without_source();
        Ok(())
    }

    /// Stops recording and returns the recorded snapshot if this tracker was running. If the recording cannot be
    /// written, prints a message.
    fn end(&mut self) -> Option<Snapshot> {
        let (snapshot, written) = self.stop_session()?;
        if let Err(error) = written {
            message::print(format_args!("the recording could not be written: {error}"));
        }
        Some(snapshot)
    }

    /// Finds the peak in the recorded snapshot. It may lie between two operators. Later calls do nothing.
    pub(crate) fn find_peak(&self, snapshot: &Snapshot) {
        let _inside = reentry::enter();
        self.run().find_peak(snapshot);
    }

    /// Stops recording and returns the session's snapshot and whether the recording was written, or `None` if the
    /// tracker is not running.
    pub(crate) fn stop_session(&mut self) -> Option<(Snapshot, io::Result<()>)> {
        if !std::mem::take(&mut self.running) {
            return None;
        }
        let _inside = reentry::enter();
        change_trackers(|trackers| trackers.retain(|run| !Arc::ptr_eq(run, self.run())));
        Some(session::stop())
    }

    /// Returns a copy of the data so far.
    fn copy(&self) -> TrackerStats {
        let _copying = reentry::enter();
        let copy = self.run().copy();
        let stats = reentry::outside(|| copy.stats());
        drop(copy);
        stats
    }
}

#[cfg(feature = "record")]
impl Drop for MemoryTracker {
    fn drop(&mut self) {
        let _inside = reentry::enter();
        drop(self.end());
        self.run = None;
    }
}

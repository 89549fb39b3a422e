//! The tracker while a program runs: after every operator it reads the counters of one device, and at the root module's
//! ends it sets markers. PyTorch's `MemoryTracker` on memtrack's scopes: see [`MemoryTracker`].

use super::run::{Mark, Observer, Run, State, TRACKERS};
use super::{StatsError, Summary, TrackerStats};
use memtrack_model::event::DeviceId;
use memtrack_recorder::message;
use memtrack_recorder::recorder::{Options, generation, session};
use memtrack_recorder::reentry;
use memtrack_recorder::scope;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// PyTorch's `MemoryTracker` for Rust: the counters of one device after every operator, in order, with the markers
/// `fw_start` and `fw_bw_boundary` of the root module.
///
/// Semantics as in PyTorch 2.15, with the known defects mended: the module path is restored when a module ends, and all
/// iterations' markers are kept ([`Self::marks`]; the file holds the newest, as PyTorch's does). Values are MiB. For the
/// host heap allocated = active = the bytes handed out since monitoring began less those given back (below zero when
/// older memory was freed), and reserved is the resident set of the process, as it was some 100 µs before at most. A `backward` or
/// `optimizer` scope is recorded like an operator when it ends: with most frameworks nothing inside it can be annotated.
/// A long run keeps the newest operators ([`Options::tracker_entries`]) and of the others what [`Self::summary`] needs.
/// An operator that ends in a panic is not recorded, as PyTorch's hooks would not run.
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
    /// There until it is dropped.
    run: Option<Arc<Run>>,
    running: bool,
    /// Whether the data came from a file, which is printed as PyTorch prints it.
    loaded: bool,
}

impl Default for MemoryTracker {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryTracker {
    /// A tracker of the first accelerator that reports memory, and of the host heap where none does.
    pub fn new() -> Self {
        Self::with_device(None)
    }

    /// A tracker of one device.
    pub fn on(device: DeviceId) -> Self {
        Self::with_device(Some(device))
    }

    fn with_device(asked: Option<DeviceId>) -> Self {
        let _inside = reentry::enter();
        let run = Arc::new(Run { asked, state: Mutex::default() });
        Self { run: Some(run), running: false, loaded: false }
    }

    fn run(&self) -> &Arc<Run> {
        self.run.as_ref().expect("it is taken when the tracker is dropped")
    }

    /// What stops the session that the child of a fork goes on with; anywhere else a tracker that does not run.
    pub(crate) fn inherited() -> Self {
        let mut tracker = Self::new();
        tracker.running = generation() > 0;
        tracker
    }

    /// Forgets what the tracker holds and begins to record, together with whatever else is monitoring. Starting a
    /// tracker that runs is said on stderr and changes nothing (PyTorch: an assertion error).
    pub fn start_monitor(&mut self) {
        let started = self.start_monitor_with(&Options::default());
        debug_assert!(started.is_ok(), "without a file nothing can fail");
    }

    /// As [`Self::start_monitor`]. The options count when nothing else is monitoring: the first monitor decides.
    ///
    /// # Errors
    /// When the file to stream to cannot be created, or the name of [`Options::dump_on_oom`] says no format; the
    /// tracker does not run then.
    pub fn start_monitor_with(&mut self, options: &Options) -> io::Result<()> {
        if self.running {
            message::say("this tracker is running already; start_monitor changes nothing");
            return Ok(());
        }
        scope::observe(&Observer);
        let joined = crate::monitor::begin(options)?;
        let inside = reentry::enter();
        let zero = session::sums_at_start();
        *self.run().state() = State::since(zero, options.tracker_entries);
        self.run().set_first();
        self.loaded = false;
        if !joined {
            return Ok(());
        }
        TRACKERS.get().write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(self.run()));
        self.running = true;
        drop(inside);
        crate::monitor::warn_without_source();
        Ok(())
    }

    /// Ends recording; what was recorded stays. The recording of the session is written if this was the last monitor.
    pub fn stop(&mut self) {
        if let Some((_, Err(error))) = self.stop_session() {
            message::say(format_args!("the recording could not be written: {error}"));
        }
    }

    /// Ends recording and hands out what the session recorded; `None` when the tracker does not run.
    pub(crate) fn stop_session(&mut self) -> Option<(memtrack_model::snapshot::Snapshot, io::Result<()>)> {
        if !std::mem::take(&mut self.running) {
            return None;
        }
        let _inside = reentry::enter();
        TRACKERS
            .get()
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|run| !Arc::ptr_eq(run, self.run()));
        Some(session::stop())
    }

    /// The operators with the largest growth. A tracker that recorded lists its first record too; one that was loaded
    /// prints exactly as PyTorch, where the first record is only a baseline.
    ///
    /// # Errors
    /// For a loaded tracker when there is no record.
    pub fn summary(&self, top: usize) -> Result<Summary, StatsError> {
        let (stats, first_mib) = (self.stats(), self.run().state().first_mib());
        if self.loaded { stats.summary(top) } else { stats.summary_since(top, first_mib) }
    }

    /// Writes the four figures (allocated, active, reserved; together and one each, with markers): `F.html` as one page,
    /// `F.svg` as `F-{all,allocated,active,reserved}.svg`. Files that exist are replaced. Returns the files.
    ///
    /// # Errors
    /// When the suffix is another one, there is no record, or a file cannot be written.
    #[cfg(feature = "plot")]
    pub fn show_traces(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<Vec<std::path::PathBuf>, memtrack_report::tracker::figures::FigureError> {
        memtrack_report::tracker::figures::write_figures(&self.stats(), path)
    }

    /// Writes the data as the pickle that PyTorch's `MemoryTracker.load` reads. A file that exists is replaced.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save_stats(&self, path: impl AsRef<Path>) -> Result<(), StatsError> {
        self.stats().save_stats(path)
    }

    /// Reads what PyTorch's or memtrack's `save_stats` wrote. Nothing in the file is executed.
    ///
    /// # Errors
    /// When the file cannot be read or is something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, StatsError> {
        let stats = TrackerStats::load(path)?;
        let mut tracker = Self::new();
        tracker.loaded = true;
        tracker.run().state().loaded = Some(stats);
        Ok(tracker)
    }

    /// The data so far: the newest operators, and what is known of those before them.
    pub fn stats(&self) -> TrackerStats {
        let _copying = reentry::enter();
        let copy = self.run().state().copy();
        let stats = reentry::outside(|| copy.stats());
        drop(copy);
        stats
    }

    /// The markers of all iterations, in order: the newest 65,536.
    pub fn marks(&self) -> Vec<Mark> {
        self.run().state().marks()
    }
}

impl Drop for MemoryTracker {
    fn drop(&mut self) {
        self.stop();
        let _inside = reentry::enter();
        self.run = None;
    }
}

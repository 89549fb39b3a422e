//! The front door for programs: start monitoring, stop, and hold what was recorded.

use crate::analysis::patterns::Patterns;
use crate::analysis::phases::{PhaseReport, phases};
use crate::analysis::top::{By, TopOptions, TopReport, top_with};
use crate::event::DeviceId;
use crate::recorder::{ForkCell, Options, session};
use crate::snapshot::Snapshot;
use crate::stack::symbols::Symbolizer;
use crate::tracker::MemoryTracker;
use crate::{host, message, reentry, switch};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};

/// The trackers of the free functions, the newest last.
static MONITORS: ForkCell<Mutex<Vec<MemoryTracker>>> = ForkCell::new(|| Mutex::new(Vec::new()));

/// Starts monitoring with the default options. Nests: each [`stop`] ends the newest monitor.
///
/// Warns once on stderr when the program has no event source.
pub fn start_monitor() {
    let started = start_monitor_with(&Options::default());
    debug_assert!(started.is_ok(), "without a file nothing can fail");
}

/// Starts monitoring. The options of the outermost monitor count.
///
/// # Errors
/// When the file to stream to cannot be created, or the name of [`Options::dump_on_oom`] says no format; nothing is
/// monitored then.
pub fn start_monitor_with(options: &Options) -> io::Result<()> {
    let mut tracker = MemoryTracker::new();
    tracker.start_monitor_with(options)?;
    let _inside = reentry::enter();
    MONITORS.get().lock().unwrap_or_else(PoisonError::into_inner).push(tracker);
    Ok(())
}

/// Ends the newest monitor and hands out what was recorded. The outermost one ends recording and writes the file that
/// its options name; if that fails, stderr says so.
///
/// Without a monitor the recording is empty.
pub fn stop() -> Recording {
    let _inside = reentry::enter();
    let newest = MONITORS.get().lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut tracker = newest.unwrap_or_else(MemoryTracker::inherited);
    let (snapshot, written) = tracker.stop_session().unwrap_or((Snapshot::default(), Ok(())));
    if let Err(error) = written {
        message::say(format_args!("the recording could not be written: {error}"));
    }
    Recording { tracker, snapshot, patterns: Patterns::default() }
}

/// Everything recorded so far, while recording goes on; `None` when nothing is monitored. Exact at one moment, and
/// threads go on recording while it is taken.
///
/// The tables are memtrack's own memory, wherever they are dropped. A copy of them is the program's.
pub fn snapshot() -> Option<Snapshot> {
    session::snapshot().map(Snapshot::marked_as_ours)
}

/// What one monitor recorded: events, what is live, and the tracker's series.
///
/// Numbers that come from sampled blocks are estimates and shown with their error (`1.3 GiB ± 4 %`), or as a bound (`< 40.0
/// MiB`). Printing it shows the top operators and the
/// phases of each device.
pub struct Recording {
    tracker: MemoryTracker,
    snapshot: Snapshot,
    patterns: Patterns,
}

impl Recording {
    /// The operators' series and markers.
    pub fn tracker(&self) -> &MemoryTracker {
        &self.tracker
    }

    /// Everything recorded, as column tables.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Names operators of your own by their functions where no scope was open: `my_crate::ops::*`. Asked before the
    /// built-in patterns.
    pub fn with_pattern(mut self, glob: &str) -> Self {
        self.patterns = self.patterns.clone().with(glob);
        self
    }

    /// The `rows` largest operators, modules, stacks or phases of the first device (an accelerator where one reported,
    /// else the host heap). Looks symbols up, which takes a moment the first time.
    pub fn top(&self, by: By, rows: usize) -> TopReport {
        self.top_of(self.first_device(), by, rows)
    }

    /// As [`Self::top`] for one device.
    pub fn top_of(&self, device: DeviceId, by: By, rows: usize) -> TopReport {
        reentry::hand_over(|| {
            let options = TopOptions { limit: rows, patterns: self.patterns.clone(), at: None };
            top_with(&self.snapshot, &mut Symbolizer::of(&self.snapshot), by, device, &options)
        })
    }

    /// What each phase allocated, and where the peak was, for the first device.
    pub fn phases(&self) -> PhaseReport {
        phases(&self.snapshot, self.first_device())
    }

    /// Writes the recording as a `.memtrack` file, replacing what is there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let _inside = reentry::enter();
        let path = path.as_ref();
        session::naming(path, || self.snapshot.save(path))
    }

    /// Device ids are sorted, and the host's is the largest.
    fn first_device(&self) -> DeviceId {
        self.snapshot.device_ids().first().copied().unwrap_or(DeviceId::HOST)
    }
}

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.snapshot.device_ids().is_empty() {
            return f.write_str("Nothing was recorded.");
        }
        for device in self.snapshot.device_ids() {
            writeln!(f, "{}", self.top_of(device, By::suited_to(&self.snapshot), 20))?;
            writeln!(f, "{}", phases(&self.snapshot, device))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.snapshot.events.len();
        f.debug_struct("Recording")
            .field("events", &events)
            .field("tracker", &self.tracker)
            .finish_non_exhaustive()
    }
}

impl Drop for Recording {
    /// Its tables were not recorded when they were made, so they are not recorded when they go.
    fn drop(&mut self) {
        let _inside = reentry::enter();
        self.snapshot = Snapshot::default();
    }
}

/// In the child of a fork: the monitors stay with the parent.
pub(crate) fn reset_after_fork() {
    MONITORS.forget();
}

/// Says once which line is missing when the host heap is wanted and the allocator is not installed.
pub(crate) fn warn_without_source() {
    static WARNED: Once = Once::new();
    #[cfg(feature = "cuda")]
    crate::cuda::warn_without_hook();
    #[cfg(feature = "cuda")]
    let seen = "CUDA memory and what allocators report by memtrack_core::recorder";
    #[cfg(not(feature = "cuda"))]
    let seen = "what allocators report by memtrack_core::recorder";
    // The session's first options decide, not those of a monitor that joined.
    if switch::is_on(switch::HOST) && !host::is_installed() {
        WARNED.call_once(|| {
            message::say(format_args!(
                "no event source is installed for the host heap: only {seen} is seen. For the \
                 host heap add to the program:\n    #[global_allocator]\n    static ALLOCATOR: \
                 memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();\nor, if it is not \
                 wanted, start with Options::without_host_heap()."
            ));
        });
    }
}

//! The entry points for programs: starting and stopping monitoring. Without the feature `record`, nothing is monitored.

use crate::Recording;
use memtrack_model::Snapshot;
use memtrack_model::options::Options;
use std::io;
#[cfg(feature = "record")]
use {
    memtrack_recorder::recorder::{ForkCell, session},
    memtrack_recorder::{host, message, reentry, switch},
    std::sync::{Mutex, Once},
};

#[cfg(all(feature = "record", not(feature = "report")))]
use crate::plain::Monitor;
#[cfg(all(feature = "record", feature = "report"))]
use crate::tracker::MemoryTracker as Monitor;

/// The monitors started by [`start_monitor`] and [`start_monitor_with`], newest last.
#[cfg(feature = "record")]
static MONITORS: ForkCell<Mutex<Vec<Monitor>>> = ForkCell::new(|| Mutex::new(Vec::new()));

/// Starts monitoring with the default options. Monitors can be nested; each [`stop`] ends the newest one.
///
/// Prints a warning on stderr, once, if the program has no source of events.
pub fn start_monitor() {
    let started = start_monitor_with(&Options::default());
    debug_assert!(started.is_ok(), "without a file nothing can fail");
}

/// Starts monitoring. Monitors can be nested, in which case the options of the outermost one apply.
///
/// # Errors
/// Fails when the output file cannot be created or the suffix of [`Options::dump_on_oom`] does not belong to a known
/// format. Nothing is monitored in that case.
pub fn start_monitor_with(options: &Options) -> io::Result<()> {
    #[cfg(feature = "record")]
    {
        let mut monitor = Monitor::new();
        monitor.start_monitor_with(options)?;
        let _inside = reentry::enter();
        MONITORS.lock().push(monitor);
    }
    Ok(())
}

/// Ends the newest monitor and returns its recording. Ending the outermost monitor ends the recording and writes the
/// file that its options name; if that fails, a message is printed on stderr.
///
/// Returns an empty recording if nothing is being monitored.
pub fn stop() -> Recording {
    #[cfg(feature = "record")]
    return end_newest();
    #[cfg(not(feature = "record"))]
    Recording::default()
}

/// Ends the newest monitor and returns its recording.
#[cfg(feature = "record")]
fn end_newest() -> Recording {
    let _inside = reentry::enter();
    let newest = MONITORS.lock().pop();
    let mut monitor = newest.unwrap_or_else(Monitor::inherited);
    // If an outer monitor is still recording, the program may drop the returned value during that recording.
    // `allocate_for_program` prevents these frees from being recorded.
    let stopped = host::allocate_for_program(|| monitor.stop_session());
    let (snapshot, written) = stopped.unwrap_or((Snapshot::default(), Ok(())));
    if let Err(error) = written {
        message::print(format_args!("the recording could not be written: {error}"));
    }
    Recording::of(snapshot, monitor)
}

/// Returns everything recorded so far while recording continues, or `None` if nothing is being monitored. The snapshot
/// shows the state at one exact point in time, and threads keep recording while it is taken.
///
/// The snapshot's tables count as memtrack's own memory and are not recorded, regardless of which threads drop them. A
/// clone counts as the program's memory.
pub fn snapshot() -> Option<Snapshot> {
    #[cfg(feature = "record")]
    return host::allocate_for_program(session::snapshot);
    #[cfg(not(feature = "record"))]
    None
}

/// Starts a session or joins the running one. Returns whether the caller became a monitor of the session.
#[cfg(feature = "record")]
pub(crate) fn begin(options: &Options) -> io::Result<bool> {
    #[cfg(feature = "formats")]
    session::set_dumper(crate::dump::DUMPER);
    #[cfg(feature = "report")]
    memtrack_recorder::recorder::report_hook::set_formatter(crate::who_holds::format_report);
    // Under `memtrack run`, that command's session comes first.
    #[cfg(feature = "cuda")]
    memtrack_cuda::begin_if_requested();
    session::start(options)
}

/// Prints a warning, once, if the host heap should be recorded but the program does not declare the allocator.
#[cfg(feature = "record")]
pub(crate) fn warn_without_source() {
    static WARNED: Once = Once::new();
    #[cfg(feature = "cuda")]
    memtrack_cuda::warn_without_hook();
    #[cfg(feature = "cuda")]
    let seen = "CUDA memory and what allocators report by memtrack_core::recorder";
    #[cfg(not(feature = "cuda"))]
    let seen = "what allocators report by memtrack_core::recorder";
    // The options of the session's first monitor apply, not those of a monitor that joined later.
    if switch::is_on(switch::HOST) && !host::is_installed() {
        WARNED.call_once(|| {
            message::print(format_args!(
                "no event source is installed for the host heap: only {seen} is recorded. To \
                 record the host heap, add this to the program:\n    #[global_allocator]\n    static ALLOCATOR: \
                 memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();\nor, if it is not \
                 wanted, start with Options::without_host_heap()."
            ));
        });
    }
}

//! Watches a running program for cycles that keep device memory alive. A thread's values are scanned at the end of each
//! of its root scopes, and the values that threads share are also scanned every few seconds.
//!
//! Watching is off by default. It takes at most a fiftieth of a thread's time: after a scan that takes time `t`, the
//! thread does not scan again for `50 t`.

mod allocated;
mod report;
mod reported;
mod schedule;
mod shared;
mod warning;

pub(crate) use allocated::frames_of;
pub use allocated::name_allocations;
pub use warning::WatchOptions;

use crate::Findings;
use crate::live::{self, RegisterOptions, Report};
use foldhash::{HashSet, HashSetExt};
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::{message, reentry, scope};
use reported::ReportedKinds;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use warning::WarningWriter;

/// The result of a scan, as passed to the callback of [`observe_cycles`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Observation<'a> {
    /// The report of the scan. Its graph contains the places where device memory was allocated, if they were recorded.
    pub report: &'a Report,
    /// The findings in the report's graph.
    pub findings: &'a Findings,
    /// The indices in [`Findings::cycles`] of the cycles that are new to this observer. A cycle is new if no cycle with
    /// the same types and fields was found before, or if there are ten times as many now.
    pub new: &'a [usize],
}

type Observe = dyn Fn(&Observation<'_>) + Send + Sync;

/// An observer of cycles.
struct Watcher {
    number: u64,
    /// The interval at which it requests scans of shared values, or `None` if it requests none.
    interval: Option<Duration>,
    observe: Box<Observe>,
    reported: Mutex<ReportedKinds>,
}

/// Whether there might be a watcher. The flag is checked when a root scope ends, and it remains set in a forked child,
/// which has no watchers.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// The lock that is held while a watch starts or stops, so that these changes do not interleave.
static CHANGES: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

fn lock_changes() -> MutexGuard<'static, ()> {
    CHANGES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

static WATCHERS: ForkCell<Mutex<Watchers>> = ForkCell::new(Mutex::default);

#[derive(Default)]
struct Watchers {
    next: u64,
    list: Vec<Arc<Watcher>>,
    /// Whether registration was off before the first watch.
    was_off: bool,
}

fn lock_watchers() -> MutexGuard<'static, Watchers> {
    WATCHERS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the shortest interval at which any watcher requests scans of shared values.
fn shortest_interval() -> Option<Duration> {
    lock_watchers().list.iter().filter_map(|watcher| watcher.interval).min()
}

/// Turns on registration: from now on, values are registered, each with the place of its registration. Earlier values
/// are not registered, but they are found through registered values that refer to them. Starting a watch does this too.
///
/// This applies to the whole process. Calls are not counted: one call of [`disable`] undoes any number of them. Root
/// scopes (`#[track_memory(root)]`) are tracked from now on, even while nothing is monitored, because a tracked handle is
/// reported only after the root scope in which it was created has ended.
pub fn enable() {
    enable_with(RegisterOptions::new());
}

/// Like [`enable`], but with options, which replace those of any earlier call.
pub fn enable_with(options: RegisterOptions) {
    let _changes = lock_changes();
    live::enable_with(options);
    track_root_scopes();
}

/// Turns off registration and drops the registrations of shared values and of this thread. Another thread's
/// registrations are dropped when that thread ends. Watchers receive nothing until [`enable`] is called again.
pub fn disable() {
    let _changes = lock_changes();
    scope::keep_enabled(false);
    live::disable();
}

fn track_root_scopes() {
    scope::call_at_root_end(schedule::root_ended);
    scope::keep_enabled(true);
}

/// A handle to a watch, returned by [`warn_device_cycles`] and [`observe_cycles`]. Dropping the handle does not stop
/// the watch.
#[derive(Debug)]
pub struct Watch {
    number: u64,
}

impl Watch {
    /// Stops the watch. When the last watch stops, values are no longer registered, unless registration was on before
    /// the first watch.
    pub fn stop(self) {
        let changes = lock_changes();
        let (gone, is_last, was_off) = {
            let mut watchers = lock_watchers();
            let place = watchers.list.iter().position(|watcher| watcher.number == self.number);
            let gone = place.map(|place| watchers.list.remove(place));
            (gone, watchers.list.is_empty(), watchers.was_off)
        };
        // A forked child has inherited the handle, but no watcher.
        if gone.is_some() && is_last {
            WATCHED.store(false, Ordering::Relaxed);
            if was_off {
                scope::keep_enabled(false);
                live::disable();
            }
        }
        drop(changes);
        // The values that the callback holds are dropped while no lock is held.
        drop(gone);
    }
}

/// Prints a warning on stderr, once for each kind of cycle that keeps device memory alive, and writes a page
/// about the cycle. The message contains the page's path. memtrack does not delete the page.
///
/// Values must be registered ([`register`](crate::register)) after this is called. A thread's values are scanned when
/// one of its root scopes (`#[track_memory(root)]`) ends, and shared values are also scanned every ten seconds. Call
/// [`check`] if neither happens in the program.
///
/// This is the counterpart of `warn_tensor_cycles` in `torch.utils.viz._cycles`, which observes Python's collector.
/// Cycles of reference-counted pointers are never collected, so the memory that they hold is kept until the program
/// ends.
///
/// ```
/// # use memtrack_cycles as cycles;
/// cycles::warn_device_cycles();
/// // … at the end of a root scope, on stderr:
/// // memtrack: 1 cycle that nothing else holds keeps 1.50 GiB (3 device buffers) until the program ends: Trainer
/// // .hooks[0] → Hook .owner → Trainer; see /tmp/memtrack-cycles-4711-1.html
/// ```
pub fn warn_device_cycles() -> Watch {
    warn_device_cycles_with(WatchOptions::new())
}

/// Like [`warn_device_cycles`], but with the given options.
pub fn warn_device_cycles_with(options: WatchOptions) -> Watch {
    let pages = WarningWriter::new(options.clone());
    begin(&options, Box::new(move |observed| pages.warn(observed)))
}

/// Calls `callback` with the result of each scan that finds new cycles. The callback runs on the thread that scanned:
/// at the end of a root scope, in [`check`], or on memtrack's own thread. It may do anything, and a panic in it is
/// reported on stderr.
///
/// This is the counterpart of `observe_tensor_cycles` in `torch.utils.viz._cycles`.
///
/// ```
/// # use memtrack_cycles as cycles;
/// let watch = cycles::observe_cycles(|observed| {
///     for &new in observed.new {
///         eprintln!("{} bytes leak", observed.findings.cycles[new].leaked.known_bytes);
///     }
/// });
/// watch.stop();
/// ```
pub fn observe_cycles(callback: impl Fn(&Observation<'_>) + Send + Sync + 'static) -> Watch {
    begin(&WatchOptions::new(), Box::new(callback))
}

fn begin(options: &WatchOptions, observe: Box<Observe>) -> Watch {
    let _inside = reentry::enter();
    let changes = lock_changes();
    let was_off = !live::is_enabled();
    let number = {
        let mut watchers = lock_watchers();
        watchers.was_off = if watchers.list.is_empty() { was_off } else { watchers.was_off };
        watchers.next += 1;
        let number = watchers.next;
        let interval = options.shared_interval();
        watchers.list.push(Arc::new(Watcher { number, interval, observe, reported: Mutex::default() }));
        number
    };
    if was_off {
        live::enable();
    }
    WATCHED.store(true, Ordering::Relaxed);
    track_root_scopes();
    drop(changes);
    shared::begin();
    Watch { number }
}

/// Scans now, regardless of the time since the last scan, and notifies the watchers. Returns the number of kinds of
/// cycles that were new to at least one watcher, which is 0 if there are no watchers.
pub fn check() -> usize {
    schedule::scan_now()
}

/// Notifies each watcher of the cycles that are new to it. No lock is held during the callbacks.
fn notify(report: &mut Report) -> usize {
    let all = lock_watchers().list.clone();
    let inside = reentry::enter();
    let findings = Findings::of(&report.graph);
    let mut named = false;
    let mut new_cycles = HashSet::new();
    for watcher in &all {
        let new = watcher
            .reported
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .select_new(&report.graph, &findings);
        if new.is_empty() {
            continue;
        }
        if !std::mem::replace(&mut named, true) {
            name_allocations(&mut report.graph);
        }
        new_cycles.extend(new.iter().copied());
        let observed = Observation { report, findings: &findings, new: &new };
        // The callback is the program's code.
        let called = reentry::outside(|| catch_unwind(AssertUnwindSafe(|| (watcher.observe)(&observed))));
        if let Err(panic) = called {
            message::print("a callback of observe_cycles panicked");
            std::mem::forget(panic);
        }
    }
    drop(inside);
    new_cycles.len()
}

//! Watches a running program for cycles that keep device memory alive. A thread's values are scanned at the end of each
//! of its root scopes, and the values that threads share are also scanned every few seconds.
//!
//! Watching is off by default. It takes at most a fiftieth of a thread's time: after a scan that takes time `t`, the
//! thread does not scan again for `50 t`.

mod allocated;
mod report;
mod schedule;
mod warning;
mod watchers;

pub(crate) use allocated::frames_of;
pub use allocated::name_allocations;
pub use warning::WatchOptions;
pub use watchers::Observation;

use crate::live::{self, RegisterOptions};
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::{reentry, scope};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warning::WarningWriter;
use watchers::{Observe, WATCHED, Watcher, lock_watchers};

/// The lock that is held while a watch starts or stops, so that these changes do not interleave.
static CHANGES: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

fn lock_changes() -> MutexGuard<'static, ()> {
    CHANGES.get().lock().unwrap_or_else(PoisonError::into_inner)
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
    live::enable(options);
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
        live::enable(RegisterOptions::new());
    }
    WATCHED.store(true, Ordering::Relaxed);
    track_root_scopes();
    drop(changes);
    schedule::scan_shared_values();
    Watch { number }
}

/// Scans now, regardless of the time since the last scan, and notifies the watchers. Returns the number of kinds of
/// cycles that were new to at least one watcher, which is 0 if there are no watchers.
pub fn check() -> usize {
    schedule::scan_now()
}

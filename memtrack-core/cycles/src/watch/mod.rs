//! Watches a running program for cycles that keep device memory alive: at the end of each root scope the values of its thread,
//! and every few seconds those that threads share.
//!
//! Nothing of it is on before somebody watches. It then takes a fiftieth of a thread's time at most, once a scan takes
//! longer than the scopes between: after a scan, fifty times as long as it took passes before the next on that thread.

mod allocated;
mod look;
mod pages;
mod report;
mod shared;
mod told;

pub(crate) use allocated::frames_of;
pub use allocated::name_allocations;
pub use pages::WatchOptions;

use crate::Findings;
use crate::live::{self, RegisterOptions, Report};
use foldhash::{HashSet, HashSetExt};
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::{message, reentry, scope};
use pages::Pages;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use told::Told;

/// What a scan found, for the callback of [`observe_cycles`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Observed<'a> {
    /// The scan. Its graph says where device memory was allocated, where that is recorded.
    pub report: &'a Report,
    /// What was found in its graph.
    pub findings: &'a Findings,
    /// Those among [`Findings::cycles`] that are new to this observer, by their places: no cycle of the same types and fields was
    /// found before, or there are ten times as many now.
    pub new: &'a [usize],
}

type Observe = dyn Fn(&Observed<'_>) + Send + Sync;

/// Who watches.
struct Watcher {
    number: u64,
    /// How often it wants what threads share to be looked at, if at all.
    every: Option<Duration>,
    observe: Box<Observe>,
    told: Mutex<Told>,
}

/// Whether anybody may watch, for the ends of root scopes; still set in the child of a fork, where nobody does.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Held by whoever begins or ends something, so that nobody ends what another one begins.
static CHANGES: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

fn changes() -> MutexGuard<'static, ()> {
    CHANGES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

static WATCHERS: ForkCell<Mutex<Watchers>> = ForkCell::new(Mutex::default);

#[derive(Default)]
struct Watchers {
    next: u64,
    all: Vec<Arc<Watcher>>,
    /// Whether registration was off before anybody watched.
    was_off: bool,
}

fn watchers() -> MutexGuard<'static, Watchers> {
    WATCHERS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shortest interval at which anybody wants what threads share to be looked at.
fn shortest_interval() -> Option<Duration> {
    watchers().all.iter().filter_map(|watcher| watcher.every).min()
}

/// Registers values from now on, with the place where they were registered. What was made before is not registered, but found where
/// something registered refers to it. Whoever watches has this done.
///
/// It is for the whole process, and not counted. Root scopes (`#[track_memory(root)]`) are followed from now on, also while nothing is
/// monitored: a tracked handle is only reported when the root scope that it was made in has ended.
pub fn enable() {
    enable_with(RegisterOptions::new());
}

/// Like [`enable`], with options, which replace those of an earlier call.
pub fn enable_with(options: RegisterOptions) {
    let _changes = changes();
    live::enable_with(options);
    follow();
}

/// Registers nothing any more, and forgets what all threads share and what this thread has registered; another thread's own values
/// are forgotten when it ends. Who watches sees nothing until [`enable`] is called again.
pub fn disable() {
    let _changes = changes();
    scope::keep_enabled(false);
    live::disable();
}

fn follow() {
    scope::call_at_root_end(look::root_ended);
    scope::keep_enabled(true);
}

/// Somebody who watches; made by [`warn_device_cycles`] and [`observe_cycles`]. Dropping it changes nothing.
#[derive(Debug)]
pub struct Watch {
    number: u64,
}

impl Watch {
    /// Ends the watch. With the last one, values are no longer registered, if they were not before the first.
    pub fn stop(self) {
        let changes = changes();
        let (gone, is_last, was_off) = {
            let mut watchers = watchers();
            let place = watchers.all.iter().position(|watcher| watcher.number == self.number);
            let gone = place.map(|place| watchers.all.remove(place));
            (gone, watchers.all.is_empty(), watchers.was_off)
        };
        // A child of a fork has inherited the watch, and no watcher.
        if gone.is_some() && is_last {
            WATCHED.store(false, Ordering::Relaxed);
            if was_off {
                scope::keep_enabled(false);
                live::disable();
            }
        }
        drop(changes);
        // What the callback holds is dropped under no lock.
        drop(gone);
    }
}

/// Says on stderr, once for each kind of cycle, that it keeps device memory alive, and writes a page about it, whose path is in
/// the message. The page stays.
///
/// Values must be registered ([`register`](crate::register)) after this is called; the values of a thread are looked at when
/// one of its root scopes ends (`#[track_memory(root)]`), what threads share also every ten seconds. Call [`check`] where
/// neither happens.
///
/// The counterpart of `warn_tensor_cycles` of `torch.utils.viz._cycles`, which observes Python's collector. Nothing collects
/// cycles of counted pointers: what this finds stays until the program ends.
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

/// [`warn_device_cycles`], with other options.
pub fn warn_device_cycles_with(options: WatchOptions) -> Watch {
    let pages = Pages::new(options.clone());
    begin(&options, Box::new(move |observed| pages.warn(observed)))
}

/// Calls `callback` with each scan that found something new. It is called on the thread that scanned, at the end of a root scope,
/// within [`check`], or on memtrack's own thread; it may do what it wants, and a panic in it is said on stderr.
///
/// The counterpart of `observe_tensor_cycles` of `torch.utils.viz._cycles`.
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
pub fn observe_cycles(callback: impl Fn(&Observed<'_>) + Send + Sync + 'static) -> Watch {
    begin(&WatchOptions::new(), Box::new(callback))
}

fn begin(options: &WatchOptions, observe: Box<Observe>) -> Watch {
    let _inside = reentry::enter();
    let changes = changes();
    let was_off = !live::is_enabled();
    let number = {
        let mut watchers = watchers();
        watchers.was_off = if watchers.all.is_empty() { was_off } else { watchers.was_off };
        watchers.next += 1;
        let number = watchers.next;
        let every = options.every();
        watchers.all.push(Arc::new(Watcher { number, every, observe, told: Mutex::default() }));
        number
    };
    if was_off {
        live::enable();
    }
    WATCHED.store(true, Ordering::Relaxed);
    follow();
    drop(changes);
    shared::begin();
    Watch { number }
}

/// Scans now, whatever the time since the last scan, and tells who watches. Returns how many kinds of cycles were new to one of
/// them; 0 where nobody watches.
pub fn check() -> usize {
    look::now()
}

/// Tells each watcher what is new to it. No lock is held while they are called.
fn tell(report: &mut Report) -> usize {
    let all = watchers().all.clone();
    let inside = reentry::enter();
    let findings = Findings::of(&report.graph);
    let mut named = false;
    let mut told = HashSet::new();
    for watcher in &all {
        let new =
            watcher.told.lock().unwrap_or_else(PoisonError::into_inner).new_among(&report.graph, &findings);
        if new.is_empty() {
            continue;
        }
        if !std::mem::replace(&mut named, true) {
            name_allocations(&mut report.graph);
        }
        told.extend(new.iter().copied());
        let observed = Observed { report, findings: &findings, new: &new };
        // The callback is the program's.
        let called = reentry::outside(|| catch_unwind(AssertUnwindSafe(|| (watcher.observe)(&observed))));
        if let Err(panic) = called {
            message::print("a callback of observe_cycles panicked");
            std::mem::forget(panic);
        }
    }
    drop(inside);
    told.len()
}

//! Watches a running program for cycles that keep device memory alive: at the end of each root scope the values of its thread,
//! and every few seconds those that threads share.
//!
//! Nothing of it is on before somebody watches. It then takes a fiftieth of a thread's time at most, once a scan takes
//! longer than the scopes between: after a scan, fifty times as long as it took passes before the next on that thread.

mod allocated;
mod look;
mod pages;
mod shared;
mod told;

pub(crate) use allocated::frames_of;
pub use allocated::name_allocations;
pub use pages::WatchOptions;

use crate::Findings;
use crate::live::{self, Report};
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::{message, reentry, scope};
use pages::Pages;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    observe: Box<Observe>,
    told: Mutex<Told>,
}

/// Whether anybody may watch, for the ends of root scopes; still set in the child of a fork, where nobody does.
static WATCHED: AtomicBool = AtomicBool::new(false);

static WATCHERS: ForkCell<Mutex<Watchers>> = ForkCell::new(Mutex::default);

#[derive(Default)]
struct Watchers {
    next: u64,
    all: Vec<Arc<Watcher>>,
    /// Whether registration was off before anybody watched.
    was_off: bool,
}

fn watchers() -> std::sync::MutexGuard<'static, Watchers> {
    WATCHERS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody who watches; made by [`warn_device_cycles`] and [`observe_cycles`]. Dropping it changes nothing.
#[derive(Debug)]
pub struct Watch {
    number: u64,
}

impl Watch {
    /// Ends the watch. With the last one, values are no longer registered, if nothing else had that begun.
    pub fn stop(self) {
        let gone = {
            let mut watchers = watchers();
            let place = watchers.all.iter().position(|watcher| watcher.number == self.number);
            let gone = place.map(|place| watchers.all.remove(place));
            gone.map(|gone| (gone, watchers.all.is_empty() && watchers.was_off, watchers.all.is_empty()))
        };
        if let Some((gone, disable, last)) = gone {
            if last {
                WATCHED.store(false, Ordering::Relaxed);
                scope::follow(false);
            }
            if disable {
                live::disable();
            }
            // What the callback holds is dropped under no lock.
            drop(gone);
        }
    }
}

/// Says on stderr, once for each kind of cycle, that it keeps device memory alive, and writes a page about it, whose path is in
/// the message. The page stays.
///
/// Values must be registered ([`register`](crate::live::register)) after this is called; the values of a thread are looked at when
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
    begin(options, Box::new(move |observed| pages.warn(observed)))
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
    begin(WatchOptions::new(), Box::new(callback))
}

fn begin(options: WatchOptions, observe: Box<Observe>) -> Watch {
    let number = {
        let _inside = reentry::enter();
        let was_off = !live::is_enabled();
        let mut watchers = watchers();
        let first = watchers.all.is_empty();
        watchers.was_off = if first { was_off } else { watchers.was_off && was_off };
        watchers.next += 1;
        let number = watchers.next;
        watchers.all.push(Arc::new(Watcher { number, observe, told: Mutex::default() }));
        number
    };
    if !live::is_enabled() {
        live::enable();
    }
    WATCHED.store(true, Ordering::Relaxed);
    scope::roots_end_at(look::root_ended);
    scope::follow(true);
    shared::look_every(options.every());
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
    let mut told = 0;
    for watcher in &all {
        let new =
            watcher.told.lock().unwrap_or_else(PoisonError::into_inner).new_among(&report.graph, &findings);
        if new.is_empty() {
            continue;
        }
        if !std::mem::replace(&mut named, true) {
            name_allocations(&mut report.graph);
        }
        told += new.len();
        let observed = Observed { report, findings: &findings, new: &new };
        // The callback is the program's.
        let called = reentry::outside(|| catch_unwind(AssertUnwindSafe(|| (watcher.observe)(&observed))));
        if let Err(panic) = called {
            message::say("a callback of observe_cycles panicked");
            std::mem::forget(panic);
        }
    }
    drop(inside);
    told
}

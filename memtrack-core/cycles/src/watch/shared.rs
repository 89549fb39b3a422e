//! The thread that scans shared values every few seconds while there is a watcher.

use super::{schedule, shortest_interval};
use memtrack_recorder::message;
use memtrack_recorder::recorder::{ForkCell, generation};
use memtrack_recorder::signals::SignalsBlocked;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Whether the thread is running in this process.
static RUNNING: ForkCell<AtomicBool> = ForkCell::new(|| AtomicBool::new(false));
/// The interval at which the thread checks for watchers and for the scan interval that they request.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Starts the thread that scans shared values, unless it is already running or no watcher requests such scans.
pub(super) fn begin() {
    let runs = RUNNING.get();
    if shortest_interval().is_none() || runs.swap(true, Ordering::AcqRel) {
        return;
    }
    let process = generation();
    let wanted = move || if process == generation() { shortest_interval() } else { None };
    let run = move || {
        loop {
            scan_while(wanted);
            runs.store(false, Ordering::Release);
            // A watch that started before the flag was cleared found this thread running and did not start another one,
            // so this thread must go on if there is a watch again.
            if wanted().is_none() || runs.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    };
    // Signals must be delivered to the program's threads, not to this one.
    let signals_blocked = SignalsBlocked::now();
    let spawned = thread::Builder::new().name("memtrack-cycles".to_owned()).spawn(run);
    drop(signals_blocked);
    if let Err(error) = spawned {
        runs.store(false, Ordering::Release);
        message::print(format_args!(
            "cannot start the thread that checks shared values ({error}): their cycles are only found when root scopes end"
        ));
    }
}

/// Scans at the requested interval until `wanted` returns `None`.
fn scan_while(wanted: impl Fn() -> Option<Duration>) {
    let (mut last, mut took) = (Instant::now(), Duration::ZERO);
    while let Some(interval) = wanted() {
        let pause = schedule::pause_after(took, interval);
        match pause.checked_sub(last.elapsed()) {
            Some(left) if !left.is_zero() => thread::park_timeout(left.min(CHECK_INTERVAL)),
            _ => {
                let begin = Instant::now();
                schedule::scan_now();
                last = Instant::now();
                took = last - begin;
            }
        }
    }
}

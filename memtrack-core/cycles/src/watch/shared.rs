//! The thread that looks at what threads share, every few seconds while somebody watches.

use super::{look, shortest_interval};
use memtrack_recorder::message;
use memtrack_recorder::recorder::{ForkCell, generation};
use memtrack_recorder::signals::SignalsBlocked;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Whether there is one in this process.
static RUNS: ForkCell<AtomicBool> = ForkCell::new(|| AtomicBool::new(false));
/// How often it asks who still watches, and how often they want it to look.
const STEP: Duration = Duration::from_millis(500);

/// Has what threads share be looked at from now on, while anybody watches who wants it.
pub(super) fn begin() {
    let runs = RUNS.get();
    if shortest_interval().is_none() || runs.swap(true, Ordering::AcqRel) {
        return;
    }
    let process = generation();
    let wanted = move || if process == generation() { shortest_interval() } else { None };
    let run = move || {
        loop {
            look_while(wanted);
            runs.store(false, Ordering::Release);
            // Who has begun to watch just now has seen this thread, and started none.
            if wanted().is_none() || runs.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    };
    // The program's signals are for the program's threads.
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

/// Looks at the interval that is wanted, as long as one is.
fn look_while(wanted: impl Fn() -> Option<Duration>) {
    let (mut last, mut took) = (Instant::now(), Duration::ZERO);
    while let Some(every) = wanted() {
        let pause = look::pause_after(took, every);
        match pause.checked_sub(last.elapsed()) {
            Some(left) if !left.is_zero() => thread::park_timeout(left.min(STEP)),
            _ => {
                let begin = Instant::now();
                look::now();
                last = Instant::now();
                took = last - begin;
            }
        }
    }
}

//! The thread that looks at what threads share, every few seconds while somebody watches.

use super::{look, watchers};
use memtrack_recorder::message;
use memtrack_recorder::recorder::{ForkCell, generation};
use memtrack_recorder::signals::Unsignalled;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Whether there is one in this process.
static RUNS: ForkCell<AtomicBool> = ForkCell::new(|| AtomicBool::new(false));
/// The shortest interval that anybody asked for, in milliseconds.
static EVERY_MS: AtomicU64 = AtomicU64::new(u64::MAX);
/// How often it asks whether anybody still watches.
const STEP: Duration = Duration::from_secs(1);

/// Has what threads share be looked at so often, from now on, while anybody watches.
pub(super) fn look_every(every: Duration) {
    EVERY_MS.fetch_min(every.as_millis().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    let runs = RUNS.get();
    if every == Duration::MAX || runs.swap(true, Ordering::AcqRel) {
        return;
    }
    let process = generation();
    let run = move || {
        let mut next = Instant::now() + interval();
        let is_watched = || process == generation() && !watchers().all.is_empty();
        loop {
            while is_watched() {
                thread::park_timeout(STEP.min(next.saturating_duration_since(Instant::now())));
                if Instant::now() < next {
                    continue;
                }
                let begin = Instant::now();
                look::now();
                next = Instant::now() + look::pause_after(begin.elapsed(), interval());
            }
            runs.store(false, Ordering::Release);
            // Who has begun to watch just now has seen this thread, and started none.
            if !is_watched() || runs.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    };
    // The program's signals are for the program's threads.
    let unsignalled = Unsignalled::now();
    let spawned = thread::Builder::new().name("memtrack-cycles".to_owned()).spawn(run);
    drop(unsignalled);
    if let Err(error) = spawned {
        runs.store(false, Ordering::Release);
        message::say(format_args!(
            "no thread for what threads share: cycles of it are only found at the ends of root scopes: {error}"
        ));
    }
}

fn interval() -> Duration {
    Duration::from_millis(EVERY_MS.load(Ordering::Relaxed).min(86_400_000))
}

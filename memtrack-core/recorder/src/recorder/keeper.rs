//! The thread that looks after a stream: twice a second it appends what lies in chunks that are not full, and what else
//! has changed. Whoever is about to end the process has it do so at once.

use super::{Recorder, binaries, scope_sums};
use crate::message;
use crate::reentry;
use crate::signals::Unsignalled;
use crate::stack::capture::modules_generation;
#[cfg(feature = "cuda")]
use std::sync::atomic::{AtomicPtr, AtomicU64};
use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(feature = "cuda")]
use std::thread::Thread;
use std::time::Duration;
#[cfg(feature = "cuda")]
use std::time::Instant;

/// How often a stream is brought up to date: what a killed program loses at most of a device with few events.
const KEEP_UP_EVERY: Duration = Duration::from_millis(500);

/// The newest keeper, leaked: null before there was one.
#[cfg(feature = "cuda")]
static KEEPER: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());
/// The number of the stream that it looks after; 0 when it has gone.
static ALIVE: AtomicU32 = AtomicU32::new(0);
/// How often it was asked for a beat, and up to which of these it has had one.
#[cfg(feature = "cuda")]
static ASKED: AtomicU64 = AtomicU64::new(0);
#[cfg(feature = "cuda")]
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// Starts the thread, which lives as long as the stream is open. It appends what lies in chunks that are not full, the
/// driver's readings, and the list of binaries when one was loaded. That list is not made by the threads that record,
/// because the dynamic linker's lock must not be waited for inside a hook.
pub(super) fn keep_up(recorder: &'static Recorder) {
    let Some(number) = recorder.stream_number() else { return };
    ALIVE.store(number, Ordering::Release);
    let keep = move || {
        let _inside = reentry::enter();
        let mut modules_seen = modules_generation();
        let mut readings_seen = 0;
        let mut sums_due = scope_sums::Due::default();
        loop {
            std::thread::park_timeout(KEEP_UP_EVERY);
            #[cfg(feature = "cuda")]
            let asked = ASKED.load(Ordering::Acquire);
            if recorder.stream_number() != Some(number) {
                let _ = ALIVE.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
                return;
            }
            sums_due.beat(recorder);
            beat(recorder, &mut modules_seen, &mut readings_seen);
            #[cfg(feature = "cuda")]
            ANSWERED.fetch_max(asked, Ordering::Release);
        }
    };
    // The program's signals are for the program's threads.
    let unsignalled = Unsignalled::now();
    let spawned = std::thread::Builder::new().name("memtrack-stream".to_owned()).spawn(keep);
    drop(unsignalled);
    match spawned {
        #[cfg(feature = "cuda")]
        Ok(handle) => {
            let keeper = Box::into_raw(Box::new(handle.thread().clone()));
            KEEPER.store(keeper, Ordering::Release);
        }
        #[cfg(not(feature = "cuda"))]
        Ok(_) => {}
        Err(error) => {
            ALIVE.store(0, Ordering::Release);
            message::say(format_args!(
                "no thread for the stream, so chunks are written only when full: {error}"
            ));
        }
    }
}

/// Whether there is a thread that tells what goes wrong.
pub(super) fn is_alive() -> bool {
    ALIVE.load(Ordering::Acquire) != 0
}

/// In the child of a fork: the thread is the parent's.
pub(super) fn reset_after_fork() {
    ALIVE.store(0, Ordering::Relaxed);
}

fn beat(recorder: &Recorder, modules_seen: &mut u32, readings_seen: &mut u64) {
    let now = modules_generation();
    if now != *modules_seen {
        *modules_seen = now;
        let modules = binaries::loaded();
        recorder.with_stream(|stream| stream.attempt(|stream| stream.writer.modules(&modules)));
    }
    #[cfg(feature = "cuda")]
    if let Some(readings) = recorder.readings.changed_since(readings_seen) {
        recorder.with_stream(|stream| stream.attempt(|stream| stream.writer.driver(&readings)));
    }
    #[cfg(not(feature = "cuda"))]
    let _ = readings_seen;
    recorder.stream_parts();
    recorder.with_stream(|stream| stream.begin_part_if_due(recorder, 1));
    recorder.tell_news();
}

/// Has the keeper bring the stream up to date, and waits for it: a moment, and `patience` at most. Takes no lock and
/// allocates nothing.
#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
pub(super) fn ask_keeper(patience: Duration) {
    // SAFETY: null, or leaked.
    let Some(keeper) = (unsafe { KEEPER.load(Ordering::Acquire).as_ref() }) else { return };
    let asked = ASKED.fetch_add(1, Ordering::AcqRel) + 1;
    keeper.unpark();
    let start = Instant::now();
    let is_awaited = || ANSWERED.load(Ordering::Acquire) < asked && ALIVE.load(Ordering::Acquire) != 0;
    while is_awaited() && start.elapsed() < patience {
        std::thread::sleep(Duration::from_micros(50));
    }
}

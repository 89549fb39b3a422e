//! The thread that writes a stream. It writes chunks when they are full, so that no thread of the program waits for a
//! disk. Twice a second it also appends the events in chunks that are not full, and other changes.

use super::resident_reading::StreamReadings;
use super::{RECORDER, Recorder, binaries, scope_sums};
use crate::background::{Bell, spawn};
use crate::stack::capture::binaries_generation;
use crate::switch;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::atomic::{AtomicU8, AtomicU32};
use std::time::{Duration, Instant};

/// The interval between updates of a stream. If the program is killed, a device with few events loses at most the events
/// of this interval, unless the thread was not scheduled in time.
const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// The state of the stream thread, shared with the recorder.
#[derive(Default)]
pub(super) struct StreamThread {
    /// The number of the stream that the thread writes; 0 when the thread has ended.
    alive: AtomicU32,
    bell: Bell,
    /// 0 until the process exits, then [`EXIT_REQUESTED`] or [`EXIT_DONE`].
    exit: AtomicU8,
}

/// The process is exiting, and the stream thread must finish the recording.
const EXIT_REQUESTED: u8 = 1;
/// The process is exiting, and the stream thread has finished the recording.
const EXIT_DONE: u8 = 2;

impl StreamThread {
    /// Wakes the thread to write a chunk.
    pub(super) fn wake(&self) {
        self.bell.ring();
    }

    /// Makes the thread finish the recording because the process is exiting, and waits until it has done so, for `timeout`
    /// at most. Takes no lock and allocates nothing: `exit` may be called in a signal handler, which may have interrupted
    /// the program's allocator.
    pub(super) fn finish_at_exit(&self, timeout: Duration) {
        let _ = self.exit.compare_exchange(0, EXIT_REQUESTED, Ordering::AcqRel, Ordering::Relaxed);
        self.bell.ring();
        let start = Instant::now();
        let is_awaited = || self.exit.load(Ordering::Acquire) != EXIT_DONE && self.is_alive();
        while is_awaited() && start.elapsed() < timeout {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Returns whether there is a stream thread.
    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire) != 0
    }
}

impl Recorder {
    /// Starts the stream thread, which runs until the stream is closed. It also appends the events in chunks that are
    /// not full, the driver's readings, and the list of binaries when a binary was loaded. The threads that record do not
    /// make that list, because a hook must not wait for the dynamic linker's lock.
    ///
    /// # Errors
    /// Fails when the system cannot create another thread.
    pub(super) fn start_stream_thread(&self) -> io::Result<()> {
        let Some(number) = self.stream_number() else { return Ok(()) };
        self.stream_thread.alive.store(number, Ordering::Release);
        let result = spawn(c"memtrack-stream", move || {
            if std::panic::catch_unwind(|| run_loop(number)).is_err() {
                RECORDER.get().stream_thread.alive.store(0, Ordering::Release);
            }
        });
        if result.is_err() {
            self.stream_thread.alive.store(0, Ordering::Release);
        }
        result
    }
}

/// Runs the thread's loop.
fn run_loop(number: u32) {
    let recorder = RECORDER.get();
    let stream_thread = &recorder.stream_thread;
    // Starts from the list that the file begins with: the program may have loaded more binaries since.
    let mut binaries_seen = 0;
    let mut is_in_parts = false;
    recorder.with_stream(|stream| {
        binaries_seen = stream.binaries_seen();
        is_in_parts = stream.max_bytes().is_some();
    });
    let mut resident = StreamReadings::new(is_in_parts);
    let mut readings_seen = 0;
    let mut sums_schedule = scope_sums::WriteSchedule::default();
    let mut last_update = Instant::now();
    loop {
        stream_thread.bell.wait(UPDATE_INTERVAL.saturating_sub(last_update.elapsed()));
        if stream_thread.exit.load(Ordering::Acquire) == EXIT_REQUESTED {
            super::exit::write_on_stream_thread();
            stream_thread.exit.store(EXIT_DONE, Ordering::Release);
            stream_thread.alive.store(0, Ordering::Release);
            return;
        }
        if recorder.stream_number() != Some(number) {
            let _ = stream_thread.alive.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
            return;
        }
        while recorder.stream_waiting() && last_update.elapsed() < UPDATE_INTERVAL {}
        if last_update.elapsed() < UPDATE_INTERVAL {
            continue;
        }
        last_update = Instant::now();
        sums_schedule.update(recorder);
        update(recorder, &mut binaries_seen, &mut readings_seen);
        // The pages are read under no lock.
        if let Some(reading) = switch::is_on(switch::HOST).then(|| resident.read_if_due()).flatten() {
            recorder.with_stream(|stream| stream.attempt(|stream| stream.writer.resident(&reading)));
        }
    }
}

fn update(recorder: &Recorder, binaries_seen: &mut u32, readings_seen: &mut u64) {
    let now = binaries_generation();
    if now != *binaries_seen {
        *binaries_seen = now;
        let modules = binaries::loaded();
        recorder.with_stream(|stream| stream.attempt(|stream| stream.writer.modules(&modules)));
    }
    #[cfg(feature = "cuda")]
    if let Some(readings) = recorder.readings.changed_since(readings_seen) {
        recorder.with_stream(|stream| stream.attempt(|stream| stream.writer.driver(&readings)));
    }
    #[cfg(not(feature = "cuda"))]
    let _ = readings_seen;
    recorder.stream_all_chunks();
    recorder.begin_part_early();
    recorder.print_messages(Duration::ZERO);
}

//! The thread that writes a stream: it writes chunks when they are full, so that no thread of the program waits for a
//! disk; twice a second it also appends the events in chunks that are not full, and other changes. A thread that is
//! about to end the process requests that at once.
//!
//! **Why a thread of the C library and not of Rust?** What Rust's threads allocate before and after their work would be
//! in the recording of a heap, and parking one registers a destructor under the dynamic linker's lock.

use super::{RECORDER, Recorder, binaries, scope_sums};
use crate::reentry;
use crate::signals::SignalsBlocked;
use crate::stack::capture::binaries_generation;
use std::io;
use std::sync::atomic::AtomicU32;
#[cfg(feature = "cuda")]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The interval between updates of a stream: the time that a killed program loses of a device with few events,
/// unless the thread gets no processor in time.
const UPDATE_EVERY: Duration = Duration::from_millis(500);

/// The recorder's view of the thread.
#[derive(Default)]
pub(super) struct StreamThread {
    /// The number of the stream that it writes; 0 when it has ended.
    alive: AtomicU32,
    bell: Bell,
    /// The number of requested updates, and the last of them that was made.
    #[cfg(feature = "cuda")]
    requested: AtomicU64,
    #[cfg(feature = "cuda")]
    completed: AtomicU64,
}

impl StreamThread {
    /// Wakes the thread to write a chunk.
    pub(super) fn wake(&self) {
        self.bell.ring();
    }

    /// Returns whether there is a thread that writes and reports errors.
    pub(super) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire) != 0
    }

    /// Makes the thread bring the stream up to date, and waits for it: a moment, and `patience` at most. Takes no
    /// lock and allocates nothing.
    #[cfg(feature = "cuda")]
    pub(super) fn request_update(&self, patience: Duration) {
        let requested = self.requested.fetch_add(1, Ordering::AcqRel) + 1;
        self.bell.ring();
        let start = Instant::now();
        let is_awaited = || self.completed.load(Ordering::Acquire) < requested && self.is_alive();
        while is_awaited() && start.elapsed() < patience {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Recorder {
    /// Starts the thread, which lives as long as the stream is open. It appends the events in chunks that are not
    /// full, the driver's readings, and the list of binaries when one was loaded. That list is not made by the
    /// threads that record, because the dynamic linker's lock must not be waited for inside a hook.
    ///
    /// # Errors
    /// Fails when the system allows no more threads.
    pub(super) fn start_stream_thread(&self) -> io::Result<()> {
        let Some(number) = self.stream_number() else { return Ok(()) };
        self.stream_thread.alive.store(number, Ordering::Release);
        // The program's signals are for the program's threads.
        let signals_blocked = SignalsBlocked::now();
        let begun = thread::begin(number);
        drop(signals_blocked);
        if begun.is_err() {
            self.stream_thread.alive.store(0, Ordering::Release);
        }
        begun
    }
}

/// Runs the thread's loop.
fn run_loop(number: u32) {
    let recorder = RECORDER.get();
    let stream_thread = &recorder.stream_thread;
    // The list with which the file begins: before this thread runs, the program may have loaded more.
    let mut binaries_seen = 0;
    recorder.with_stream(|stream| binaries_seen = stream.binaries_seen());
    let mut readings_seen = 0;
    let mut sums_due = scope_sums::Due::default();
    let mut last_update = Instant::now();
    loop {
        stream_thread.bell.wait(UPDATE_EVERY.saturating_sub(last_update.elapsed()));
        #[cfg(feature = "cuda")]
        let requested = stream_thread.requested.load(Ordering::Acquire);
        if recorder.stream_number() != Some(number) {
            let _ = stream_thread.alive.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
            return;
        }
        while recorder.stream_waiting() && last_update.elapsed() < UPDATE_EVERY {}
        #[cfg(feature = "cuda")]
        let is_requested = stream_thread.completed.load(Ordering::Acquire) < requested;
        #[cfg(not(feature = "cuda"))]
        let is_requested = false;
        if last_update.elapsed() < UPDATE_EVERY && !is_requested {
            continue;
        }
        last_update = Instant::now();
        sums_due.update(recorder);
        update(recorder, &mut binaries_seen, &mut readings_seen);
        #[cfg(feature = "cuda")]
        stream_thread.completed.fetch_max(requested, Ordering::Release);
    }
}

#[cfg(target_os = "linux")]
mod thread {
    #![allow(unsafe_code)]

    use super::*;
    use std::ffi::c_void;
    use std::ptr::null_mut;

    /// Starts the thread with the C library: allocations that Rust's own threads make before and after their work
    /// would be in the recording, and their thread-locals take the dynamic linker's lock.
    pub(super) fn begin(number: u32) -> io::Result<()> {
        /// As Rust's threads have.
        const STACK_BYTES: usize = 2 << 20;
        // SAFETY: the number is passed as the pointer's bits, and the attributes are a local variable. The thread is
        // detached, so it is never joined.
        unsafe {
            let mut attributes = std::mem::zeroed();
            libc::pthread_attr_init(&mut attributes);
            libc::pthread_attr_setstacksize(&mut attributes, STACK_BYTES);
            libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
            let mut made = std::mem::zeroed();
            let number = null_mut::<c_void>().with_addr(number as usize);
            let error = libc::pthread_create(&mut made, &attributes, run, number);
            libc::pthread_attr_destroy(&mut attributes);
            if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
        }
    }

    extern "C" fn run(number: *mut c_void) -> *mut c_void {
        // For good: blocks that the C library frees when the thread has ended are not the program's.
        std::mem::forget(reentry::enter());
        // SAFETY: names the calling thread.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"memtrack-stream".as_ptr()) };
        // A panic would be a bug in memtrack; its message has been printed by then.
        if std::panic::catch_unwind(|| run_loop(number.addr() as u32)).is_err() {
            RECORDER.get().stream_thread.alive.store(0, Ordering::Release);
        }
        null_mut()
    }
}

#[cfg(not(target_os = "linux"))]
mod thread {
    use super::*;

    pub(super) fn begin(number: u32) -> io::Result<()> {
        let work = move || {
            let _inside = reentry::enter();
            run_loop(number);
        };
        std::thread::Builder::new().name("memtrack-stream".to_owned()).spawn(work).map(drop)
    }
}

/// Wakes the stream thread. Rust's `park` would do, except for a thread-local with a destructor.
#[derive(Default)]
struct Bell(AtomicU32);

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
impl Bell {
    /// Waits until it is rung, or for at most so long.
    fn wait(&self, most: Duration) {
        let timeout = libc::timespec {
            tv_sec: most.as_secs() as libc::time_t,
            tv_nsec: most.subsec_nanos() as libc::c_long,
        };
        let word = self.0.as_ptr();
        if self.0.swap(0, Ordering::Acquire) == 0 {
            // SAFETY: the word and the time live for as long as the call takes. An update follows any end of it.
            unsafe { libc::syscall(libc::SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, &raw const timeout) };
            self.0.swap(0, Ordering::Acquire);
        }
    }

    /// Rings it. Takes no lock and allocates nothing; makes no system call if it has been rung already.
    fn ring(&self) {
        if self.0.swap(1, Ordering::AcqRel) == 0 {
            // SAFETY: the word lives for as long as the call takes.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), FUTEX_WAKE_PRIVATE, 1) };
        }
    }
}

#[cfg(target_os = "linux")]
const FUTEX_WAIT_PRIVATE: libc::c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
#[cfg(target_os = "linux")]
const FUTEX_WAKE_PRIVATE: libc::c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

#[cfg(not(target_os = "linux"))]
impl Bell {
    fn wait(&self, most: Duration) {
        const POLL_EVERY: Duration = Duration::from_millis(10);
        let start = std::time::Instant::now();
        while self.0.swap(0, Ordering::Acquire) == 0 && start.elapsed() < most {
            std::thread::sleep(POLL_EVERY);
        }
    }

    fn ring(&self) {
        self.0.store(1, Ordering::Release);
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
    recorder.stream_parts();
    recorder.part_if_due();
    recorder.print_messages();
}

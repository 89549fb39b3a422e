//! The collector: a process of the command that reads the shared memory and writes the recording. The command waits for the
//! program, forwards signals, and prints what the collector sends. The collector keeps running while any recorded program
//! outlives the command.
//!
//! **Why another process?** Programs find the shared memory through a descriptor of the collector (`/proc/PID/fd/N`), so the
//! collector must not end while any program might still start another. It also keeps the recording intact if the command is
//! killed.
//!
//! **Why is the collector in a separate session?** The terminal's signals are meant for the program. A process without a
//! controlling terminal is not stopped when it writes.
#![allow(unsafe_code)]

use super::orphans;
use super::outcome::{self, Found, Outcome};
use super::reporter::{Reporter, Subject, Task};
use super::wait::open_process;
use crate::Streams;
use crate::verbs::run::{RunArgs, SnapshotOn};
use memtrack_core::__collector::{Collector, Settings};
use memtrack_core::__run_protocol as protocol;
use memtrack_core::recorder::Options;
use memtrack_core::snapshot::ProcessEnd;
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::HashSet;
use std::ffi::{CStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;

/// The collector's task.
pub(crate) struct Job {
    pub(crate) args: RunArgs,
    /// The program's name.
    pub(crate) name: OsString,
    /// The path of the recording.
    pub(crate) output: PathBuf,
    /// The folder to which the recording is moved at the end; `None` if it stays.
    pub(crate) folder: Option<PathBuf>,
    /// The sanitizer that prevents the program from being recorded, if any.
    pub(crate) sanitizer: Option<&'static str>,
    pub(crate) options: Options,
}

/// The command's end of the channel.
pub(crate) struct CollectorProcess {
    channel: UnixStream,
    /// The path under which programs open the shared memory.
    pub(crate) memory: PathBuf,
}

/// The message to the collector that requests a snapshot.
const SNAPSHOT: u8 = 1;
/// The message to the collector that the program has ended; its process id and status follow.
const ENDED: u8 = 2;
/// The message to the collector that the program has started; its process id follows.
const STARTED: u8 = 3;

/// The maximum number of polls that wait for the program of a killed command to appear in the shared memory.
const MAX_POLLS_FOR_PROGRAM: u32 = 20;

/// The status in an [`ENDED`] message if the program's status is unknown.
const UNKNOWN_STATUS: i32 = i32::MIN;

/// The collector's message that text for standard error follows.
const TEXT: u8 = 1;
/// The collector's message that the answer as JSON follows.
const JSON: u8 = 2;
/// The collector's message that nothing follows.
const DONE: u8 = 3;

/// Starts the collector. `command` is the process id of the command. The program is a child of that process, or is that
/// process itself after `exec`.
///
/// # Errors
/// Fails if the system has no memory for the region or cannot start a process.
pub(crate) fn start(job: &Job, command: u32) -> io::Result<CollectorProcess> {
    let (command_end, collector_end) = UnixStream::pair()?;
    let settings = Settings {
        output: job.output.clone(),
        options: job.options.clone(),
        max_programs: job.args.max_processes,
        mark_on: job.args.mark_on.clone(),
        libraries: super::library::file_names(),
        command,
    };
    let collector = Collector::create(settings)?;
    // SAFETY: the process has a single thread here, so the child can do anything that this process could.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(command_end);
            detach(c"memtrack-collec", &[collector_end.as_raw_fd(), collector.descriptor()], false);
            let collected = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                collect(collector, collector_end, job)
            }));
            // SAFETY: ends the child without the handlers and buffers of the command.
            unsafe { libc::_exit(i32::from(collected.is_err())) }
        }
        child => {
            let memory = collector.memory_path(child as u32);
            // Do not drop `collector` here: that would also close the region, which belongs to the collector process.
            std::mem::forget(collector);
            Ok(CollectorProcess { channel: command_end, memory })
        }
    }
}

/// Detaches this process from the command's terminal, and closes its descriptors except those in `kept` and, with
/// `keeps_errors`, standard error. The closed standard streams become `/dev/null`. Also sets the process's name, and makes it
/// ignore the signals that are meant for the program.
pub(super) fn detach(name: &CStr, kept: &[i32], keeps_errors: bool) {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    // SAFETY: the calls change only this process: its session, the signals that it ignores, and its descriptors.
    unsafe {
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2]
        {
            libc::signal(signal, libc::SIG_IGN);
        }
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..if keeps_errors { 2 } else { 3 } {
            libc::dup2(null, standard);
        }
        let mut first = 3;
        for descriptor in kept.into_iter().chain([i32::MAX]) {
            if descriptor > first {
                close_between(first, descriptor - 1);
            }
            first = descriptor.saturating_add(1);
        }
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
    }
}

/// Closes the descriptors from `first` to `last`.
fn close_between(first: i32, last: i32) {
    // SAFETY: the caller needs none of these descriptors.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // The call fails before Linux 5.9, or under a seccomp filter that does not know it.
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open = open.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for descriptor in open.filter(|descriptor| (first..=last).contains(descriptor)).collect::<Vec<_>>() {
        // SAFETY: as above. The descriptor of the listed folder is already closed.
        unsafe { libc::close(descriptor) };
    }
}

impl CollectorProcess {
    /// Returns the descriptor that becomes readable when the collector sends something.
    pub(crate) fn descriptor(&self) -> i32 {
        self.channel.as_raw_fd()
    }

    /// Returns a collector that has ended.
    #[cfg(test)]
    pub(crate) fn ended() -> Self {
        let (channel, _) = UnixStream::pair().expect("a pair of sockets");
        Self { channel, memory: PathBuf::new() }
    }

    /// Reports that the program has started. If the command is killed from now on, the collector kills the program, so that
    /// killing the command ends the program as if the user had started it directly.
    pub(crate) fn program_started(&mut self, process: u32) {
        let mut message = vec![STARTED];
        message.extend_from_slice(&process.to_le_bytes());
        message.extend_from_slice(&[0; 4]);
        // A collector that has failed is reported at the end.
        let _ = self.channel.write_all(&message);
    }

    pub(crate) fn request_snapshot(&mut self) {
        // A collector that has failed is reported at the end.
        let _ = self.channel.write_all(&[SNAPSHOT]);
    }

    /// Prints what the collector has sent. Returns false if the collector will send nothing more.
    pub(crate) fn receive(&mut self, streams: &mut Streams<'_>) -> bool {
        match read_frame(&mut self.channel) {
            Ok((TEXT, bytes)) => {
                // The exit status is the program's, so a failure to write to standard error is ignored.
                let _ = streams.stderr.write_all(&bytes).and_then(|()| streams.stderr.flush());
                true
            }
            Ok(_) => true,
            Err(_) => false,
        }
    }

    /// Reports that the program has ended, with its status if known, and prints what the collector sends until its last
    /// message. Returns the answer as JSON, or `None` if the collector has failed.
    pub(crate) fn end(
        &mut self,
        process: u32,
        status: Option<ExitStatus>,
        streams: &mut Streams<'_>,
    ) -> Option<Vec<u8>> {
        let raw = status.map_or(UNKNOWN_STATUS, std::os::unix::process::ExitStatusExt::into_raw);
        let mut message = vec![ENDED];
        message.extend_from_slice(&process.to_le_bytes());
        message.extend_from_slice(&raw.to_le_bytes());
        self.channel.write_all(&message).ok()?;
        let mut json = None;
        loop {
            match read_frame(&mut self.channel).ok()? {
                (TEXT, bytes) => {
                    let _ = streams.stderr.write_all(&bytes);
                }
                (JSON, bytes) => json = Some(bytes),
                _ => return json.or_else(|| Some(Vec::new())),
            }
        }
    }
}

fn read_frame(channel: &mut UnixStream) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    channel.read_exact(&mut head)?;
    let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let mut bytes = vec![0; len as usize];
    channel.read_exact(&mut bytes)?;
    Ok((head[0], bytes))
}

/// The collector's end of the channel to the command. Several threads of the collector send through it, and one more thread
/// writes to the channel: writing may wait while the command is stopped, and the shared memory must be drained meanwhile.
#[derive(Clone)]
pub(super) struct Voice {
    frames: Sender<Vec<u8>>,
    /// The number of bytes that are queued and not written yet.
    waiting: Arc<AtomicUsize>,
    /// The number of texts that were dropped since the last one was queued.
    dropped: Arc<AtomicU64>,
}

impl Voice {
    /// The number of queued bytes above which further texts are dropped.
    const MAX_QUEUED_BYTES: usize = 1 << 20;

    /// Returns a voice and the thread that writes for it. The thread ends after the last copy of the voice has been
    /// dropped.
    fn start(mut channel: UnixStream) -> io::Result<(Self, JoinHandle<()>)> {
        let (frames, queue) = std::sync::mpsc::channel::<Vec<u8>>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let written = Arc::clone(&waiting);
        let write = move || {
            for frame in queue {
                // Fails if the command was killed.
                let _ = channel.write_all(&frame);
                written.fetch_sub(frame.len(), Ordering::Relaxed);
            }
        };
        let thread = std::thread::Builder::new().name("channel".to_owned()).spawn(write)?;
        Ok((Self { frames, waiting, dropped: Arc::default() }, thread))
    }

    /// Sends text that the command prints to standard error.
    pub(super) fn say(&self, text: &str) {
        if self.waiting.load(Ordering::Relaxed) > Self::MAX_QUEUED_BYTES {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.send(&[(TEXT, &self.with_missing(text))]);
    }

    /// Sends the last text and the answer as JSON, and that nothing follows.
    fn finish(&self, text: &str, json: &[u8]) {
        self.send(&[(TEXT, &self.with_missing(text)), (JSON, json), (DONE, &[])]);
    }

    /// Returns `text`, preceded by a line about the texts that were dropped since the last one was queued, if any were.
    fn with_missing(&self, text: &str) -> Vec<u8> {
        match self.dropped.swap(0, Ordering::Relaxed) {
            0 => text.into(),
            count => {
                format!("memtrack: {count} messages are missing here: they were not read in time\n{text}")
                    .into()
            }
        }
    }

    /// Queues messages together, so that the writing thread wakes only once. Each is given as its kind, such as [`TEXT`], and
    /// its content.
    fn send(&self, messages: &[(u8, &[u8])]) {
        let mut frames = Vec::new();
        for (kind, bytes) in messages {
            frames.push(*kind);
            frames.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            frames.extend_from_slice(bytes);
        }
        self.waiting.fetch_add(frames.len(), Ordering::Relaxed);
        // Fails only if the writing thread has panicked.
        let _ = self.frames.send(frames);
    }
}

/// What the collector received from the command while it waited for the next poll.
enum Received {
    Nothing,
    Started(u32),
    Snapshot,
    Ended(u32, Option<ExitStatus>),
    /// The command was killed.
    Gone,
}

/// Collects until the program and all recorded processes have ended.
fn collect(mut collector: Collector, mut channel: UnixStream, job: &Job) {
    let Ok(writing) = channel.try_clone() else { return };
    let Ok((voice, writer)) = Voice::start(writing) else { return };
    let mut reporter = Reporter::new(voice.clone(), job);
    let wants = |when| job.args.snapshot_on.contains(&when);
    let mut at_exit = HashSet::new();
    let mut program = None;
    loop {
        collector.poll();
        pass_on(&mut collector, &voice, &mut reporter);
        if wants(SnapshotOn::Exit) {
            queue_snapshots_at_exit(&collector, &mut at_exit, &mut reporter);
        }
        match receive(&mut channel, &collector) {
            Received::Nothing => {}
            Received::Started(process) => program = open_process(process),
            Received::Snapshot => {
                collector.poll();
                let running = collector.rows().iter().filter(|row| row.end == ProcessEnd::Running);
                running
                    .for_each(|row| reporter.queue(Task::Signalled(Subject::of(row, collector.recording()))));
            }
            Received::Ended(process, status) => {
                collector.poll();
                if let Some(status) = status {
                    collector.set_end(process, process_end(status));
                }
                pass_on(&mut collector, &voice, &mut reporter);
                if wants(SnapshotOn::Exit) {
                    queue_snapshots_at_exit(&collector, &mut at_exit, &mut reporter);
                }
                if let Some(ended) = reporter.finish() {
                    poll_until(&mut collector, &ended);
                }
                let outcome = Outcome { process, status, job };
                let rows = collector.rows().to_vec();
                let recording = collector.recording().map(Path::to_owned);
                // Find out on another thread what held the memory, because this reads the recording, which can take seconds.
                let held = recording.map(|recording| {
                    std::thread::scope(|threads| {
                        let (ending, ended) = std::sync::mpsc::channel();
                        let (rows, outcome) = (&rows, &outcome);
                        let held = threads.spawn(move || {
                            let _ending = ending;
                            outcome::holders_text(rows, &recording, outcome)
                        });
                        poll_until(&mut collector, &ended);
                        held.join()
                    })
                });
                let held = held.transpose().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                let held = held.unwrap_or_default();
                let place = outcome::end_recording(&mut collector, job);
                let (text, json) = outcome::report(&Found::by(&collector, place), &outcome);
                voice.finish(&(held + &text), &json);
                break;
            }
            // With `--exec`, this means that the watcher was killed, not the program.
            Received::Gone if job.args.exec => break,
            Received::Gone => {
                // If `program` is `None`, the command was killed after it started the program and before it reported the start.
                if let Some(program) = program.or_else(|| find_program(&mut collector)) {
                    // Fails if the program has ended.
                    let _ = pidfd_send_signal(program, Signal::KILL);
                }
                break;
            }
        }
    }
    reporter.finish();
    drop(voice);
    while collector.has_processes() || !writer.is_finished() {
        wait_and_poll(&mut collector);
    }
    outcome::end_recording(&mut collector, job);
}

/// Finds the program that the command has started: the process that begins to record, or the oldest one whose environment names this
/// collector's memory. Waits briefly for it. Returns `None` if it does not appear in time or has ended.
fn find_program(collector: &mut Collector) -> Option<OwnedFd> {
    let memory = collector.memory_path(std::process::id());
    for _ in 0..MAX_POLLS_FOR_PROGRAM {
        let program = collector.first_process();
        if let Some(program) = program.or_else(|| orphans::oldest_with(protocol::MEMORY, &memory)) {
            return open_process(program);
        }
        wait_and_poll(collector);
    }
    None
}

/// Polls until a thread has ended, which disconnects `ended`.
fn poll_until(collector: &mut Collector, ended: &Receiver<()>) {
    while ended.recv_timeout(collector.pause()) == Err(RecvTimeoutError::Timeout) {
        collector.poll();
    }
}

/// Waits until the next poll of the shared memory is due, and polls.
fn wait_and_poll(collector: &mut Collector) {
    collector.wait(None);
    collector.poll();
}

/// Forwards the messages that processes have reported since the last call: as text to the command, or as tasks to the reporter.
fn pass_on(collector: &mut Collector, voice: &Voice, reporter: &mut Reporter) {
    for message in collector.take_messages() {
        voice.say(&format!("memtrack: {message}\n"));
    }
    for (process, owner) in collector.take_bypassed() {
        voice.say(&format!(
            "memtrack: no CUDA memory of process {process} is recorded: {owner} exports a function `dlsym` of its own, so its \
             calls of the CUDA driver go past memtrack's. Link it so that it does not export that function (-rdynamic and \
             --export-dynamic do), and run it again.\n"
        ));
    }
    for (process, reason) in collector.take_without_python() {
        voice.say(&format!("memtrack: process {process} has no lines of Python: {reason}\n"));
    }
    for failed in collector.take_failed_requests() {
        let row = collector.rows().iter().find(|row| Some(row.number) == failed.process);
        let subject = row.map(|row| Subject::of(row, collector.recording()));
        reporter.queue(Task::OutOfMemory(failed, subject));
    }
}

/// Queues the final snapshot of each process that has ended and is not in `done`, and adds the process to `done`.
fn queue_snapshots_at_exit(collector: &Collector, done: &mut HashSet<u32>, reporter: &mut Reporter) {
    for row in collector.rows() {
        if row.end != ProcessEnd::Running && done.insert(row.number) {
            reporter.queue(Task::AtTheEnd(Subject::of(row, collector.recording())));
        }
    }
}

fn process_end(status: ExitStatus) -> ProcessEnd {
    match (status.code(), std::os::unix::process::ExitStatusExt::signal(&status)) {
        (Some(code), _) => ProcessEnd::Code(code),
        (None, Some(signal)) => ProcessEnd::Signal(signal),
        (None, None) => ProcessEnd::Ended,
    }
}

/// Waits for a message from the command until the next poll is due.
fn receive(channel: &mut UnixStream, collector: &Collector) -> Received {
    if !collector.wait(Some(channel.as_raw_fd())) {
        return Received::Nothing;
    }
    let mut kind = [0];
    if channel.read_exact(&mut kind).is_err() {
        return Received::Gone;
    }
    match kind[0] {
        SNAPSHOT => Received::Snapshot,
        kind => {
            let mut numbers = [0; 8];
            if channel.read_exact(&mut numbers).is_err() {
                return Received::Gone;
            }
            let [a, b, c, d, e, f, g, h] = numbers;
            let process = u32::from_le_bytes([a, b, c, d]);
            if kind == STARTED {
                return Received::Started(process);
            }
            let status = i32::from_le_bytes([e, f, g, h]);
            let is_known = status != UNKNOWN_STATUS;
            Received::Ended(
                process,
                is_known.then(|| std::os::unix::process::ExitStatusExt::from_raw(status)),
            )
        }
    }
}

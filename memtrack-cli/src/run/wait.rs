//! Runs the program and waits for it as a shell does: signals sent to the command are forwarded to the program, and the
//! program's exit status becomes the command's exit code.
//!
//! **Why not `exec` the program?** The command has to report the recording when the program has ended. The `exec` module, for
//! service managers, uses another process for that.
#![allow(unsafe_code)]

use super::collector::CollectorProcess;
use super::inherited;
use crate::Streams;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// The largest number of a signal.
const LAST_SIGNAL: i32 = 64;

/// Returns whether a signal is forwarded to the program. Every signal that another process might send on purpose is forwarded.
/// The exceptions are signals that report an error of the command itself or the end of its child, and signals that the C
/// library reserves.
fn is_forwarded(signal: i32) -> bool {
    const OWN: [i32; 10] = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGCHLD,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGSYS,
    ];
    const OF_C_LIBRARY: [i32; 2] = [32, 33];
    !OWN.contains(&signal) && !OF_C_LIBRARY.contains(&signal)
}

/// Returns the signals that are forwarded.
fn forwarded() -> impl Iterator<Item = i32> {
    (1..=LAST_SIGNAL).filter(|&signal| is_forwarded(signal))
}

/// The program's process id; 0 before the program is started and after it has ended.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// The signals that arrived before [`PROGRAM`] was known, as bits. The program can already be running, and cause another
/// process to send a signal, before the command is scheduled again.
static EARLY: AtomicU64 = AtomicU64::new(0);

/// The process id and exit status of a program that has ended.
#[derive(Clone, Copy)]
pub(crate) struct ExitedProgram {
    pub(crate) process: u32,
    pub(crate) status: ExitStatus,
}

/// Whether `SIGUSR2` requests a snapshot instead of being forwarded, and whether a snapshot was requested.
static TAKES_SNAPSHOTS: AtomicBool = AtomicBool::new(false);
static SNAPSHOT_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Runs the program until it ends, and prints what the collector sends meanwhile. With `takes_snapshots`, `SIGUSR2` requests
/// a snapshot from the collector.
///
/// # Errors
/// Fails if the program cannot be started.
pub(crate) fn run(
    command: &mut Command,
    collector: &mut CollectorProcess,
    takes_snapshots: bool,
    streams: &mut Streams<'_>,
) -> io::Result<ExitedProgram> {
    EARLY.store(0, Ordering::SeqCst);
    TAKES_SNAPSHOTS.store(takes_snapshots, Ordering::SeqCst);
    let before: Vec<_> = forwarded().map(|signal| (signal, forward(signal))).collect();
    let previous_child_action = wait_for_children();
    let ended = start(command).and_then(|process| {
        PROGRAM.store(process as i32, Ordering::SeqCst);
        collector.program_started(process);
        send_early(process as i32);
        let ended = wait_for(process, collector, streams);
        PROGRAM.store(0, Ordering::SeqCst);
        Ok(ExitedProgram { process, status: ended? })
    });
    for (signal, before) in before {
        // SAFETY: restores an action that `sigaction` returned.
        unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
    }
    // SAFETY: restores an action that `sigaction` returned.
    unsafe { libc::sigaction(libc::SIGCHLD, &previous_child_action, std::ptr::null_mut()) };
    ended
}

/// Starts the program, and returns its process id.
fn start(command: &mut Command) -> io::Result<u32> {
    let of_service = inherited::service_manager_variables();
    if of_service.is_empty() {
        // The id suffices, because `wait_for` waits for the program by its process id.
        return command.spawn().map(|program| program.id());
    }
    // In the program, these variables must contain the program's own process id, which is known only after the fork.
    let (mut errors, mut errors_of_child) = io::pipe()?;
    // SAFETY: the process has a single thread, so the child can do anything that this process could.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            for name in of_service {
                command.env(name, std::process::id().to_string());
            }
            let error = std::os::unix::process::CommandExt::exec(command);
            let _ = errors_of_child.write_all(&error.raw_os_error().unwrap_or(libc::EIO).to_le_bytes());
            // SAFETY: ends the child without the handlers and buffers of the command.
            unsafe { libc::_exit(127) }
        }
        child => {
            drop(errors_of_child);
            let mut error = [0; 4];
            match errors.read_exact(&mut error) {
                // The pipe was closed by `exec`.
                Err(_) => Ok(child as u32),
                Ok(()) => Err(io::Error::from_raw_os_error(i32::from_le_bytes(error))),
            }
        }
    }
}

/// Returns the program's exit status if it has ended.
fn try_wait(process: u32) -> io::Result<Option<ExitStatus>> {
    let mut status = 0;
    // SAFETY: the call writes to a local variable.
    match unsafe { libc::waitpid(process as i32, &mut status, libc::WNOHANG) } {
        0 => Ok(None),
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            error => Err(error),
        },
        _ => Ok(Some(ExitStatus::from_raw(status))),
    }
}

/// Returns a descriptor of a process, which stays valid for that process even if the id is reused. Returns `None` if the
/// process has ended, and before Linux 5.3.
pub(super) fn open_process(process: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(process as i32)?, PidfdFlags::empty()).ok()
}

/// Waits until the program ends.
fn wait_for(
    program: u32,
    collector: &mut CollectorProcess,
    streams: &mut Streams<'_>,
) -> io::Result<ExitStatus> {
    let handle = open_process(program);
    let (mut is_heard, mut has_explained) = (true, false);
    loop {
        if SNAPSHOT_REQUESTED.swap(false, Ordering::SeqCst) {
            if catches(program, libc::SIGUSR2) {
                send(program as i32, libc::SIGUSR2);
                if !std::mem::replace(&mut has_explained, true) {
                    let text = "memtrack: SIGUSR2 takes no snapshot: the program handles the signal itself";
                    // The exit status is the program's, so a failure to write to standard error is ignored.
                    let _ = writeln!(streams.stderr, "{text}");
                }
            } else {
                collector.request_snapshot();
            }
        }
        let readable = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // Without the program's descriptor, `try_wait` is called twenty times a second. With snapshots, the loop also wakes
        // that often, because a signal that arrives just before `poll` does not interrupt it.
        let timeout = if handle.is_some() && !TAKES_SNAPSHOTS.load(Ordering::SeqCst) { -1 } else { 50 };
        // A negative descriptor is ignored.
        let channel = if is_heard { collector.descriptor() } else { -1 };
        let mut polled = [readable(handle.as_ref().map_or(-1, AsRawFd::as_raw_fd)), readable(channel)];
        // SAFETY: `polled` has two structures, which exist until the call returns.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout) };
        if polled[1].revents != 0 {
            is_heard = collector.receive(streams);
        }
        if (polled[0].revents != 0 || handle.is_none())
            && let Some(status) = try_wait(program)?
        {
            return Ok(status);
        }
    }
}

/// Returns whether a process has a handler for a signal.
fn catches(process: u32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal - 1) != 0
}

/// Sets the default action of SIGCHLD and returns the previous action: while SIGCHLD is ignored, the kernel does not
/// report how a child ended.
fn wait_for_children() -> libc::sigaction {
    // SAFETY: all zeros are the default action, and the kernel writes the previous one to `before`.
    unsafe {
        let (usual, mut before): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        libc::sigaction(libc::SIGCHLD, &usual, &mut before);
        before
    }
}

/// Returns the exit code that shells use for an exit status.
pub(crate) fn code_of(ended: ExitStatus) -> u8 {
    let code = ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Installs the handler that forwards a signal, unless the signal is ignored, and returns the previous action. `exec`
/// resets the signal's action to the default in the program.
fn forward(signal: i32) -> libc::sigaction {
    // SAFETY: the actions are initialised, and the handler calls only functions that are async-signal-safe.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut before);
        // Rust's runtime ignores SIGPIPE, which does not mean that the program should.
        let is_ignored = before.sa_sigaction == libc::SIG_IGN && signal != libc::SIGPIPE
            || signal == libc::SIGPIPE && inherited::ignores_pipe();
        if !is_ignored {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
        before
    }
}

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `info`.
    let (is_from_kernel, sender) = unsafe { ((*info).si_code == libc::SI_KERNEL, (*info).si_pid()) };
    // The terminal sends its signals to the program too. A closed pipe of the command does not concern the program.
    if is_from_kernel || signal == libc::SIGPIPE && sender == std::process::id() as i32 {
        if STOPS.contains(&signal) {
            // SAFETY: stops this process, as the signal would have, because the shell waits for that.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
        return;
    }
    if signal == libc::SIGUSR2 && TAKES_SNAPSHOTS.load(Ordering::SeqCst) {
        SNAPSHOT_REQUESTED.store(true, Ordering::SeqCst);
        return;
    }
    match PROGRAM.load(Ordering::SeqCst) {
        0 => {
            EARLY.fetch_or(1 << (signal - 1), Ordering::SeqCst);
            // Meanwhile, another thread might have stored the program's id and sent the early signals without this one.
            let program = PROGRAM.load(Ordering::SeqCst);
            if program > 0 {
                send_early(program);
            }
        }
        program => send(program, signal),
    }
}

/// The job-control signals that stop a process.
const STOPS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Sends the early signals to the program, each once.
fn send_early(program: i32) {
    let early = EARLY.swap(0, Ordering::SeqCst);
    forwarded().filter(|signal| early & 1 << (signal - 1) != 0).for_each(|signal| send(program, signal));
}

/// Sends a signal to the program. This function is async-signal-safe.
fn send(program: i32, signal: i32) {
    // SAFETY: `kill` is async-signal-safe, and `errno` is restored.
    unsafe {
        let before = *libc::__errno_location();
        libc::kill(program, signal);
        *libc::__errno_location() = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn early_signals_reach_the_program() {
        let mut command = Command::new("sleep");
        command.arg("60");
        // Runs between fork and exec, when the command cannot know the program's process id yet.
        let signal_the_command = || {
            // SAFETY: both calls are allowed after a fork.
            match unsafe { libc::kill(libc::getppid(), libc::SIGUSR2) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure only makes calls that are allowed after a fork.
        unsafe { command.pre_exec(signal_the_command) };
        let (mut input, mut text) = (io::empty(), Vec::new());
        let mut errors = Vec::new();
        let mut streams = Streams { stdin: &mut input, stdout: &mut text, stderr: &mut errors };
        let ended = run(&mut command, &mut CollectorProcess::ended(), false, &mut streams);
        let ended = ended.expect("sleep can be started");
        assert_eq!(ended.status.signal(), Some(libc::SIGUSR2), "it slept to the end");
    }
}

//! Restores, for the program, the state that Rust's runtime changes before `main`: the runtime ignores SIGPIPE, and opens
//! `/dev/null` where one of the first three descriptors is closed. The state is read before the runtime starts.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// The state before the runtime started, as bits.
static STATE: AtomicU8 = AtomicU8::new(0);
const STDIN_CLOSED: u8 = 1;
const STDOUT_CLOSED: u8 = 2;
const PIPE_IGNORED: u8 = 4;
const CHILD_IGNORED: u8 = 8;

/// Calls [`read_state`] before the runtime starts.
// SAFETY: the section holds pointers to functions, which the loader calls before `main`; `read_state` ignores arguments.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static READ_STATE: extern "C" fn() = read_state;

#[cfg(target_os = "linux")]
extern "C" fn read_state() {
    let mut found = 0;
    for (descriptor, closed) in [(libc::STDIN_FILENO, STDIN_CLOSED), (libc::STDOUT_FILENO, STDOUT_CLOSED)] {
        // SAFETY: reads the flags of a descriptor, which fails if it is closed.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            found |= closed;
        }
    }
    for (signal, ignored) in [(libc::SIGPIPE, PIPE_IGNORED), (libc::SIGCHLD, CHILD_IGNORED)] {
        if is_ignored(signal) {
            found |= ignored;
        }
    }
    STATE.store(found, Ordering::Relaxed);
}

#[cfg(target_os = "linux")]
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all zeros are a valid action; the kernel overwrites it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Returns whether the command was started with SIGPIPE ignored.
pub(super) fn ignores_pipe() -> bool {
    STATE.load(Ordering::Relaxed) & PIPE_IGNORED != 0
}

/// Returns the environment variables that a service manager has set to this process's id, as the process that it started.
pub(super) fn service_manager_variables() -> Vec<&'static str> {
    let here = std::process::id().to_string();
    let mut names = vec!["LISTEN_PID", "WATCHDOG_PID"];
    names.retain(|name| std::env::var(name).is_ok_and(|pid| pid == here));
    names
}

/// Makes the program start with the state that the command was started with.
///
/// A closed standard error stays `/dev/null`, because memtrack's messages in the program would otherwise go into the first file
/// that the program opens.
pub(crate) fn pass_on(command: &mut Command) {
    if STATE.load(Ordering::Relaxed) != 0 {
        // SAFETY: the function may run after a fork: it takes no lock, allocates no memory, and only makes system calls.
        unsafe { command.pre_exec(restore) };
    }
}

/// Restores the state that the command was started with, just before the program is executed in this process.
pub(super) fn restore_for_exec() -> io::Result<()> {
    if !ignores_pipe() {
        // SAFETY: restores the default action, which Rust's runtime has changed.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    restore()
}

fn restore() -> io::Result<()> {
    let found = STATE.load(Ordering::Relaxed);
    let is_set = |what| found & what != 0;
    // SAFETY: all calls are allowed between fork and exec, and nothing uses these descriptors until the program runs: std's
    // descriptors have higher numbers.
    unsafe {
        for (ignored, signal) in [(PIPE_IGNORED, libc::SIGPIPE), (CHILD_IGNORED, libc::SIGCHLD)] {
            if is_set(ignored) && libc::signal(signal, libc::SIG_IGN) == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        for (closed, descriptor) in [(STDIN_CLOSED, libc::STDIN_FILENO), (STDOUT_CLOSED, libc::STDOUT_FILENO)]
        {
            if is_set(closed) {
                libc::close(descriptor);
            }
        }
    }
    Ok(())
}

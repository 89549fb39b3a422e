//! The state that the command was started with and that Rust's runtime changes before `main`: it ignores SIGPIPE, and
//! opens `/dev/null` where one of the first three descriptors is closed. It is read earlier, and restored for the
//! program.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// The state found, a bit each.
static FOUND: AtomicU8 = AtomicU8::new(0);
const STDIN_CLOSED: u8 = 1;
const STDOUT_CLOSED: u8 = 2;
const PIPE_IGNORED: u8 = 4;
const CHILD_IGNORED: u8 = 8;

/// Called before the runtime begins.
// SAFETY: the section holds pointers to functions, which the loader calls before `main`; this one needs no argument.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

#[cfg(target_os = "linux")]
extern "C" fn look() {
    let mut found = 0;
    for (descriptor, closed) in [(libc::STDIN_FILENO, STDIN_CLOSED), (libc::STDOUT_FILENO, STDOUT_CLOSED)] {
        // SAFETY: reads a number's flags, which fails for one that is no descriptor.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            found |= closed;
        }
    }
    for (signal, ignored) in [(libc::SIGPIPE, PIPE_IGNORED), (libc::SIGCHLD, CHILD_IGNORED)] {
        if is_ignored(signal) {
            found |= ignored;
        }
    }
    FOUND.store(found, Ordering::Relaxed);
}

#[cfg(target_os = "linux")]
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: zeros are an action; the kernel fills it in.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Makes the program begin with the state that the command began with.
///
/// A closed standard error stays `/dev/null`: memtrack's messages inside the program go there, and would go into the
/// first file that the program opens.
pub(crate) fn pass_on(command: &mut Command) {
    let found = FOUND.load(Ordering::Relaxed);
    if found == 0 {
        return;
    }
    let as_it_was = move || {
        let is = |what| found & what != 0;
        // SAFETY: all three calls are allowed between fork and exec, and nothing uses the descriptors until the program
        // runs: what std keeps for itself has higher numbers.
        unsafe {
            for (ignored, signal) in [(PIPE_IGNORED, libc::SIGPIPE), (CHILD_IGNORED, libc::SIGCHLD)] {
                if is(ignored) && libc::signal(signal, libc::SIG_IGN) == libc::SIG_ERR {
                    return Err(io::Error::last_os_error());
                }
            }
            for (closed, descriptor) in
                [(STDIN_CLOSED, libc::STDIN_FILENO), (STDOUT_CLOSED, libc::STDOUT_FILENO)]
            {
                if is(closed) {
                    libc::close(descriptor);
                }
            }
        }
        Ok(())
    };
    // SAFETY: the closure is what may run there: no lock, no memory, three system calls.
    unsafe { command.pre_exec(as_it_was) };
}

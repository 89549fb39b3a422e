//! Runs the program and waits for it as a shell does: signals sent to the command are forwarded to the program, and the
//! program's exit status becomes the command's exit code.
//!
//! **Why not `exec` the program?** The command has to report the recordings when the program has ended.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The signals that are forwarded to the program.
const FORWARDED: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The program's process id; 0 before the program is started and after it has ended.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// The signals that arrived before [`PROGRAM`] was known, as bits: the program may already run, and cause another process
/// to send a signal, before the command is scheduled again.
static EARLY: AtomicU64 = AtomicU64::new(0);

/// The process id and exit status of a program that has ended.
#[derive(Clone, Copy)]
pub(crate) struct ExitedProgram {
    pub(crate) process: u32,
    pub(crate) status: ExitStatus,
}

/// Runs the program until it ends.
///
/// # Errors
/// Fails when the program cannot be started.
pub(crate) fn run(command: &mut Command) -> io::Result<ExitedProgram> {
    EARLY.store(0, Ordering::SeqCst);
    let before = FORWARDED.map(forward);
    let previous_child_action = wait_for_children();
    let ended = command.spawn().and_then(|mut program| {
        PROGRAM.store(program.id() as i32, Ordering::SeqCst);
        send_early(program.id() as i32);
        let ended = program.wait();
        PROGRAM.store(0, Ordering::SeqCst);
        Ok(ExitedProgram { process: program.id(), status: ended? })
    });
    for (signal, before) in FORWARDED.into_iter().zip(before) {
        // SAFETY: restores an action that `sigaction` returned.
        unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
    }
    // SAFETY: restores an action that `sigaction` returned.
    unsafe { libc::sigaction(libc::SIGCHLD, &previous_child_action, std::ptr::null_mut()) };
    ended
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
        if before.sa_sigaction != libc::SIG_IGN {
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
    let is_from_terminal = unsafe { (*info).si_code == libc::SI_KERNEL };
    // The terminal sends its signals to the program too.
    if is_from_terminal {
        return;
    }
    match PROGRAM.load(Ordering::SeqCst) {
        0 => {
            EARLY.fetch_or(1 << signal, Ordering::SeqCst);
            // Another thread may have stored the program in between, and then found no early signal to send.
            let program = PROGRAM.load(Ordering::SeqCst);
            if program > 0 {
                send_early(program);
            }
        }
        program => send(program, signal),
    }
}

/// Sends the early signals to the program, each once.
fn send_early(program: i32) {
    let early = EARLY.swap(0, Ordering::SeqCst);
    FORWARDED.into_iter().filter(|signal| early & 1 << signal != 0).for_each(|signal| send(program, signal));
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
        let ended = run(&mut command).expect("sleep can be started");
        assert_eq!(ended.status.signal(), Some(libc::SIGUSR2), "it slept to the end");
    }
}

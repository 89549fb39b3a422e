//! Waits for the program as a shell does: signals sent to the command reach the program, and its end becomes an exit
//! code.
//!
//! **Why wait, instead of becoming the program?** So that the command can report the recordings.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The signals that stop the command, meant for the program.
const PASSED_ON: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The program; 0 before it was started and after it ended.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// The signals that came before [`PROGRAM`] was known, a bit each: a program may run, and have another process send one,
/// before the command is scheduled again.
static EARLY: AtomicU64 = AtomicU64::new(0);

/// A program that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) process: u32,
    pub(crate) status: ExitStatus,
}

/// Runs the program to its end.
///
/// # Errors
/// Fails when it cannot be started.
pub(crate) fn run(command: &mut Command) -> io::Result<Ended> {
    EARLY.store(0, Ordering::SeqCst);
    let before = PASSED_ON.map(pass_on);
    let childs = wait_for_children();
    let ended = command.spawn().and_then(|mut program| {
        PROGRAM.store(program.id() as i32, Ordering::SeqCst);
        send_early(program.id() as i32);
        let ended = program.wait();
        PROGRAM.store(0, Ordering::SeqCst);
        Ok(Ended { process: program.id(), status: ended? })
    });
    for (signal, before) in PASSED_ON.into_iter().zip(before) {
        // SAFETY: restores the earlier action.
        unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
    }
    // SAFETY: as above.
    unsafe { libc::sigaction(libc::SIGCHLD, &childs, std::ptr::null_mut()) };
    ended
}

/// Sets the default action of SIGCHLD and returns the previous one: where it is ignored, the kernel does not report how a
/// child ended.
fn wait_for_children() -> libc::sigaction {
    // SAFETY: zeros are the default action, and the kernel fills the other one in.
    unsafe {
        let (usual, mut before): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        libc::sigaction(libc::SIGCHLD, &usual, &mut before);
        before
    }
}

/// Returns a shell's exit code for this end.
pub(crate) fn code_of(ended: ExitStatus) -> u8 {
    let code = ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Passes a signal on, unless it is ignored. A program that is started gets its default back.
fn pass_on(signal: i32) -> libc::sigaction {
    // SAFETY: the actions are complete, and the handler calls only functions that a handler may call.
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
    // A signal from the terminal has been sent to the program too.
    if is_from_terminal {
        return;
    }
    match PROGRAM.load(Ordering::SeqCst) {
        0 => {
            EARLY.fetch_or(1 << signal, Ordering::SeqCst);
            // It may have become known on another thread meanwhile, which then saw nothing to send.
            let program = PROGRAM.load(Ordering::SeqCst);
            if program > 0 {
                send_early(program);
            }
        }
        program => send(program, signal),
    }
}

/// Sends the program the early signals, once.
fn send_early(program: i32) {
    let early = EARLY.swap(0, Ordering::SeqCst);
    PASSED_ON.into_iter().filter(|signal| early & 1 << signal != 0).for_each(|signal| send(program, signal));
}

/// Sends a signal; may be called in handlers.
fn send(program: i32, signal: i32) {
    // SAFETY: `kill` may be called in a handler, and `errno` is put back.
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
    fn a_signal_that_comes_before_the_program_is_known_reaches_it() {
        let mut command = Command::new("sleep");
        command.arg("60");
        // Between fork and exec, while the command waits for the new process: it cannot know the program yet.
        let signal_the_command = || {
            // SAFETY: both may be called after a fork.
            match unsafe { libc::kill(libc::getppid(), libc::SIGUSR2) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure calls what may be called after a fork.
        unsafe { command.pre_exec(signal_the_command) };
        let ended = run(&mut command).expect("sleep can be started");
        assert_eq!(ended.status.signal(), Some(libc::SIGUSR2), "it slept to the end");
    }
}

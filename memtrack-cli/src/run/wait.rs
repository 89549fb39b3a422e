//! Waiting for the program as a shell does: signals sent to the command reach the program, and its end becomes an exit
//! code.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

/// What whoever stops the command wants to tell the program.
const PASSED_ON: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// The program; 0 before it was started and after it ended.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// A program that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) process: u32,
    pub(crate) status: ExitStatus,
}

/// Runs the program to its end.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn run(command: &mut Command) -> io::Result<Ended> {
    let before = PASSED_ON.map(pass_on);
    let ended = command.spawn().and_then(|mut program| {
        PROGRAM.store(program.id() as i32, Ordering::Relaxed);
        let ended = program.wait();
        PROGRAM.store(0, Ordering::Relaxed);
        Ok(Ended { process: program.id(), status: ended? })
    });
    for (signal, before) in PASSED_ON.into_iter().zip(before) {
        // SAFETY: what was there before.
        unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
    }
    ended
}

/// The exit code of a shell for this end.
pub(crate) fn code_of(ended: ExitStatus) -> u8 {
    let code = ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Has a signal passed on, unless it is ignored. A program that is started gets its default back.
fn pass_on(signal: i32) -> libc::sigaction {
    // SAFETY: the actions are whole, and the handler does what a handler may.
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
    let program = PROGRAM.load(Ordering::Relaxed);
    // SAFETY: the kernel passes a valid `info`; `kill` may be called in a handler, and `errno` is put back.
    unsafe {
        // What the terminal sends, the program has been sent too.
        if program > 0 && (*info).si_code != libc::SI_KERNEL {
            let before = *libc::__errno_location();
            libc::kill(program, signal);
            *libc::__errno_location() = before;
        }
    }
}

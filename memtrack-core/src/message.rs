//! What memtrack tells the user from inside a program: everything that it says goes through [`say`].
//!
//! A guest's words must not harm: they go straight to the system in one write, past Rust's lock of stderr, which the
//! program may hold for as long as it likes; they neither panic nor raise `SIGPIPE` where nobody listens; and they are
//! lost when stderr takes nothing for a while. They are said under no lock.
#![allow(unsafe_code)]

use crate::reentry;
use std::fmt;

/// Most bytes of one write: a pipe takes so many whole or not at all.
#[cfg(unix)]
const AT_ONCE_BYTES: usize = 4096;
/// How long stderr may take nothing before a message is lost, in milliseconds.
#[cfg(unix)]
const PATIENCE_MS: libc::c_int = 200;
/// Signals of the program's that may come meanwhile.
#[cfg(unix)]
const MOST_INTERRUPTIONS: u32 = 5;

/// Says `memtrack: MESSAGE` on stderr. Waits a moment at most; never panics. The caller holds no lock.
pub(crate) fn say(message: impl fmt::Display) {
    say_as("memtrack", message);
}

/// Says `WHO: MESSAGE` on stderr, for another of memtrack's libraries.
pub fn say_as(who: &str, message: impl fmt::Display) {
    let _inside = reentry::enter();
    write_to_stderr(format!("{who}: {message}\n").as_bytes());
}

#[cfg(unix)]
fn write_to_stderr(mut bytes: &[u8]) {
    crate::signals::without_write_signals(|| {
        let mut interruptions = 0;
        while !bytes.is_empty() && interruptions < MOST_INTERRUPTIONS {
            let is_interrupted = || std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
            let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
            // SAFETY: one entry of ours.
            let ready = unsafe { libc::poll(&mut stderr, 1, PATIENCE_MS) };
            if ready < 0 && is_interrupted() {
                interruptions += 1;
                continue;
            }
            if ready != 1 || stderr.revents & libc::POLLOUT == 0 {
                return;
            }
            let count = bytes.len().min(AT_ONCE_BYTES);
            // SAFETY: so many bytes are there.
            let written = unsafe { libc::write(2, bytes.as_ptr().cast(), count) };
            match usize::try_from(written) {
                Ok(written @ 1..) => bytes = &bytes[written..],
                Err(_) if is_interrupted() => interruptions += 1,
                // What stderr cannot take is lost.
                _ => return,
            }
        }
    });
}

#[cfg(not(unix))]
fn write_to_stderr(bytes: &[u8]) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), bytes);
}

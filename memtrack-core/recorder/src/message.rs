//! What memtrack tells the user from inside a program: everything that it says goes through [`say`].
//!
//! A guest's words must not harm: they go straight to the system in one write, past Rust's lock of stderr, which the
//! program may hold for as long as it likes; they neither panic nor raise `SIGPIPE` where nobody listens; and they are
//! lost when stderr takes nothing for a while. They are said under no lock.
//!
//! **Where do messages go?** To what stderr was when recording began. If the program has closed it and its number now
//! belongs to a file that is not written at its end, they are dropped, because they would damage that file.
#![allow(unsafe_code)]

use crate::reentry;
use memtrack_model::text::cut;
use std::fmt;
#[cfg(unix)]
use {
    crate::own_file::identity,
    std::fs::File,
    std::mem::ManuallyDrop,
    std::os::fd::FromRawFd,
    std::os::unix::fs::FileTypeExt,
    std::sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Most bytes of one write: a pipe takes so many whole or not at all.
#[cfg(unix)]
const AT_ONCE_BYTES: usize = 4096;
/// How long stderr may take nothing before a message is lost, in milliseconds.
#[cfg(unix)]
const PATIENCE_MS: libc::c_int = 200;
/// Signals of the program's that may come meanwhile.
#[cfg(unix)]
const MOST_INTERRUPTIONS: u32 = 5;

/// What stderr was when it was remembered: device and inode.
#[cfg(unix)]
static STDERR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
#[cfg(unix)]
static IS_REMEMBERED: AtomicBool = AtomicBool::new(false);

/// Remembers what stderr is, as early as possible; only the first call does. A program that closes it may be given its number
/// for a file of its own, in which memtrack's words would be damage.
pub fn remember_destination() {
    #[cfg(unix)]
    if !IS_REMEMBERED.load(Ordering::Acquire)
        && let Some(stderr) = stderr_data()
    {
        let (device, inode) = identity(&stderr);
        STDERR[0].store(device, Ordering::Relaxed);
        STDERR[1].store(inode, Ordering::Relaxed);
        IS_REMEMBERED.store(true, Ordering::Release);
    }
}

#[cfg(unix)]
fn stderr_data() -> Option<std::fs::Metadata> {
    // SAFETY: looked at, and not closed.
    let stderr = unsafe { ManuallyDrop::new(File::from_raw_fd(libc::STDERR_FILENO)) };
    stderr.metadata().ok()
}

/// Whether descriptor 2 may be written to: it is what it was, or no file in which lines at some place would be damage. Logs that
/// a program has opened meanwhile are written at their ends (`O_APPEND`).
#[cfg(unix)]
fn is_for_words() -> bool {
    if !IS_REMEMBERED.load(Ordering::Acquire) {
        return true;
    }
    let Some(now) = stderr_data() else { return false };
    let before = [0, 1].map(|place: usize| STDERR[place].load(Ordering::Relaxed));
    if <[u64; 2]>::from(identity(&now)) == before {
        return true;
    }
    let is_storage = now.is_file() || now.file_type().is_block_device();
    // SAFETY: asks for flags.
    !is_storage || unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFL) } & libc::O_APPEND != 0
}

/// Says `memtrack: MESSAGE` on stderr. Waits a moment at most; never panics. The caller holds no lock.
pub fn say(message: impl fmt::Display) {
    say_as("memtrack", message);
}

/// Says `WHO: MESSAGE` on stderr, for another of memtrack's libraries.
pub fn say_as(who: &str, message: impl fmt::Display) {
    let _inside = reentry::enter();
    write_to_stderr(format!("{who}: {message}\n").as_bytes());
}

/// Says lines that are whole, each with `memtrack: ` before it and its end behind it, in one go.
pub fn say_lines(lines: &str) {
    let _inside = reentry::enter();
    write_to_stderr(lines.as_bytes());
}

/// Longest message that is made without memory; what is beyond is cut off.
const LONGEST_AT_ONCE: usize = 1024;

/// Says `memtrack: MESSAGE` without taking memory for it, as long as the message's parts take none either: what is said
/// when there may be none.
pub fn say_at_once(message: fmt::Arguments<'_>) {
    struct Text {
        bytes: [u8; LONGEST_AT_ONCE],
        len: usize,
    }
    impl fmt::Write for Text {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            // One byte stays for the end of the line.
            let text = cut(text, LONGEST_AT_ONCE - 1 - self.len);
            self.bytes[self.len..self.len + text.len()].copy_from_slice(text.as_bytes());
            self.len += text.len();
            Ok(())
        }
    }
    let _inside = reentry::enter();
    let mut text = Text { bytes: [0; LONGEST_AT_ONCE], len: 0 };
    // It cannot fail, and what a part of the message refuses is left out.
    let _ = fmt::Write::write_fmt(&mut text, format_args!("memtrack: {message}"));
    text.bytes[text.len] = b'\n';
    write_to_stderr(&text.bytes[..=text.len]);
}

#[cfg(unix)]
fn write_to_stderr(mut bytes: &[u8]) {
    crate::signals::without_write_signals(|| {
        let mut interruptions = 0;
        while !bytes.is_empty() && interruptions < MOST_INTERRUPTIONS {
            match stderr() {
                Stderr::Takes => {}
                Stderr::Interrupted => {
                    interruptions += 1;
                    continue;
                }
                Stderr::TakesNothing => return,
            }
            let count = bytes.len().min(AT_ONCE_BYTES);
            // SAFETY: so many bytes are there.
            let written = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), count) };
            match usize::try_from(written) {
                Ok(written @ 1..) => bytes = &bytes[written..],
                Err(_) if is_interrupted() => interruptions += 1,
                // What stderr cannot take is lost.
                _ => return,
            }
        }
    });
}

/// Says a line that is given in parts, with all that belongs to it, in one go. May be called in a signal's handler: it takes
/// no memory and no lock, and leaves `errno` as it was.
#[cfg(all(feature = "cuda", target_os = "linux", target_env = "gnu"))]
pub fn say_in_a_handler<const PARTS: usize>(parts: &[&[u8]; PARTS]) {
    let parts =
        parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: every thread has an `errno`, and the parts are there.
    unsafe {
        let errno = *libc::__errno_location();
        crate::signals::without_write_signals(|| {
            if let Stderr::Takes = stderr() {
                libc::writev(libc::STDERR_FILENO, parts.as_ptr(), PARTS as libc::c_int);
            }
        });
        *libc::__errno_location() = errno;
    }
}

#[cfg(unix)]
enum Stderr {
    Takes,
    TakesNothing,
    /// By a signal, before that was known.
    Interrupted,
}

/// Whether stderr takes anything now, or within a moment.
#[cfg(unix)]
fn stderr() -> Stderr {
    if !is_for_words() {
        return Stderr::TakesNothing;
    }
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry of ours.
    match unsafe { libc::poll(&mut stderr, 1, PATIENCE_MS) } {
        1 if stderr.revents & libc::POLLOUT != 0 => Stderr::Takes,
        ready if ready < 0 && is_interrupted() => Stderr::Interrupted,
        _ => Stderr::TakesNothing,
    }
}

#[cfg(unix)]
fn is_interrupted() -> bool {
    std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}

#[cfg(not(unix))]
fn write_to_stderr(bytes: &[u8]) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), bytes);
}

//! Messages of memtrack to the user from inside a program: all of them are printed by [`print()`].
//!
//! A guest's messages must do no harm: they go directly to the system in one write, without Rust's lock of stderr,
//! which the program may hold for as long as it likes; they neither panic nor raise `SIGPIPE` if no process reads
//! them; and they are lost when stderr accepts nothing for a while. They are printed without a lock held.
//!
//! **Where do messages go?** To what stderr was when recording began. If the program has closed it and its number now
//! belongs to a file that is not written at its end, they are dropped, because they would damage that file.
#![allow(unsafe_code)]

use crate::reentry;
use memtrack_model::text::cut;
use std::fmt;
#[cfg(unix)]
use {
    crate::guarded_file::identity,
    std::fs::File,
    std::mem::ManuallyDrop,
    std::os::fd::FromRawFd,
    std::os::unix::fs::FileTypeExt,
    std::sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// The most bytes of one write: a pipe takes that many completely or not at all.
#[cfg(unix)]
const WRITE_BYTES: usize = 4096;
/// The time in milliseconds that stderr may accept nothing before a message is lost.
#[cfg(unix)]
const PATIENCE_MS: libc::c_int = 200;
/// The most signals of the program that may interrupt a message.
#[cfg(unix)]
const MAX_INTERRUPTIONS: u32 = 5;

/// The identity of stderr when it was remembered: device and inode.
#[cfg(unix)]
static STDERR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
#[cfg(unix)]
static IS_REMEMBERED: AtomicBool = AtomicBool::new(false);

/// Remembers the identity of stderr, as early as possible; only the first call does. A program that closes it may
/// receive its number for a file of its own, which messages would damage.
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
    // SAFETY: queried, and not closed.
    let stderr = unsafe { ManuallyDrop::new(File::from_raw_fd(libc::STDERR_FILENO)) };
    stderr.metadata().ok()
}

/// Returns whether messages may be written to descriptor 2: it is the remembered file, or one that lines cannot damage. Logs
/// that a program has opened meanwhile are written at their end (`O_APPEND`).
#[cfg(unix)]
fn is_safe_to_write() -> bool {
    if !IS_REMEMBERED.load(Ordering::Acquire) {
        return true;
    }
    let Some(now) = stderr_data() else { return false };
    let before = [0, 1].map(|place: usize| STDERR[place].load(Ordering::Relaxed));
    if <[u64; 2]>::from(identity(&now)) == before {
        return true;
    }
    let is_storage = now.is_file() || now.file_type().is_block_device();
    // SAFETY: queries flags.
    !is_storage || unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFL) } & libc::O_APPEND != 0
}

/// Prints `memtrack: MESSAGE` on stderr. Waits briefly at most; never panics. The caller holds no lock.
pub fn print(message: impl fmt::Display) {
    print_as("memtrack", message);
}

/// Prints `WHO: MESSAGE` on stderr, for another library of memtrack.
pub fn print_as(who: &str, message: impl fmt::Display) {
    let _inside = reentry::enter();
    write_to_stderr(format!("{who}: {message}\n").as_bytes());
}

/// Prints complete lines, each with `memtrack: ` before it and a line end, in one write.
pub fn print_lines(lines: &str) {
    let _inside = reentry::enter();
    write_to_stderr(lines.as_bytes());
}

/// The longest message that is formatted without memory; the rest is cut off.
const LONGEST_WITHOUT_ALLOCATING: usize = 1024;

/// Prints `memtrack: MESSAGE` without allocating, as long as the message's parts do not allocate either: for messages
/// when there may be no memory.
pub fn print_without_allocating(message: fmt::Arguments<'_>) {
    struct Text {
        bytes: [u8; LONGEST_WITHOUT_ALLOCATING],
        len: usize,
    }
    impl fmt::Write for Text {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            // One byte is reserved for the end of the line.
            let text = cut(text, LONGEST_WITHOUT_ALLOCATING - 1 - self.len);
            self.bytes[self.len..self.len + text.len()].copy_from_slice(text.as_bytes());
            self.len += text.len();
            Ok(())
        }
    }
    let _inside = reentry::enter();
    let mut text = Text { bytes: [0; LONGEST_WITHOUT_ALLOCATING], len: 0 };
    // It cannot fail, and a part of the message that fails is omitted.
    let _ = fmt::Write::write_fmt(&mut text, format_args!("memtrack: {message}"));
    text.bytes[text.len] = b'\n';
    write_to_stderr(&text.bytes[..=text.len]);
}

#[cfg(unix)]
fn write_to_stderr(mut bytes: &[u8]) {
    crate::signals::without_write_signals(|| {
        let mut interruptions = 0;
        while !bytes.is_empty() && interruptions < MAX_INTERRUPTIONS {
            match stderr() {
                Stderr::Ready => {}
                Stderr::Interrupted => {
                    interruptions += 1;
                    continue;
                }
                Stderr::Blocked => return,
            }
            let count = bytes.len().min(WRITE_BYTES);
            // SAFETY: so many bytes are there.
            let written = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), count) };
            match usize::try_from(written) {
                Ok(written @ 1..) => bytes = &bytes[written..],
                Err(_) if is_interrupted() => interruptions += 1,
                // Bytes that stderr does not accept are lost.
                _ => return,
            }
        }
    });
}

/// Prints a complete line that is given in parts, in one write. May be called in a signal handler: it takes no memory
/// and no lock, and preserves `errno`.
#[cfg(all(feature = "cuda", target_os = "linux", target_env = "gnu"))]
pub fn print_in_signal_handler<const PARTS: usize>(parts: &[&[u8]; PARTS]) {
    let parts =
        parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: every thread has an `errno`, and the parts are valid.
    unsafe {
        let errno = *libc::__errno_location();
        crate::signals::without_write_signals(|| {
            if let Stderr::Ready = stderr() {
                libc::writev(libc::STDERR_FILENO, parts.as_ptr(), PARTS as libc::c_int);
            }
        });
        *libc::__errno_location() = errno;
    }
}

#[cfg(unix)]
enum Stderr {
    Ready,
    Blocked,
    /// By a signal, before that was known.
    Interrupted,
}

/// Returns whether stderr accepts bytes now, or within a moment.
#[cfg(unix)]
fn stderr() -> Stderr {
    if !is_safe_to_write() {
        return Stderr::Blocked;
    }
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, a local variable.
    match unsafe { libc::poll(&mut stderr, 1, PATIENCE_MS) } {
        1 if stderr.revents & libc::POLLOUT != 0 => Stderr::Ready,
        ready if ready < 0 && is_interrupted() => Stderr::Interrupted,
        _ => Stderr::Blocked,
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

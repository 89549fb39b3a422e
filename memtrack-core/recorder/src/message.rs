//! Messages from memtrack to the user, printed from inside a program. All of them go through this module.
//!
//! Messages must not disturb the program: each goes directly to the system in one write, without Rust's lock on
//! stderr, which the program may hold for any length of time; printing neither panics nor raises `SIGPIPE` if no
//! process reads the message; and a message is lost if stderr accepts nothing for a while. The caller holds no lock.
//!
//! **Where do messages go?** To the file that was stderr when recording began. If the program has closed it and
//! descriptor 2 now refers to a file that is not in append mode, messages are dropped, because they would damage that
//! file.
#![allow(unsafe_code)]

use crate::guarded_file::identity;
use crate::reentry;
use crate::shared_memory::{self, log::Record};
use memtrack_model::text::cut;
use std::fmt;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The maximum size of one write: a pipe accepts that many bytes atomically (`PIPE_BUF`).
const WRITE_BYTES: usize = 4096;
/// The time to wait for stderr to accept bytes before a message is dropped.
const TIMEOUT_MS: libc::c_int = 200;
/// The number of interruptions by the program's signals after which the rest of a message is dropped.
const MAX_INTERRUPTIONS: u32 = 5;

/// The identity of stderr when it was remembered: device and inode.
static STDERR_IDENTITY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static IS_REMEMBERED: AtomicBool = AtomicBool::new(false);

/// Remembers the identity of stderr; only the first call has an effect, so it should be as early as possible. A program
/// that closes stderr may receive descriptor 2 for its own file, which messages would damage.
pub fn remember_destination() {
    if !IS_REMEMBERED.load(Ordering::Acquire)
        && let Some(stderr) = stderr_data()
    {
        let (device, inode) = identity(&stderr);
        STDERR_IDENTITY[0].store(device, Ordering::Relaxed);
        STDERR_IDENTITY[1].store(inode, Ordering::Relaxed);
        IS_REMEMBERED.store(true, Ordering::Release);
    }
}

fn stderr_data() -> Option<std::fs::Metadata> {
    // SAFETY: the descriptor is queried and not closed.
    let stderr = unsafe { ManuallyDrop::new(File::from_raw_fd(libc::STDERR_FILENO)) };
    stderr.metadata().ok()
}

/// Returns whether messages may be written to descriptor 2: it refers to the remembered file, or to one that additional
/// lines cannot damage, such as a log in append mode (`O_APPEND`) that the program has opened since.
fn is_safe_to_write() -> bool {
    if !IS_REMEMBERED.load(Ordering::Acquire) {
        return true;
    }
    let Some(now) = stderr_data() else { return false };
    let before = [0, 1].map(|place: usize| STDERR_IDENTITY[place].load(Ordering::Relaxed));
    if <[u64; 2]>::from(identity(&now)) == before {
        return true;
    }
    let is_storage = now.is_file() || now.file_type().is_block_device();
    // SAFETY: the call only queries flags.
    !is_storage || unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFL) } & libc::O_APPEND != 0
}

/// Prints `memtrack: MESSAGE` on stderr. Waits only briefly and never panics. The caller must hold no lock.
pub fn print(message: impl fmt::Display) {
    print_as("memtrack", message);
}

/// Prints `NAME: MESSAGE` on stderr, for another library of memtrack.
pub fn print_as(name: &str, message: impl fmt::Display) {
    let _inside = reentry::enter();
    if shared_memory::is_connected() {
        // The command prints the message, so that the program prints none of memtrack's messages.
        let text = message.to_string();
        return shared_memory::append(&Record::Message(text.into()));
    }
    write_to_stderr(format!("{name}: {message}\n").as_bytes());
}

/// Prints complete lines, each of which already has the prefix `memtrack: ` and a newline, in one write.
pub fn print_lines(lines: &str) {
    let _inside = reentry::enter();
    write_to_stderr(lines.as_bytes());
}

/// The maximum length of a message that is formatted without allocating, in bytes. Longer messages are truncated.
const LINE_BUFFER_BYTES: usize = 1024;

/// Prints `memtrack: MESSAGE` without allocating, provided that formatting the message does not allocate either: for
/// use when memory may have run out.
pub fn print_without_allocating(message: fmt::Arguments<'_>) {
    struct LineBuffer {
        bytes: [u8; LINE_BUFFER_BYTES],
        len: usize,
    }
    impl fmt::Write for LineBuffer {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            // One byte is reserved for the end of the line.
            let text = cut(text, LINE_BUFFER_BYTES - 1 - self.len);
            self.bytes[self.len..self.len + text.len()].copy_from_slice(text.as_bytes());
            self.len += text.len();
            Ok(())
        }
    }
    let _inside = reentry::enter();
    let mut text = LineBuffer { bytes: [0; LINE_BUFFER_BYTES], len: 0 };
    // Writing to the buffer cannot fail; a part of the message that fails to format is omitted.
    let _ = fmt::Write::write_fmt(&mut text, format_args!("memtrack: {message}"));
    text.bytes[text.len] = b'\n';
    write_to_stderr(&text.bytes[..=text.len]);
}

fn write_to_stderr(mut bytes: &[u8]) {
    crate::signals::without_write_signals(|| {
        let mut interruptions = 0;
        while !bytes.is_empty() && interruptions < MAX_INTERRUPTIONS {
            match poll_stderr() {
                StderrState::Ready => {}
                StderrState::Interrupted => {
                    interruptions += 1;
                    continue;
                }
                StderrState::Blocked => return,
            }
            let count = bytes.len().min(WRITE_BYTES);
            // SAFETY: `count` is at most the length of `bytes`.
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

enum StderrState {
    Ready,
    Blocked,
    /// A signal interrupted the call.
    Interrupted,
}

/// Waits until stderr accepts bytes, for [`TIMEOUT_MS`] at most.
fn poll_stderr() -> StderrState {
    if !is_safe_to_write() {
        return StderrState::Blocked;
    }
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the only entry is a local variable.
    match unsafe { libc::poll(&mut stderr, 1, TIMEOUT_MS) } {
        1 if stderr.revents & libc::POLLOUT != 0 => StderrState::Ready,
        ready if ready < 0 && is_interrupted() => StderrState::Interrupted,
        _ => StderrState::Blocked,
    }
}

fn is_interrupted() -> bool {
    std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
}

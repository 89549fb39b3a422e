//! The resident set of the process: what the host heap's "reserved" means in reports.

#[cfg(target_os = "linux")]
use crate::own_file::OwnFile;
#[cfg(target_os = "linux")]
use crate::recorder::ForkCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// `/proc/self` of a child is another file, so it is opened anew there.
#[cfg(target_os = "linux")]
static STATM: ForkCell<Option<OwnFile>> = ForkCell::new(opened);

#[cfg(target_os = "linux")]
fn opened() -> Option<OwnFile> {
    std::fs::File::open("/proc/self/statm").and_then(OwnFile::new).ok()
}

/// How often the file was opened anew because the program had closed it. What is left behind then is a few bytes; whoever
/// closes all files in a loop gets no number in the end.
#[cfg(target_os = "linux")]
static REOPENED: AtomicU64 = AtomicU64::new(0);
#[cfg(target_os = "linux")]
const MOST_REOPENED: u64 = 1000;

/// How old an answer of [`resident_bytes_lately`] may be.
const LATELY: Duration = Duration::from_micros(100);

/// The resident set in bytes, at most 100 µs old. For readers that ask after every operator: with small ones the asking
/// would cost more than all else of default mode. In 100 µs a thread touches a few hundred new pages at most.
pub(crate) fn resident_bytes_lately() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    /// Microseconds since `START` when the kernel was asked, from 1, and its answer. Another thread's answer beside
    /// one's own time does no harm: both are as new.
    static ASKED_US: AtomicU64 = AtomicU64::new(0);
    static ANSWER: AtomicU64 = AtomicU64::new(0);
    let now_us = START.get_or_init(Instant::now).elapsed().as_micros() as u64 + 1;
    let asked_us = ASKED_US.load(Ordering::Acquire);
    if asked_us != 0 && now_us.saturating_sub(asked_us) < LATELY.as_micros() as u64 {
        return ANSWER.load(Ordering::Relaxed);
    }
    let answer = resident_bytes();
    ANSWER.store(answer, Ordering::Relaxed);
    ASKED_US.store(now_us, Ordering::Release);
    answer
}

/// The resident set in bytes; 0 when the system does not say. About 1.5 µs.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes() -> u64 {
    let mut text = [0_u8; 128];
    let Some(file) = STATM.get() else { return 0 };
    let len = match file.read_at(&mut text, 0) {
        Some(len) => len,
        None if REOPENED.fetch_add(1, Ordering::Relaxed) < MOST_REOPENED => {
            STATM.forget();
            STATM.get().as_ref().and_then(|file| file.read_at(&mut text, 0)).unwrap_or(0)
        }
        None => 0,
    };
    let mut fields = text[..len].split(|byte| *byte == b' ');
    let pages = fields.nth(1).and_then(|field| std::str::from_utf8(field).ok()?.parse::<u64>().ok());
    pages.unwrap_or(0) * page_bytes()
}

#[cfg(target_os = "linux")]
fn page_bytes() -> u64 {
    // SAFETY: sysconf has no effect but its answer.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Not known on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn resident_bytes() -> u64 {
    0
}

/// In the child of a fork.
pub(super) fn reset_after_fork() {
    #[cfg(target_os = "linux")]
    STATM.forget();
}

//! The resident set of the process: the meaning of the host heap's "reserved" in reports.

#[cfg(target_os = "linux")]
use crate::events::ForkCell;
use crate::events::ticks;
#[cfg(target_os = "linux")]
use crate::guarded_file::GuardedFile;
use std::sync::atomic::{AtomicU64, Ordering};

/// In a child `/proc/self` is another file, so it is reopened there.
#[cfg(target_os = "linux")]
static STATM: ForkCell<Option<GuardedFile>> = ForkCell::new(opened);

#[cfg(target_os = "linux")]
fn opened() -> Option<GuardedFile> {
    std::fs::File::open("/proc/self/statm").and_then(GuardedFile::new).ok()
}

/// The number of times that the file was reopened because the program had closed it. Each time leaks a few
/// bytes; a program that closes all files in a loop gets no number in the end.
#[cfg(target_os = "linux")]
static REOPENED: AtomicU64 = AtomicU64::new(0);
#[cfg(target_os = "linux")]
const MAX_REOPENED: u64 = 1000;

/// A result is reused until it is so many times as old as a read takes.
const READ_SHARE: u64 = 1600;

/// Returns the resident set in bytes, read recently: so long ago that reading takes a sixteenth of a percent of the
/// time at most, which is some 2.4 ms. For trackers that read after every operator: with small operators, reading
/// would cost more than the rest of default mode. In 2.4 ms a thread touches some eight thousand new pages at most.
/// Also returns the ticks at the call, which are read anyway.
pub fn recent_resident_bytes() -> (u64, u64) {
    /// The result, when it expires, and how long reading took, in ticks of the recorder's clock. It does no harm to
    /// combine one thread's result with another thread's time: both are as new.
    static RESULT: AtomicU64 = AtomicU64::new(0);
    static EXPIRES: AtomicU64 = AtomicU64::new(0);
    static READ_TICKS: AtomicU64 = AtomicU64::new(u64::MAX);
    let before = ticks();
    let expires = EXPIRES.load(Ordering::Acquire);
    // If the clock was set back (a restored machine), an old result must not be used for long.
    if before < expires && expires - before <= READ_SHARE.saturating_mul(READ_TICKS.load(Ordering::Relaxed)) {
        return (RESULT.load(Ordering::Relaxed), before);
    }
    let result = resident_bytes();
    let after = ticks();
    // A thread that loses the processor while reading must not make reading look expensive.
    let read_ticks =
        after.saturating_sub(before).min(READ_TICKS.load(Ordering::Relaxed).saturating_mul(2)).max(1);
    READ_TICKS.store(read_ticks, Ordering::Relaxed);
    RESULT.store(result, Ordering::Relaxed);
    EXPIRES.store(after.saturating_add(READ_SHARE.saturating_mul(read_ticks)), Ordering::Release);
    (result, before)
}

/// Returns the resident set in bytes; 0 if the system does not provide it. About 1.5 µs.
#[cfg(target_os = "linux")]
pub fn resident_bytes() -> u64 {
    let mut text = [0_u8; 128];
    let Some(file) = STATM.get() else { return 0 };
    let len = match file.read_at(&mut text, 0) {
        Some(len) => len,
        None if REOPENED.fetch_add(1, Ordering::Relaxed) < MAX_REOPENED => {
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
    // SAFETY: sysconf only returns a value.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Unknown on this system.
#[cfg(not(target_os = "linux"))]
pub fn resident_bytes() -> u64 {
    0
}

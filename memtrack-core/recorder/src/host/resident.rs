//! The resident set of the process: what the host heap's "reserved" means in reports.

#[cfg(target_os = "linux")]
use crate::own_file::OwnFile;
#[cfg(target_os = "linux")]
use crate::recorder::ForkCell;
use crate::recorder::ticks;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// An answer of [`resident_bytes_lately`] is used until it is so many times as old as asking takes.
const ASKING_SHARE: u64 = 1600;

/// The resident set in bytes as it was lately: so long ago that asking takes a sixteenth of a percent of the time at most,
/// which is some 2.4 ms. For readers that ask after every operator: with small ones the asking would cost more than all else
/// of default mode. In 2.4 ms a thread touches some eight thousand new pages at most.
/// Also returns the ticks at the call, which it reads anyway.
pub fn resident_bytes_lately() -> (u64, u64) {
    /// The answer, from when on it is too old, and what asking took, in ticks of the recorder's clock. Another thread's
    /// answer beside one's own time does no harm: both are as new.
    static ANSWER: AtomicU64 = AtomicU64::new(0);
    static UNTIL: AtomicU64 = AtomicU64::new(0);
    static TAKES: AtomicU64 = AtomicU64::new(u64::MAX);
    let before = ticks();
    let until = UNTIL.load(Ordering::Acquire);
    // A clock that was put back (a restored machine) must not keep an old answer for long.
    if before < until && until - before <= ASKING_SHARE.saturating_mul(TAKES.load(Ordering::Relaxed)) {
        return (ANSWER.load(Ordering::Relaxed), before);
    }
    let answer = resident_bytes();
    let after = ticks();
    // Whoever loses the processor while asking does not find asking dear.
    let takes = after.saturating_sub(before).min(TAKES.load(Ordering::Relaxed).saturating_mul(2)).max(1);
    TAKES.store(takes, Ordering::Relaxed);
    ANSWER.store(answer, Ordering::Relaxed);
    UNTIL.store(after.saturating_add(ASKING_SHARE.saturating_mul(takes)), Ordering::Release);
    (answer, before)
}

/// The resident set in bytes; 0 when the system does not say. About 1.5 µs.
#[cfg(target_os = "linux")]
pub fn resident_bytes() -> u64 {
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
pub fn resident_bytes() -> u64 {
    0
}

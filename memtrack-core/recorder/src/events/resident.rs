//! The resident set of the process, which reports show as the "reserved" memory of the host heap.
#![allow(unsafe_code)]

use super::fork::ForkCell;
use crate::clock::ticks;
use crate::guarded_file::GuardedFile;
use std::sync::atomic::{AtomicU64, Ordering};

/// The open file `/proc/self/statm`. It is reopened in a forked child, where `/proc/self` is another directory.
static STATM: ForkCell<Option<GuardedFile>> = ForkCell::new(open_statm);

fn open_statm() -> Option<GuardedFile> {
    std::fs::File::open("/proc/self/statm").and_then(GuardedFile::new).ok()
}

/// The number of times the file was reopened because the program had closed it. Each time leaks a few bytes, so the
/// number is limited.
static REOPENED: AtomicU64 = AtomicU64::new(0);
const MAX_REOPENED: u64 = 1000;

/// The maximum age of a result that is reused, relative to the duration of a read.
const MAX_AGE_FACTOR: u64 = 1600;

/// Returns the resident set in bytes and the ticks at the call. The result may be about 2.4 ms old, so that reading
/// takes at most a sixteenth of a percent of the time. This is for trackers, which call it after every operator. With
/// small operators, reading each time would cost more than the rest of the default mode. In 2.4 ms, a thread touches at
/// most about eight thousand new pages.
pub fn recent_resident_bytes() -> (u64, u64) {
    /// The result of the last read. Combining one thread's result with another thread's times is harmless, because all
    /// are equally recent.
    static RESULT: AtomicU64 = AtomicU64::new(0);
    /// The time from which the result must not be reused, in ticks.
    static EXPIRES: AtomicU64 = AtomicU64::new(0);
    /// The duration of the last read, in ticks.
    static READ_TICKS: AtomicU64 = AtomicU64::new(u64::MAX);
    let before = ticks();
    let expires = EXPIRES.load(Ordering::Acquire);
    // If the clock jumped back (on a restored virtual machine), an old result must not be used for long.
    if before < expires
        && expires - before <= MAX_AGE_FACTOR.saturating_mul(READ_TICKS.load(Ordering::Relaxed))
    {
        return (RESULT.load(Ordering::Relaxed), before);
    }
    let result = resident_bytes();
    let after = ticks();
    // A thread that is descheduled while reading must not make reading look expensive.
    let read_ticks =
        after.saturating_sub(before).min(READ_TICKS.load(Ordering::Relaxed).saturating_mul(2)).max(1);
    READ_TICKS.store(read_ticks, Ordering::Relaxed);
    RESULT.store(result, Ordering::Relaxed);
    EXPIRES.store(after.saturating_add(MAX_AGE_FACTOR.saturating_mul(read_ticks)), Ordering::Release);
    (result, before)
}

/// Returns the resident set in bytes, or 0 if the system does not provide it. Takes about 1.5 µs.
pub fn resident_bytes() -> u64 {
    virtual_and_resident_bytes()[1]
}

/// Returns the size of the process's address space and of its resident set, in bytes; 0 if the system does not provide
/// them.
pub fn virtual_and_resident_bytes() -> [u64; 2] {
    let mut text = [0_u8; 128];
    let Some(file) = STATM.get() else { return [0; 2] };
    let len = match file.read_at(&mut text, 0) {
        Some(len) => len,
        None if REOPENED.fetch_add(1, Ordering::Relaxed) < MAX_REOPENED => {
            STATM.forget();
            STATM.get().as_ref().and_then(|file| file.read_at(&mut text, 0)).unwrap_or(0)
        }
        None => 0,
    };
    let mut fields = text[..len].split(|byte| *byte == b' ');
    [(); 2].map(|()| {
        let pages = fields.next().and_then(|field| std::str::from_utf8(field).ok()?.parse::<u64>().ok());
        pages.unwrap_or(0) * page_bytes()
    })
}

/// Returns the size of a page in bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf only returns a value.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

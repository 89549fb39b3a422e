//! The resident set of the process: what the host heap's "reserved" means in reports.

#[cfg(target_os = "linux")]
use crate::recorder::ForkCell;

/// `/proc/self` of a child is another file, so it is opened anew there.
#[cfg(target_os = "linux")]
static STATM: ForkCell<Option<std::fs::File>> =
    ForkCell::new(|| std::fs::File::open("/proc/self/statm").ok());

/// The resident set in bytes; 0 when the system does not say. About 1 µs.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes() -> u64 {
    use std::os::unix::fs::FileExt;
    let Some(file) = STATM.get() else { return 0 };
    let mut text = [0_u8; 128];
    let len = file.read_at(&mut text, 0).unwrap_or(0);
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

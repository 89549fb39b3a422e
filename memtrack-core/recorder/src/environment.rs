//! The environment variables that memtrack reads. In a program with more rights than its caller (setuid, setgid, file
//! capabilities) memtrack reads none of them: otherwise the caller could make the program write a file of the caller's
//! choice.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;

/// Returns a variable's value; `None` if it is not set, or if the environment is not trustworthy.
pub fn variable(name: &str) -> Option<OsString> {
    if is_privileged() { None } else { std::env::var_os(name) }
}

/// Returns a variable's value as text; `None` as for [`variable`], and if the value is not Unicode.
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Returns the folder for files whose folder was not specified: `TMPDIR` if it is set and trustworthy, and otherwise
/// `/tmp`.
pub fn temporary_folder() -> PathBuf {
    if !is_privileged() {
        return std::env::temp_dir();
    }
    PathBuf::from("/tmp")
}

/// Returns the kernel's `AT_SECURE` flag of the process, which C's `secure_getenv` also checks.
fn is_privileged() -> bool {
    // SAFETY: reads a vector that the kernel wrote.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The address space that the recorder's tables can need, in bytes.
pub const ROOM_BYTES: u64 = 256 << 20;

/// Returns whether the limit on the process's address space leaves room for the recorder's tables. The tables are larger
/// than most such limits, and a failed allocation in the recorder would end the program.
pub fn has_address_space() -> bool {
    let Some(limit) = address_space_limit() else { return true };
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    limit.saturating_sub(pages * 4096) >= ROOM_BYTES
}

/// Returns the limit on the process's address space in bytes; `None` if there is no limit, or if it is not known.
pub fn address_space_limit() -> Option<u64> {
    // SAFETY: the call fills a local variable.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        (libc::getrlimit(libc::RLIMIT_AS, &mut limit) == 0).then_some(limit.rlim_cur)
    };
    limit.filter(|&limit| limit != libc::RLIM_INFINITY)
}

//! The environment variables that memtrack reads. In a program with more rights than its caller (setuid, setgid, file
//! capabilities) it reads none: otherwise the caller could choose a file for such a program to write.
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

/// Returns the folder for files whose folder was not specified: `TMPDIR`, if it is set and trustworthy.
pub fn temporary_folder() -> PathBuf {
    if !is_privileged() {
        return std::env::temp_dir();
    }
    PathBuf::from("/tmp")
}

/// Returns the kernel's `AT_SECURE` flag of the process, which C's `secure_getenv` checks, too.
#[cfg(target_os = "linux")]
fn is_privileged() -> bool {
    // SAFETY: reads a vector that the kernel wrote.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// On other systems there is no recorder, so no variable names a file to write.
#[cfg(not(target_os = "linux"))]
fn is_privileged() -> bool {
    false
}

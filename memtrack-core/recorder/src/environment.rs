//! The variables that memtrack reads in the environment of its program. In a program with more rights than its caller
//! (setuid, setgid, file capabilities) it reads none: otherwise the caller could choose a file for such a program to
//! write.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;

/// Returns a variable's value; `None` if it is not set, or not trustworthy.
pub fn variable(name: &str) -> Option<OsString> {
    if is_privileged() { None } else { std::env::var_os(name) }
}

/// Returns the same as text; also `None` if it is not Unicode.
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Returns the folder for files without a given folder: `TMPDIR`, if it is set and trustworthy.
pub fn temporary_folder() -> PathBuf {
    if !is_privileged() {
        return std::env::temp_dir();
    }
    PathBuf::from("/tmp")
}

/// Returns the kernel's flag for the process after `exec`, which C's `secure_getenv` uses, too.
#[cfg(target_os = "linux")]
fn is_privileged() -> bool {
    // SAFETY: reads a vector that the kernel wrote.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Without the recorder no file is named here.
#[cfg(not(target_os = "linux"))]
fn is_privileged() -> bool {
    false
}

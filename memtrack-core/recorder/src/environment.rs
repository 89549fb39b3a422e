//! What memtrack reads in the environment of the program it is in. In a program that has more rights than its caller
//! (setuid, setgid, file capabilities) that is nothing: the caller would say which file such a program is to write.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;

/// A variable's value; `None` where it is not set, or not to be believed.
pub fn variable(name: &str) -> Option<OsString> {
    if is_privileged() { None } else { std::env::var_os(name) }
}

/// The same as text; `None` for what is no Unicode too.
pub fn text(name: &str) -> Option<String> {
    variable(name)?.into_string().ok()
}

/// Where files go that nobody has named a folder for: `TMPDIR`, where it is set and to be believed.
pub fn temporary_folder() -> PathBuf {
    if !is_privileged() {
        return std::env::temp_dir();
    }
    PathBuf::from("/tmp")
}

/// What the kernel told the process when it became this program, as C's `secure_getenv` asks.
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

//! Dumps that a service writes without being changed or stopped: when SIGUSR2 arrives ([`signal`]), and when memory runs low
//! ([`pressure`]). A thread of memtrack waits and writes; the program's threads only answer the snapshot. `rise` decides
//! when a dump is due; `stall` and `memtrack_resident::cgroup` read the kernel's files.

pub mod pressure;
mod rise;
pub mod signal;
mod stall;

use crate::events::{report_hook, session};
use memtrack_file::tagged_path;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The number of dumps that are kept: the newest at the path itself, and earlier ones as `NAME.1.SUFFIX` to `NAME.3.SUFFIX`.
pub const KEPT_DUMPS: u32 = 4;

/// Returns the path as an absolute one, which stays valid when the program changes its working directory.
///
/// # Errors
/// Fails when no dump can have this name, or when the working directory does not exist.
fn checked_path(path: &Path) -> io::Result<PathBuf> {
    session::with_file_name(path, || {
        (session::dumper().accepts)(path).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        std::path::absolute(path)
    })
}

/// Writes everything recorded so far to `path`, after the earlier dumps have moved one name on. Returns false if nothing is
/// monitored.
///
/// # Errors
/// Fails when the file cannot be written; the earlier dumps keep their names then.
fn write(path: &Path) -> io::Result<bool> {
    let Some(snapshot) = session::snapshot() else { return Ok(false) };
    report_hook::at_dump(&snapshot);
    session::with_file_name(path, || {
        let newest = tagged_path(path, "new");
        (session::dumper().write)(&snapshot, &newest)?;
        for number in (0..KEPT_DUMPS - 1).rev() {
            match fs::rename(earlier_dump(path, number), earlier_dump(path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(newest, path)
    })?;
    Ok(true)
}

/// Returns the path of the dump before `number` later ones.
fn earlier_dump(path: &Path, number: u32) -> PathBuf {
    match number {
        0 => path.to_owned(),
        number => tagged_path(path, &number.to_string()),
    }
}

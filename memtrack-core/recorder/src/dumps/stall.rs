//! The kernel's measure of the time in which threads waited for memory (PSI): a trigger, which wakes the thread that polls it
//! as soon as the threshold is exceeded, and the total, which is read whenever that thread runs.
//!
//! **Why both?** A kernel may refuse triggers to a process without privileges, and a program may close the trigger's
//! descriptor, as daemons do. The total needs only a file that can be read.
#![allow(unsafe_code)]

use super::rise::{EventSource, Reading};
use crate::guarded_file::GuardedFile;
use memtrack_model::pressure::STALL_WINDOW;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A source of stalls.
#[derive(Debug)]
pub(super) struct Stalls {
    path: PathBuf,
    threshold: Duration,
    trigger: Option<GuardedFile>,
    /// The total time in microseconds, and when it was read.
    last: (u64, Duration),
    events: EventSource,
}

impl Stalls {
    /// Opens the first of the files that reports stalls.
    ///
    /// # Errors
    /// Fails when there is none, with the reason.
    pub(super) fn open(files: &[PathBuf], threshold: Duration, with_trigger: bool) -> Result<Self, String> {
        let mut why = "the kernel has no PSI (pressure stall information)".to_owned();
        for path in files {
            match total_us(path) {
                Ok(total) => {
                    let trigger = with_trigger.then(|| trigger(path, threshold).ok()).flatten();
                    let (last, events) = ((total, Duration::ZERO), EventSource::default());
                    return Ok(Self { path: path.clone(), threshold, trigger, last, events });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // The kernel was started without it, or the file belongs to someone else.
                Err(error) => why = format!("{}: {error}", path.display()),
            }
        }
        Err(why)
    }

    /// Returns the file, and whether a trigger is set.
    pub(super) fn describe(&self) -> (&Path, bool) {
        (&self.path, self.trigger.is_some())
    }

    /// Waits until the trigger fires, for `timeout` at most. Returns whether it fired; `None` at once if there is no trigger.
    pub(super) fn wait(&mut self, timeout: Duration) -> Option<bool> {
        // The program may have closed the descriptor, and its number may be another file's now.
        let file = self.trigger.as_ref().filter(|file| file.is_intact())?;
        let mut poll = libc::pollfd { fd: file.descriptor(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: the only entry is a local variable.
        let ready = unsafe { libc::poll(&mut poll, 1, timeout.as_millis() as libc::c_int) };
        if ready == 1 && poll.revents & (libc::POLLERR | libc::POLLNVAL) != 0 {
            // The group is gone.
            self.trigger = None;
            return None;
        }
        // After an error, the interval is waited for in another way.
        (ready >= 0).then_some(ready == 1)
    }

    /// Returns the reading at `now`: above if the trigger has fired, or if the total grew faster than the threshold allows.
    pub(super) fn read(&mut self, now: Duration, has_fired: bool) -> Reading {
        let Ok(total) = total_us(&self.path) else { return Reading::Between };
        let (before, at) = std::mem::replace(&mut self.last, (total, now));
        let stalled = Duration::from_micros(total.saturating_sub(before));
        // Between two readings less than a window apart, the whole threshold must be exceeded.
        let windows = (now.saturating_sub(at).as_secs_f64() / STALL_WINDOW.as_secs_f64()).max(1.0);
        self.events.read(now, has_fired || stalled.as_secs_f64() >= self.threshold.as_secs_f64() * windows)
    }
}

/// Returns the total time in which some thread waited: `total` in the row `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn total_us(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let some = text.lines().find(|line| line.starts_with("some "));
    let total = some.and_then(|line| line.rsplit_once("total=")?.1.trim().parse().ok());
    total.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "there is no row \"some … total=N\""))
}

fn trigger(path: &Path, threshold: Duration) -> io::Result<GuardedFile> {
    let file = File::options().read(true).write(true).open(path)?;
    // The kernel overwrites the last byte.
    let text = format!("some {} {}\0", threshold.as_micros(), STALL_WINDOW.as_micros());
    (&file).write_all(text.as_bytes())?;
    GuardedFile::new(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn write(path: &Path, total: u64) {
        let rows = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 total=1\n");
        fs::write(path, rows).unwrap();
    }

    #[test]
    fn stalls_are_read_from_the_total_without_a_trigger() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, path) = (folder.path().join("missing"), folder.path().join("memory"));
        write(&path, 1_000_000);
        let mut stalls = Stalls::open(&[missing, path.clone()], SECOND / 5, false).unwrap();
        assert_eq!(stalls.describe(), (&*path, false));
        assert_eq!(stalls.wait(SECOND), None);
        write(&path, 1_100_000);
        assert_eq!(stalls.read(SECOND, false), Reading::Below);
        write(&path, 1_300_000);
        assert_eq!(stalls.read(2 * SECOND, false), Reading::Above);
        // 0.3 s in ten seconds are less than 0.2 s in each window.
        write(&path, 1_600_000);
        assert_eq!(stalls.read(12 * SECOND, false), Reading::Between);
        assert_eq!(stalls.read(13 * SECOND, true), Reading::Above, "the trigger fired");
    }

    #[test]
    fn a_kernel_without_the_file_or_with_another_one_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        let error = Stalls::open(std::slice::from_ref(&path), SECOND, false).unwrap_err();
        assert!(error.contains("has no PSI"), "{error}");
        fs::write(&path, "nonsense").unwrap();
        let error = Stalls::open(&[path], SECOND, false).unwrap_err();
        assert!(error.contains("memory: there is no row"), "{error}");
    }
}

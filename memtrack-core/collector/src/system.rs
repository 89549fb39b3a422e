//! What the system knows about a process.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A process that may end at any time.
#[derive(Debug)]
pub(crate) struct SystemProcess {
    pid: u32,
    /// A descriptor of the process; `None` if it had ended before it was opened, or if the system has none.
    handle: Option<OwnedFd>,
    has_ended: bool,
}

impl SystemProcess {
    /// Opens the process with this id.
    pub(crate) fn open(pid: u32) -> Self {
        // SAFETY: the call returns a new descriptor or an error.
        let handle = unsafe {
            let handle = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
            if handle < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(handle)) }
        };
        let has_ended = matches!(&handle, Err(error) if error.raw_os_error() == Some(libc::ESRCH));
        Self { pid, handle: handle.ok(), has_ended }
    }

    /// Returns whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        if !self.has_ended {
            self.has_ended = match &self.handle {
                Some(handle) => is_readable(handle),
                // SAFETY: signal 0 only tests whether there is such a process.
                None => unsafe { libc::kill(self.pid as i32, 0) != 0 && last_error() == libc::ESRCH },
            };
        }
        self.has_ended
    }

    /// Returns the bytes of the process that are in memory; `None` if it has ended.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let mut text = String::new();
        io::Read::read_to_string(&mut File::open(format!("/proc/{}/statm", self.pid)).ok()?, &mut text)
            .ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        // SAFETY: the call only returns a number.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        (pages > 0).then(|| pages * u64::try_from(page_bytes).unwrap_or(4096))
    }
}

/// Returns whether the process of this descriptor has ended.
fn is_readable(handle: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: handle.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which exists until the call returns.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

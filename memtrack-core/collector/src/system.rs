//! The system's information about a process.
#![allow(unsafe_code)]

use memtrack_model::snapshot::ProcessEnd;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A process that may end at any time.
#[derive(Debug)]
pub(crate) struct SystemProcess {
    pid: u32,
    /// A descriptor of the process; `None` if the process had ended before it was opened, or if the system has no such
    /// descriptors.
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

    /// Returns the descriptor that becomes readable when the process ends, if there is one.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.handle.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Returns how the process ended, as far as the system reports it. The process must have ended. The system keeps the status
    /// until the parent reads it, and since Linux 6.15 also afterwards.
    pub(crate) fn end(&self) -> ProcessEnd {
        let reaped = || self.handle.as_ref().and_then(exit_status);
        // The parent may read the status between the first two attempts.
        let status = reaped().or_else(|| self.status_of_zombie()).or_else(reaped);
        let Some(status) = status else { return ProcessEnd::Ended };
        if libc::WIFSIGNALED(status) {
            ProcessEnd::Signal(libc::WTERMSIG(status))
        } else {
            ProcessEnd::Code(libc::WEXITSTATUS(status))
        }
    }

    /// Returns the status of a process whose parent has not read it yet.
    fn status_of_zombie(&self) -> Option<i32> {
        // A process without the permission to see the status reads 0 instead, and cannot read this link either. If the
        // link can be read, the status is the real one.
        std::fs::read_link(format!("/proc/{}/ns/user", self.pid)).ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // The first field after the name is number 3, and the status is number 52.
        if fields.first() == Some(&"Z") { fields.get(49)?.parse().ok() } else { None }
    }

    /// Returns the resident memory of the process; `None` if it has ended.
    pub(crate) fn resident(&self) -> Option<Resident> {
        let mut text = String::new();
        let mut file = File::open(format!("/proc/{}/status", self.pid)).ok()?;
        io::Read::read_to_string(&mut file, &mut text).ok()?;
        let kibibytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        };
        Some(Resident {
            bytes: kibibytes("VmRSS:")? * 1024,
            max_bytes: kibibytes("VmHWM:")? * 1024,
            anonymous_bytes: kibibytes("RssAnon:")? * 1024,
        })
    }
}

/// The resident memory of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    /// The resident set.
    pub(crate) bytes: u64,
    /// The highest resident set so far.
    pub(crate) max_bytes: u64,
    /// The part of the resident set that is neither from files nor shared.
    pub(crate) anonymous_bytes: u64,
}

/// Waits until one of these descriptors is readable, for `pause` at most. Returns whether the first descriptor is
/// readable.
pub(crate) fn wait(descriptors: &[i32], pause: Duration) -> bool {
    let poll = |&fd: &i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut all: Vec<libc::pollfd> = descriptors.iter().map(poll).collect();
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: pause.as_nanos().min(999_999_999) as libc::c_long };
    // SAFETY: the structures and the timeout exist until the call returns.
    let ready =
        unsafe { libc::ppoll(all.as_mut_ptr(), all.len() as libc::nfds_t, &timeout, std::ptr::null()) };
    ready > 0 && all.first().is_some_and(|first| first.revents != 0)
}

/// Returns whether the process of this descriptor has ended.
fn is_readable(handle: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: handle.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which exists until the call returns.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

/// Returns the status of a process that has ended and whose parent has read the status, if this version of Linux keeps it
/// (since 6.15).
pub fn exit_status(handle: &OwnedFd) -> Option<i32> {
    /// `struct pidfd_info` of Linux 6.13.
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const PIDFD_GET_INFO: libc::c_ulong = 0xc040_ff0b;
    const EXIT: u64 = 1 << 3;
    const _: () = assert!(size_of::<Info>() == 64);
    let mut info = Info { mask: EXIT, ..Info::default() };
    // SAFETY: the structure has the size that the number of the request contains, and exists until the call returns.
    let result = unsafe { libc::ioctl(handle.as_raw_fd(), PIDFD_GET_INFO as _, &mut info) };
    (result == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

/// Returns the id of the user whose rights this process has.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

//! A program's information about the command: whether process ids mean the same in both, and whether the collector is
//! still running.

use crate::errno;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether this process, or a process that it was forked from, is in a PID namespace other than the command's.
static IS_IN_OTHER_NAMESPACE: AtomicBool = AtomicBool::new(false);

/// The number of a namespace that cannot be read, because there is no `/proc`.
pub(super) const UNKNOWN: u64 = 0;

/// Returns the number of this process's PID namespace, or [`UNKNOWN`]. `errno` is preserved.
pub(super) fn pid_namespace() -> u64 {
    // SAFETY: the path is a C string, and zeros are valid for the local variable.
    errno::preserving(|| unsafe {
        let mut data: libc::stat = std::mem::zeroed();
        let is_known = libc::stat(c"/proc/self/ns/pid".as_ptr(), &mut data) == 0;
        if is_known { data.st_ino } else { UNKNOWN }
    })
}

/// Returns whether this process is in a PID namespace other than the command's. Namespaces nest, so this is also true of
/// the children of such a process, even if they can no longer read the number.
pub(super) fn is_in_other_namespace((this, command): (u64, u64)) -> bool {
    let differs = this != UNKNOWN && command != UNKNOWN && this != command;
    if differs {
        IS_IN_OTHER_NAMESPACE.store(true, Ordering::Relaxed);
    }
    differs || IS_IN_OTHER_NAMESPACE.load(Ordering::Relaxed)
}

/// Returns whether a process certainly exists and has not ended; a stopped process also counts as running. Returns
/// false if the process has ended, even if its parent has not waited for it, or if the system does not permit the
/// query. `errno` is preserved.
///
/// **Why not `kill` with signal 0?** It succeeds for a process that its parent has not waited for. A program's seccomp filter
/// may also end the program because of it, whereas the recorder makes the call used here anyway.
pub(super) fn is_running(pid: u32) -> bool {
    let mut byte = 0_u8;
    let to = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let read = |pid: u32, address: *const u8| {
        let from = libc::iovec { iov_base: address.cast_mut().cast(), iov_len: 1 };
        // SAFETY: the call writes to a local variable at most.
        unsafe { libc::process_vm_readv(pid as libc::pid_t, &raw const to, 1, &raw const from, 1, 0) }
    };
    let own = 1_u8;
    errno::preserving(|| {
        let is_allowed = read(std::process::id(), &raw const own) == 1;
        // No memory is mapped at null. A process that has ended has no memory at all, which the kernel notices before it
        // checks the rights.
        is_allowed && read(pid, null_mut()) < 0 && errno::get() != libc::ESRCH
    })
}

/// Detects that the command has ended without closing the region: pages are no longer freed, and the command's heartbeat
/// has stopped.
#[derive(Default)]
pub(super) struct CommandWatch {
    heartbeat: AtomicU64,
    last_ns: AtomicU64,
    still_ns: AtomicU64,
    is_busy: AtomicBool,
}

impl CommandWatch {
    /// The time for which the heartbeat must stand still before the command counts as ended.
    const TIMEOUT_NS: u64 = 10_000_000_000;
    /// The maximum time that is counted between two observations, because both processes may have been stopped in
    /// between.
    const MAX_STEP_NS: u64 = 100_000_000;

    /// Returns whether the command has ended. Called when no page is free. A collector whose process still exists, but whose
    /// heartbeat stands still, is stopped, for example by a debugger, and will continue.
    pub(super) fn has_ended(&self, heartbeat: u64, now: u64, collector_runs: impl FnOnce() -> bool) -> bool {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return false;
        }
        let step = now.saturating_sub(self.last_ns.swap(now, Ordering::Relaxed)).min(Self::MAX_STEP_NS);
        let still_ns = match self.heartbeat.swap(heartbeat, Ordering::Relaxed) == heartbeat {
            true => self.still_ns.load(Ordering::Relaxed) + step,
            false => 0,
        };
        let is_late = still_ns > Self::TIMEOUT_NS;
        let has_ended = is_late && !collector_runs();
        // If the collector is stopped, it is checked again after the same time.
        self.still_ns.store(if is_late && !has_ended { 0 } else { still_ns }, Ordering::Relaxed);
        self.is_busy.store(false, Ordering::Release);
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observes a heartbeat that stands still for somewhat more than the timeout. Returns whether the command counts as ended.
    fn stand_still(watch: &CommandWatch, from_ns: u64, collector_runs: bool) -> bool {
        let steps = CommandWatch::TIMEOUT_NS / CommandWatch::MAX_STEP_NS + 2;
        (0..steps).any(|step| {
            let now = from_ns + step * CommandWatch::MAX_STEP_NS;
            watch.has_ended(7, now, || collector_runs)
        })
    }

    #[test]
    fn stopped_collector_has_not_ended() {
        let watch = CommandWatch::default();
        assert!(!stand_still(&watch, 0, true));
        assert!(!stand_still(&watch, 100 * CommandWatch::TIMEOUT_NS, true));
        // The collector is killed while it is stopped.
        assert!(stand_still(&watch, 200 * CommandWatch::TIMEOUT_NS, false));
    }

    #[test]
    fn collector_is_not_checked_while_heartbeat_continues() {
        let watch = CommandWatch::default();
        let at = |step: u64| watch.has_ended(step, step * CommandWatch::MAX_STEP_NS, || unreachable!());
        assert!(!(0..1000).any(at));
    }

    #[test]
    fn process_that_ended_without_being_waited_for_is_not_running() {
        assert!(is_running(std::process::id()) && is_running(std::os::unix::process::parent_id()));
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        assert!(is_running(child.id()));
        // The child ends when its input ends. Its parent has not waited for it yet.
        drop(child.stdin.take());
        // SAFETY: zeros are valid for the local variable; the child is this process's.
        let waited = unsafe {
            let mut status: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child.id(), &mut status, libc::WEXITED | libc::WNOWAIT)
        };
        assert_eq!(waited, 0);
        assert!(!is_running(child.id()), "not waited for");
        child.wait().unwrap();
        assert!(!is_running(0) && !is_running(i32::MAX as u32));
    }

    #[test]
    fn this_process_is_in_its_own_namespace() {
        let own = pid_namespace();
        assert_eq!(own, pid_namespace());
        assert!(own != UNKNOWN, "needs /proc");
        assert!(!is_in_other_namespace((own, own)));
        assert!(!is_in_other_namespace((UNKNOWN, own)) && !is_in_other_namespace((own, UNKNOWN)));
        assert!(is_in_other_namespace((own, own + 1)));
        // A child that has no `/proc`.
        assert!(is_in_other_namespace((UNKNOWN, own)));
        IS_IN_OTHER_NAMESPACE.store(false, Ordering::Relaxed);
    }
}

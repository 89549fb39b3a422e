//! What `message` cannot say, because it may be said in a signal's handler: on the standard error of a program that is not ours, with no lock that another thread of it may hold, no
//! panic, and no SIGPIPE where nobody reads, which would end it.

use std::mem::zeroed;
use std::ptr::null;

/// Writes parts of a line in one go. May be called in a signal's handler.
pub(super) fn write<const PARTS: usize>(parts: &[&[u8]; PARTS]) {
    let parts =
        parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: the sets and the parts are ours; a signal that was pending before stays so.
    unsafe {
        let errno = *libc::__errno_location();
        let (mut pipe, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
            (zeroed(), zeroed(), zeroed());
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::sigpending(&mut pending);
        let was_pending = libc::sigismember(&pending, libc::SIGPIPE) == 1;
        if libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before) == 0 {
            let written = libc::writev(libc::STDERR_FILENO, parts.as_ptr(), PARTS as i32);
            if written < 0 && *libc::__errno_location() == libc::EPIPE && !was_pending {
                // The signal is this thread's: it is taken before anybody sees it.
                let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                libc::sigtimedwait(&pipe, null::<libc::siginfo_t>().cast_mut(), &at_once);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        }
        *libc::__errno_location() = errno;
    }
}

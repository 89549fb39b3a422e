//! Closes the ports of servers in forked children. The threads of a server do not exist in a child, but its copy of the
//! listening socket would keep the port open after the parent has ended: clients would connect to it and wait for ever.
//! (After `exec` the socket is closed in any case.)
#![allow(unsafe_code)]

use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// The descriptors of the listening sockets; [`NONE`] where there is none. Further servers are not closed in children.
static LISTENERS: [AtomicI32; 16] = [const { AtomicI32::new(NONE) }; 16];
const NONE: RawFd = -1;

/// Closes the listener in children that are forked from now on.
pub(super) fn add(listener: &TcpListener) {
    static REGISTERED: Once = Once::new();
    // SAFETY: the handler is a plain function that stays loaded; it only accesses atomics and calls `close`, which is
    // allowed between fork and exec.
    REGISTERED.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
    let descriptor = listener.as_raw_fd();
    let _ = LISTENERS
        .iter()
        .find(|entry| entry.compare_exchange(NONE, descriptor, Ordering::AcqRel, Ordering::Relaxed).is_ok());
}

/// Notes that the listener is about to be closed.
pub(super) fn remove(listener: &TcpListener) {
    let descriptor = listener.as_raw_fd();
    for entry in &LISTENERS {
        let _ = entry.compare_exchange(descriptor, NONE, Ordering::AcqRel, Ordering::Relaxed);
    }
}

extern "C" fn in_child() {
    for entry in &LISTENERS {
        let descriptor = entry.swap(NONE, Ordering::AcqRel);
        if descriptor != NONE {
            // SAFETY: the descriptor is an open socket that no code uses in the child: the thread that owns it does not
            // exist there.
            unsafe { libc::close(descriptor) };
        }
    }
}

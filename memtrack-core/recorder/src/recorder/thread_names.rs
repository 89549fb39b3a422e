//! The names of threads, by id: for reports. A thread gets its id, and is asked for its name, when it first records.
#![allow(unsafe_code)]

use super::fork::ForkCell;
use memtrack_model::event::ThreadId;
use memtrack_model::snapshot::Thread;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Locked when a thread first records, and by collectors.
static NAMES: ForkCell<Mutex<Vec<Thread>>> = ForkCell::new(|| Mutex::new(vec![Thread::default()]));

/// Threads beyond this number are recorded as the unknown thread: their names would take more than 5 MB.
const MAX_THREADS: usize = 1 << 16;
static WITHOUT_NAME: AtomicU64 = AtomicU64::new(0);

/// How many threads are recorded as the unknown one because there were so many.
pub(super) fn without_name() -> u64 {
    WITHOUT_NAME.load(Ordering::Relaxed)
}

/// What the names may take.
#[cfg(test)]
pub(super) const MOST_BYTES: usize = 2 * MAX_THREADS * size_of::<Thread>() + MAX_THREADS * 32;

/// All threads that have recorded, by id.
pub(crate) fn threads() -> Vec<Thread> {
    NAMES.get().lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The name of a thread; none for the unknown thread.
pub(crate) fn name_of(thread: ThreadId) -> Option<String> {
    let names = NAMES.get().lock().unwrap_or_else(PoisonError::into_inner);
    names.get(thread.index()).filter(|_| thread != ThreadId::NONE).map(|thread| thread.name.clone())
}

/// Bytes that the names take.
pub(super) fn names_bytes() -> usize {
    let names = NAMES.get().lock().unwrap_or_else(PoisonError::into_inner);
    // A name has at most 15 bytes, and the least that an allocator gives.
    names.capacity() * size_of::<Thread>() + names.len() * 32
}

/// The threads with ids from `first` on: how many there were before does not matter.
pub(crate) fn threads_since(first: usize) -> Vec<Thread> {
    let names = NAMES.get().lock().unwrap_or_else(PoisonError::into_inner);
    names.get(first..).unwrap_or_default().to_vec()
}

/// Gives the calling thread an id. The name comes from the system: `std::thread::current` must not be asked in a
/// thread that is ending.
pub(super) fn name_this_thread() -> ThreadId {
    #[cfg(target_os = "linux")]
    let (name, os_id) = {
        let mut name = [0_u8; 32];
        // SAFETY: the buffer is ours and longer than the 16 bytes a name takes, and gettid has no arguments.
        let os_id = unsafe {
            libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), name.len());
            libc::syscall(libc::SYS_gettid) as u64
        };
        let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        (String::from_utf8_lossy(&name[..len]).into_owned(), os_id)
    };
    #[cfg(not(target_os = "linux"))]
    let (name, os_id) = (String::new(), 0);
    let mut names = NAMES.get().lock().unwrap_or_else(PoisonError::into_inner);
    if names.len() > MAX_THREADS {
        WITHOUT_NAME.fetch_add(1, Ordering::Relaxed);
        return ThreadId::NONE;
    }
    names.push(Thread { name, os_id });
    ThreadId((names.len() - 1) as u32)
}

/// In the child of a fork: the threads are the parent's, and the lock may be held by one that is gone.
pub(super) fn reset_after_fork() {
    WITHOUT_NAME.store(0, Ordering::Relaxed);
}

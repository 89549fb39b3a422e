//! The names of threads, by id: for reports. A thread gets its id, and is asked for its name, when it first records.
#![allow(unsafe_code)]

use super::fork::ForkCell;
use memtrack_model::event::ThreadId;
use memtrack_model::snapshot::Thread;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locked when a thread first records, and by collectors.
static NAMES: ForkCell<Mutex<Names>> = ForkCell::new(|| Mutex::new(Names::new()));

/// Threads beyond this number are recorded as the unknown thread: their names would take more than 5 MB.
const MAX_THREADS: usize = 1 << 16;

struct Names {
    /// By id: the unknown thread comes first.
    threads: Vec<Thread>,
    /// How many threads found no more room here.
    without_name: u64,
}

impl Names {
    fn new() -> Self {
        Self { threads: vec![Thread::default()], without_name: 0 }
    }
}

fn names() -> MutexGuard<'static, Names> {
    NAMES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many threads are recorded as the unknown one because there were so many.
pub(super) fn without_name() -> u64 {
    names().without_name
}

/// What the names may take.
#[cfg(test)]
pub(super) const MOST_BYTES: usize = 2 * MAX_THREADS * size_of::<Thread>() + MAX_THREADS * 32;

/// All threads that have recorded, by id.
pub(crate) fn threads() -> Vec<Thread> {
    names().threads.clone()
}

/// The name of a thread; none for the unknown thread.
pub(crate) fn name_of(thread: ThreadId) -> Option<String> {
    names().threads.get(thread.index()).filter(|_| thread != ThreadId::NONE).map(|thread| thread.name.clone())
}

/// Bytes that the names take.
pub(super) fn names_bytes() -> usize {
    let names = names();
    // A name has at most 15 bytes, and the least that an allocator gives.
    names.threads.capacity() * size_of::<Thread>() + names.threads.len() * 32
}

/// The threads with ids from `first` on: how many there were before does not matter.
pub(crate) fn threads_since(first: usize) -> Vec<Thread> {
    names().threads.get(first..).unwrap_or_default().to_vec()
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
    let mut names = names();
    if names.threads.len() > MAX_THREADS {
        names.without_name += 1;
        return ThreadId::NONE;
    }
    names.threads.push(Thread { name, os_id });
    ThreadId((names.threads.len() - 1) as u32)
}

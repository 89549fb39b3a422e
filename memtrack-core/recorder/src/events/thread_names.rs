//! The names of threads, by id, for reports. When a thread first records, it gets an id, and its name is read.
#![allow(unsafe_code)]

use super::fork::ForkCell;
use crate::shared_memory::{self, log::Record};
use memtrack_model::event::ThreadId;
use memtrack_model::snapshot::Thread;
use std::sync::Mutex;

/// Locked when a thread first records, and by collectors.
static NAMES: ForkCell<Mutex<Names>> = ForkCell::new(|| Mutex::new(Names::new()));

/// The maximum number of threads with an id; further threads are recorded as the unknown thread.
const MAX_THREADS: usize = 1 << 16;

/// The system's data about a thread.
#[derive(Clone, Copy, Default)]
struct ThreadRow {
    /// The name, up to the first zero. The system's names have at most 15 bytes.
    name: [u8; 16],
    os_id: u64,
}

impl ThreadRow {
    fn name(&self) -> String {
        let len = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..len]).into_owned()
    }
}

struct Names {
    /// The threads by id; the unknown thread comes first. Has capacity for the maximum number of threads, so that it
    /// never grows under the lock.
    threads: Vec<ThreadRow>,
    /// The number of threads that did not fit.
    unnamed: u64,
}

impl Names {
    fn new() -> Self {
        let mut threads = Vec::with_capacity(MAX_THREADS + 1);
        threads.push(ThreadRow::default());
        Self { threads, unnamed: 0 }
    }
}

/// Returns the number of threads that are recorded as the unknown thread because there were too many threads.
pub(super) fn unnamed() -> u64 {
    NAMES.lock().unnamed
}

/// The memory of the names, in bytes.
const BYTES: usize = (MAX_THREADS + 1) * size_of::<ThreadRow>();
#[cfg(test)]
pub(super) const MAX_BYTES: usize = BYTES;

/// Returns all threads that have recorded, by id.
pub(crate) fn threads() -> Vec<Thread> {
    threads_since(0)
}

/// Returns the name of a thread; `None` for the unknown thread.
pub(crate) fn name_of(thread: ThreadId) -> Option<String> {
    let row = NAMES.lock().threads.get(thread.index()).copied();
    row.filter(|_| thread != ThreadId::NONE).map(|row| row.name())
}

/// Returns the memory of the names, in bytes.
pub(super) fn names_bytes() -> usize {
    if NAMES.is_made() { BYTES } else { 0 }
}

/// Returns the threads with ids from `first` on.
pub(crate) fn threads_since(first: usize) -> Vec<Thread> {
    // The memory is allocated while the names are not locked.
    let count = NAMES.lock().threads.len().saturating_sub(first);
    let mut rows = Vec::with_capacity(count);
    rows.extend(NAMES.lock().threads.iter().skip(first).take(count).copied());
    rows.iter().map(|row| Thread { name: row.name(), os_id: row.os_id }).collect()
}

/// Assigns an id to the calling thread. Its name is read from the system, because `std::thread::current` must not be
/// called in a thread that is ending.
pub(super) fn register_this_thread() -> ThreadId {
    let row = read_this_thread();
    let mut names = NAMES.lock();
    if names.threads.len() > MAX_THREADS {
        names.unnamed += 1;
        drop(names);
        shared_memory::count(shared_memory::Counter::UnnamedThreads, 1);
        return ThreadId::NONE;
    }
    names.threads.push(row);
    let id = ThreadId((names.threads.len() - 1) as u32);
    drop(names);
    if shared_memory::is_connected() {
        let thread = Thread { name: row.name(), os_id: row.os_id };
        shared_memory::append(&Record::Thread(id, thread));
    }
    id
}

fn read_this_thread() -> ThreadRow {
    let mut row = ThreadRow::default();
    // SAFETY: the buffer is a local variable with the 16 bytes that a name can take; gettid has no arguments.
    unsafe {
        libc::pthread_getname_np(libc::pthread_self(), row.name.as_mut_ptr().cast(), row.name.len());
        row.os_id = libc::syscall(libc::SYS_gettid) as u64;
    }
    row
}

//! The state that a forked child continues with: the options of its parent's session, which are read without a lock,
//! and the paths of separate files.
#![allow(unsafe_code)]

use super::fork::ForkCell;
use super::{Options, fork};
use memtrack_file::tagged_path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The options of the running session, which a forked child reads without a lock; null if no session runs.
static PUBLISHED: AtomicPtr<Options> = AtomicPtr::new(std::ptr::null_mut());

/// All options that have been published so far.
static KNOWN: ForkCell<Mutex<Vec<&'static Options>>> = ForkCell::new(Mutex::default);

/// Publishes the options for forked children, or withdraws them if `options` is `None`. A published value is leaked,
/// because a child may read it, so equal options share one value.
pub(super) fn publish(options: Option<&Options>) {
    let running = options.map_or(std::ptr::null_mut(), |options| {
        let mut known = KNOWN.lock();
        let found = known.iter().find(|known| **known == options).copied();
        let leaked = found.unwrap_or_else(|| {
            let leaked: &'static Options = Box::leak(Box::new(options.clone()));
            known.push(leaked);
            leaked
        });
        std::ptr::from_ref(leaked).cast_mut()
    });
    PUBLISHED.store(running, Ordering::Release);
}

fn published_options() -> Option<&'static Options> {
    // SAFETY: the pointer is null or points to a leaked value that is never changed.
    unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }
}

/// Returns the options that a forked child continues with: its parent's, but with the paths of separate files. `None` in
/// a process that was not forked, or if the parent had no session.
pub(super) fn inherited_options() -> Option<Options> {
    if fork::generation() == 0 {
        return None;
    }
    published_options().map(|options| {
        let child_path = |path: &PathBuf| {
            let mut name = path.clone().into_os_string();
            name.push(format!(".{}", std::process::id()));
            PathBuf::from(name)
        };
        let child_dump_path = |path: &PathBuf| tagged_path(path, &std::process::id().to_string());
        let mut inherited = options.clone();
        inherited.output = options.output.as_ref().map(child_path);
        inherited.dump_on_oom = options.dump_on_oom.as_ref().map(child_dump_path);
        inherited
    })
}

/// The maximum number of forked processes, including grandchildren, that write files.
const MAX_CHILDREN: u32 = 100;

/// The counts that a process and its forked descendants share.
#[repr(C)]
struct ChildCounts {
    /// The number of forked processes that wanted to write a file.
    requests: AtomicU32,
    /// The number of processes beyond the limit that were reported.
    reported: AtomicU32,
}

/// A page that forked processes share; null before the first session that writes files, or if no page could be mapped.
/// While it is null, there is no limit.
static CHILD_COUNTS: AtomicPtr<ChildCounts> = AtomicPtr::new(std::ptr::null_mut());
/// Whether this forked process may write a file. Decided once.
static MAY_WRITE: ForkCell<bool> = ForkCell::new(|| {
    shared().is_none_or(|shared| shared.requests.fetch_add(1, Ordering::Relaxed) < MAX_CHILDREN)
});

fn shared() -> Option<&'static ChildCounts> {
    // SAFETY: the pointer is null or points to a page that stays mapped.
    unsafe { CHILD_COUNTS.load(Ordering::Acquire).as_ref() }
}

/// Starts counting forked processes. Must be called while the session is locked.
pub(super) fn count_children() {
    if shared().is_none() {
        // SAFETY: the call maps a new page of zeros, which stays mapped; the counts fit into it, and zero is valid for
        // them.
        unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), size_of::<ChildCounts>(), access, kind, -1, 0);
            if page != libc::MAP_FAILED {
                CHILD_COUNTS.store(page.cast(), Ordering::Release);
            }
        }
    }
}

/// Returns whether this process may write a file. Only forked processes beyond the limit may not.
pub fn may_write_file() -> bool {
    fork::generation() == 0 || *MAY_WRITE.get()
}

/// Returns the message about forked processes that wrote no file because of the limit; `None` in forked processes, or if
/// there are no such processes since the last message.
pub(super) fn omitted_children() -> Option<String> {
    let shared = shared().filter(|_| fork::generation() == 0)?;
    let omitted = shared.requests.load(Ordering::Relaxed).saturating_sub(MAX_CHILDREN);
    let new = omitted.saturating_sub(shared.reported.swap(omitted, Ordering::Relaxed));
    (new > 0).then(|| format!("{new} forked processes left no recording: only the first {MAX_CHILDREN} do"))
}

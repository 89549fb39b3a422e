//! The state with which the child of a fork continues: the options of its parent's session, found without a lock, and
//! separate files.
#![allow(unsafe_code)]

use super::fork::ForkCell;
use super::{Options, fork};
use memtrack_file::tagged_path;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The options of the running session, which the child of a fork finds without a lock; null when none runs.
static PUBLISHED: AtomicPtr<Options> = AtomicPtr::new(std::ptr::null_mut());

/// The options published so far.
static KNOWN: ForkCell<Mutex<Vec<&'static Options>>> = ForkCell::new(Mutex::default);

/// Publishes the options for children, or withdraws them. A published value is leaked (a child may read it), so an
/// equal one is reused.
pub(super) fn publish(options: Option<&Options>) {
    let running = options.map_or(std::ptr::null_mut(), |options| {
        let mut known = KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner);
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
    // SAFETY: null, or a leaked value that is never changed.
    unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }
}

/// Returns the options with which a forked child continues: its parent's, but with a separate file.
pub(super) fn inherited_options() -> Option<Options> {
    if fork::generation() == 0 {
        return None;
    }
    published_options().map(|options| {
        let own = |path: &PathBuf| {
            let mut name = path.clone().into_os_string();
            name.push(format!(".{}", std::process::id()));
            PathBuf::from(name)
        };
        let own_dump = |path: &PathBuf| tagged_path(path, &std::process::id().to_string());
        let mut inherited = options.clone();
        inherited.output = options.output.as_ref().map(own);
        inherited.dump_on_oom = options.dump_on_oom.as_ref().map(own_dump);
        inherited
    })
}

/// The most forked processes that write files, including grandchildren.
const MAX_CHILDREN: u32 = 100;

/// The counts that a process and its forked descendants share.
#[repr(C)]
struct Shared {
    /// Forked processes that were about to write a file.
    requests: AtomicU32,
    /// The number of those beyond the bound that were reported.
    reported: AtomicU32,
}

/// A page that forked processes share; null before there was a session that writes files, and if no page could be
/// mapped: then they are not limited.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
/// Whether this process, a forked one, may write a file: the answer stays the same.
static MAY_WRITE: ForkCell<bool> = ForkCell::new(|| {
    shared().is_none_or(|shared| shared.requests.fetch_add(1, Ordering::Relaxed) < MAX_CHILDREN)
});

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or a page that stays mapped.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// Begins to count forked processes. Called under the session's lock.
pub(super) fn count_children() {
    #[cfg(unix)]
    if shared().is_none() {
        // SAFETY: a fresh page, all zeros, that stays mapped; the counts fit into it, and zero is a valid count.
        unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), access, kind, -1, 0);
            if page != libc::MAP_FAILED {
                SHARED.store(page.cast(), Ordering::Release);
            }
        }
    }
}

/// Returns whether this process may write a file of its own: a forked one only while there are not too many.
pub fn may_write_file() -> bool {
    fork::generation() == 0 || *MAY_WRITE.get()
}

/// Returns the message about forked processes that could write no file, in the first process and once; `None` if
/// there are none.
pub(super) fn omitted_children() -> Option<String> {
    let shared = shared().filter(|_| fork::generation() == 0)?;
    let omitted = shared.requests.load(Ordering::Relaxed).saturating_sub(MAX_CHILDREN);
    let new = omitted.saturating_sub(shared.reported.swap(omitted, Ordering::Relaxed));
    (new > 0).then(|| format!("{new} forked processes left no recording: only the first {MAX_CHILDREN} do"))
}

//! What the child of a fork goes on with: the options of its parent's session, found without a lock, and files of its
//! own.
#![allow(unsafe_code)]

use super::fork::ForkCell;
use super::{Options, fork};
use memtrack_file::tagged;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The options of the running session where the child of a fork finds them without a lock; null when none runs.
static RUNNING: AtomicPtr<Options> = AtomicPtr::new(std::ptr::null_mut());

/// The options published so far.
static KNOWN: ForkCell<Mutex<Vec<&'static Options>>> = ForkCell::new(Mutex::default);

/// Makes the options findable for a child, or withdraws them. A published value is leaked (a child may read it), so an
/// equal one is used again.
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
    RUNNING.store(running, Ordering::Release);
}

fn running_options() -> Option<&'static Options> {
    // SAFETY: null, or a leaked value that nothing changes.
    unsafe { RUNNING.load(Ordering::Acquire).as_ref() }
}

/// The options a forked child goes on with: as its parent's, but into a file of its own.
pub(super) fn inherited_options() -> Option<Options> {
    if fork::generation() == 0 {
        return None;
    }
    running_options().map(|options| {
        let own = |path: &PathBuf| {
            let mut name = path.clone().into_os_string();
            name.push(format!(".{}", std::process::id()));
            PathBuf::from(name)
        };
        let own_dump = |path: &PathBuf| tagged(path, &std::process::id().to_string());
        let mut inherited = options.clone();
        inherited.output = options.output.as_ref().map(own);
        inherited.dump_on_oom = options.dump_on_oom.as_ref().map(own_dump);
        inherited
    })
}

/// Forked processes that leave files at most, grandchildren included.
const MOST_CHILDREN: u32 = 100;

/// What a process and those forked from it count together.
#[repr(C)]
struct Shared {
    /// Forked processes that were about to leave a file.
    asked: AtomicU32,
    /// Of those beyond the bound, how many were told of.
    told: AtomicU32,
}

/// A page that forked processes share; null before there was a session that leaves files, and where there is none to be
/// had: then they are not limited.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
/// Whether this process, a forked one, may leave a file: the answer stays the same.
static MAY_LEAVE: ForkCell<bool> = ForkCell::new(|| {
    shared().is_none_or(|shared| shared.asked.fetch_add(1, Ordering::Relaxed) < MOST_CHILDREN)
});

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or a page that stays.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

/// Has forked processes counted from now on. Called under the session's lock.
pub(super) fn count_children() {
    #[cfg(unix)]
    if shared().is_none() {
        // SAFETY: a fresh page, all zeros, that stays; the counts fit into it, and zero is a count.
        unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), access, kind, -1, 0);
            if page != libc::MAP_FAILED {
                SHARED.store(page.cast(), Ordering::Release);
            }
        }
    }
}

/// Whether this process may leave a file of its own: a forked one only while there are not too many.
pub fn may_leave_a_file() -> bool {
    fork::generation() == 0 || *MAY_LEAVE.get()
}

/// What is to be told of forked processes that could leave no file, by the first process and once; `None` for nothing.
pub(super) fn left_out() -> Option<String> {
    let shared = shared().filter(|_| fork::generation() == 0)?;
    let left_out = shared.asked.load(Ordering::Relaxed).saturating_sub(MOST_CHILDREN);
    let new = left_out.saturating_sub(shared.told.swap(left_out, Ordering::Relaxed));
    (new > 0).then(|| format!("{new} forked processes left no recording: only the first {MOST_CHILDREN} do"))
}

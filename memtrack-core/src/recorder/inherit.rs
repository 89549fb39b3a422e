//! What the child of a fork goes on with: the options of its parent's session, found without a lock, and files of its
//! own.
#![allow(unsafe_code)]

use super::fork::ForkCell;
use super::{Options, fork};
use crate::snapshot::pytorch::tagged;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering};
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
        Options {
            output: options.output.as_ref().map(own),
            dump_on_oom: options.dump_on_oom.as_ref().map(own_dump),
            ..options.clone()
        }
    })
}

/// In the child of a fork.
pub(super) fn reset_after_fork() {
    KNOWN.forget();
}

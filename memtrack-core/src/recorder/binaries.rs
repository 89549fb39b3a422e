//! The loaded binaries as recordings list them. glibc's list is behind a lock that `fork` does not give back to the
//! child when another thread holds it (`dl_iterate_phdr`, glibc 2.36), so a child tells what its parent knew.
#![allow(unsafe_code)]

use super::fork;
use crate::snapshot::Module;
use crate::stack::modules::loaded_modules;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The newest list; replaced ones are leaked, and one is replaced only when binaries were loaded.
static KNOWN: AtomicPtr<Vec<Module>> = AtomicPtr::new(std::ptr::null_mut());

fn known() -> Option<&'static Vec<Module>> {
    // SAFETY: null, or a leaked list that nothing changes.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }
}

/// The binaries as they were last listed; listed now when they never were. Asks the dynamic linker only then, so that it can
/// be called inside a hook after a session has begun.
pub(super) fn known_or_loaded() -> Vec<Module> {
    known().cloned().unwrap_or_else(loaded)
}

/// The binaries loaded now; in a forked child those its parent listed last (when its session began, at the earliest).
pub(super) fn loaded() -> Vec<Module> {
    if let Some(known) = known().filter(|_| fork::generation() > 0) {
        return known.clone();
    }
    let now = loaded_modules();
    if known() != Some(&now) {
        KNOWN.store(Box::into_raw(Box::new(now.clone())), Ordering::Release);
    }
    now
}

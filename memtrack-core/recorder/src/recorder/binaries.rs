//! The loaded binaries as recordings list them. glibc's list is behind a lock that `fork` does not give back to the
//! child when another thread holds it (`dl_iterate_phdr`, glibc 2.36), so a child tells what its parent knew.
#![allow(unsafe_code)]

use super::fork::{self, ForkCell};
use super::{RECORDER, kits};
use crate::stack::capture::{as_recorded, unloaded};
use crate::stack::modules::loaded_modules;
use memtrack_model::snapshot::Module;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// The newest list. Replaced and read with [`CHANGING`] locked; a forked child, in which nobody replaces it, reads it
/// without.
static KNOWN: AtomicPtr<Vec<Module>> = AtomicPtr::new(std::ptr::null_mut());
static CHANGING: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

/// A copy of the newest list.
fn known() -> Option<Vec<Module>> {
    let _unchanged = CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: null, or a list that is replaced only with the lock held.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }.cloned()
}

/// The binaries as they were last listed; listed now when they never were. Asks the dynamic linker only then, so that it can
/// be called inside a hook after a session has begun.
pub(super) fn known_or_loaded() -> Vec<Module> {
    known().unwrap_or_else(loaded)
}

/// The binaries loaded now; in a forked child those its parent listed last (when its session began, at the earliest).
pub(super) fn loaded() -> Vec<Module> {
    if fork::generation() > 0
        && let Some(known) = known()
    {
        return known;
    }
    notice_unloaded();
    let mut now: Vec<Module> = loaded_modules().into_iter().filter_map(as_recorded).collect();
    now.extend(UNLOADED.get().lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
    let _changing = CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner);
    let replaced = KNOWN.swap(Box::into_raw(Box::new(now.clone())), Ordering::AcqRel);
    if !replaced.is_null() {
        // SAFETY: it came from a box, and others look at it only with the lock held.
        drop(unsafe { Box::from_raw(replaced) });
    }
    now
}

/// Binaries that are no longer loaded, and whose code is in stacks.
static UNLOADED: ForkCell<Mutex<Vec<Module>>> = ForkCell::new(Mutex::default);
/// At most so many are remembered; the names of code from still more are lost, the oldest first.
const MOST_UNLOADED: usize = 4096;

/// Notices what was unloaded: stacks through its code stay its own, whatever comes to lie at its addresses. Never inside a
/// hook: it takes the dynamic linker's lock.
pub(super) fn notice_unloaded() {
    for binary in unloaded() {
        if !RECORDER.get().stacks.forget(&binary.code) {
            continue;
        }
        binary.keep_apart();
        let Some(module) = binary.module else { continue };
        let mut all = UNLOADED.get().lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == MOST_UNLOADED {
            all.remove(0);
        }
        all.push(module);
        kits::forget_stacks();
    }
}

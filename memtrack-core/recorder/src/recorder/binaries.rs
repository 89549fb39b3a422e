//! The loaded binaries as recordings list them. glibc's list is behind a lock that `fork` does not give back to the
//! child when another thread holds it (`dl_iterate_phdr`, glibc 2.36), so a child goes on from what its parent has listed.
#![allow(unsafe_code)]

use super::fork::{self, ForkCell};
use super::{RECORDER, kits};
use crate::stack::capture::{as_recorded, listed_in_child, unloaded};
use crate::stack::modules::loaded_modules;
use memtrack_model::snapshot::Module;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// The newest list, which a forked child inherits. Replaced and read with [`CHANGING`] locked.
static KNOWN: AtomicPtr<Vec<Module>> = AtomicPtr::new(std::ptr::null_mut());
static CHANGING: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

/// A copy of the newest list.
fn known() -> Option<Vec<Module>> {
    let _unchanged = CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: null, or a list that is replaced only with the lock held.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }.cloned()
}

/// Remembers a list.
fn remember(list: &[Module]) {
    let list = Box::into_raw(Box::new(list.to_vec()));
    let _changing = CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner);
    let replaced = KNOWN.swap(list, Ordering::AcqRel);
    if !replaced.is_null() {
        // SAFETY: it came from a box, and others look at it only with the lock held.
        drop(unsafe { Box::from_raw(replaced) });
    }
}

/// The binaries as they were last listed; listed now when they never were, and in a forked child, which asks the dynamic
/// linker for nothing. Else that is asked only then, so that this can be called inside a hook after a session has begun.
pub(super) fn known_or_loaded() -> Vec<Module> {
    match known() {
        Some(known) if fork::generation() > 0 => in_child(known),
        Some(known) => known,
        None => loaded(),
    }
}

/// The binaries loaded now; in a forked child those that its parent has listed (when its session began, at the earliest) and
/// that are still there, and those that its stacks went through.
pub(super) fn loaded() -> Vec<Module> {
    if fork::generation() > 0
        && let Some(known) = known()
    {
        notice_unloaded();
        return in_child(known);
    }
    notice_unloaded();
    let mut now: Vec<Module> = loaded_modules().into_iter().filter_map(as_recorded).collect();
    now.extend(UNLOADED.get().lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
    remember(&now);
    now
}

/// What there is in a forked child, by the list that was made before.
fn in_child(before: Vec<Module>) -> Vec<Module> {
    let unloaded = UNLOADED.get().lock().unwrap_or_else(PoisonError::into_inner).clone();
    let others = before.into_iter().filter(|module| !unloaded.contains(module)).collect();
    let mut now = listed_in_child(others);
    now.extend(unloaded);
    remember(&now);
    now
}

/// Whether a list names it, which may be in a file: then its addresses are its own in that file.
fn is_listed(module: &Module) -> bool {
    let _unchanged = CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: null, or a list that is replaced only with the lock held.
    let list = unsafe { KNOWN.load(Ordering::Acquire).as_ref() };
    list.is_some_and(|list| {
        list.iter().any(|listed| (listed.start, &listed.path) == (module.start, &module.path))
    })
}

/// Binaries that are no longer loaded, and that stacks or lists have the addresses of.
static UNLOADED: ForkCell<Mutex<Vec<Module>>> = ForkCell::new(Mutex::default);
/// At most so many are remembered; the names of code from still more are lost, the oldest first.
const MOST_UNLOADED: usize = 4096;

/// Bytes that the lists take.
pub(super) fn list_bytes() -> usize {
    let of = |list: &[Module]| list.iter().map(bytes_of).sum::<usize>();
    let unloaded = of(&UNLOADED.get().lock().unwrap_or_else(PoisonError::into_inner));
    let _unchanged = CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: null, or a list that is replaced only with the lock held.
    unloaded + unsafe { KNOWN.load(Ordering::Acquire).as_ref() }.map_or(0, |list| of(list))
}

/// Bytes that a binary takes in a list.
fn bytes_of(module: &Module) -> usize {
    size_of::<Module>() + module.path.len() + module.build_id.len()
}

/// What both lists take at most beside the binaries that are loaded, with paths of `path_bytes`.
#[cfg(test)]
pub(super) fn most_bytes(path_bytes: usize) -> usize {
    const BUILD_ID_BYTES: usize = 40;
    2 * MOST_UNLOADED * (size_of::<Module>() + path_bytes + BUILD_ID_BYTES)
}

/// Notices what was unloaded: stacks through its code stay its own, whatever comes to lie at its addresses. Never inside a
/// hook: it takes the dynamic linker's lock, but for a forked child.
pub(super) fn notice_unloaded() {
    for binary in unloaded() {
        // A forked child in which nothing happened yet has no stacks.
        let is_in_stacks = RECORDER.is_made() && RECORDER.get().stacks.forget(&binary.code);
        if !is_in_stacks && !binary.module.as_ref().is_some_and(is_listed) {
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

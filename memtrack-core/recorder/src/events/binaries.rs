//! The list of loaded binaries for recordings. glibc's list is behind a lock that stays locked in a forked child if
//! another thread held it at the `fork` (`dl_iterate_phdr`, glibc 2.36), so a child continues from its parent's list.
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

/// Returns a copy of the newest list.
fn known() -> Option<Vec<Module>> {
    let _unchanged = CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: null, or a list that is replaced only with the lock held.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }.cloned()
}

/// Sets the newest list.
fn set_known(list: &[Module]) {
    let list = Box::into_raw(Box::new(list.to_vec()));
    let _changing = CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner);
    let replaced = KNOWN.swap(list, Ordering::AcqRel);
    if !replaced.is_null() {
        // SAFETY: it came from a box, and other threads access it only with the lock held.
        drop(unsafe { Box::from_raw(replaced) });
    }
}

/// Returns the newest list of binaries; lists them now if there is none yet, and in a forked child, which makes no
/// request to the dynamic linker. Otherwise the linker is not called, so that this can be called inside a hook after
/// a session has begun.
pub(super) fn known_or_loaded() -> Vec<Module> {
    match known() {
        Some(known) if fork::generation() > 0 => in_child(known),
        Some(known) => known,
        None => loaded(),
    }
}

/// Returns the binaries loaded now; in a forked child those on its parent's list (made when its session began, at the
/// earliest) that are still loaded, and those that its stacks went through.
pub(super) fn loaded() -> Vec<Module> {
    if fork::generation() > 0
        && let Some(known) = known()
    {
        process_unloaded();
        return in_child(known);
    }
    process_unloaded();
    let mut now: Vec<Module> = loaded_modules().into_iter().filter_map(as_recorded).collect();
    now.extend(UNLOADED.get().lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
    set_known(&now);
    now
}

/// Returns the binaries of a forked child, from the list made before.
fn in_child(before: Vec<Module>) -> Vec<Module> {
    let unloaded = UNLOADED.get().lock().unwrap_or_else(PoisonError::into_inner).clone();
    let others = before.into_iter().filter(|module| !unloaded.contains(module)).collect();
    let mut now = listed_in_child(others);
    now.extend(unloaded);
    set_known(&now);
    now
}

/// Returns whether a list contains the module; that list may be in a file, in which the module's addresses then belong to it.
fn is_listed(module: &Module) -> bool {
    let _unchanged = CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: null, or a list that is replaced only with the lock held.
    let list = unsafe { KNOWN.load(Ordering::Acquire).as_ref() };
    list.is_some_and(|list| {
        list.iter().any(|listed| (listed.start, &listed.path) == (module.start, &module.path))
    })
}

/// Binaries that are no longer loaded, but whose addresses are in stacks or lists.
static UNLOADED: ForkCell<Mutex<Vec<Module>>> = ForkCell::new(Mutex::default);
/// At most so many are kept; the names of code from still more are lost, the oldest first.
const MAX_UNLOADED: usize = 4096;

/// Returns the bytes that the lists take.
pub(super) fn list_bytes() -> usize {
    let of = |list: &[Module]| list.iter().map(bytes_of).sum::<usize>();
    let unloaded = of(&UNLOADED.get().lock().unwrap_or_else(PoisonError::into_inner));
    let _unchanged = CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: null, or a list that is replaced only with the lock held.
    unloaded + unsafe { KNOWN.load(Ordering::Acquire).as_ref() }.map_or(0, |list| of(list))
}

/// Returns the bytes that a binary takes in a list.
fn bytes_of(module: &Module) -> usize {
    size_of::<Module>() + module.path.len() + module.build_id.len()
}

/// Returns the most bytes that both lists take in addition to the loaded binaries, with paths of `path_bytes`.
#[cfg(test)]
pub(super) fn max_bytes(path_bytes: usize) -> usize {
    const BUILD_ID_BYTES: usize = 40;
    2 * MAX_UNLOADED * (size_of::<Module>() + path_bytes + BUILD_ID_BYTES)
}

/// Processes the binaries that were unloaded: stacks through their code keep their names, regardless of later
/// mappings at those addresses. Never inside a hook: it takes the dynamic linker's lock, except in a forked
/// child.
pub(super) fn process_unloaded() {
    for binary in unloaded() {
        // A forked child without events has no stacks yet.
        let is_in_stacks = RECORDER.is_made() && RECORDER.get().stacks.forget_code(&binary.code);
        if !is_in_stacks && !binary.module.as_ref().is_some_and(is_listed) {
            continue;
        }
        binary.reserve_addresses();
        let Some(module) = binary.module else { continue };
        let mut all = UNLOADED.get().lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == MAX_UNLOADED {
            all.remove(0);
        }
        all.push(module);
        kits::forget_stacks();
    }
}

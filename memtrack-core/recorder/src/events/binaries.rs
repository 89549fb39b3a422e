//! The list of loaded binaries for recordings. glibc's list (`dl_iterate_phdr`, glibc 2.36) is protected by a lock that
//! stays locked in a forked child if another thread held it during the `fork`, so a child starts from its parent's list.
#![allow(unsafe_code)]

use super::fork::{self, ForkCell};
use super::{RECORDER, kits};
use crate::shared_memory::{self, log::Record};
use crate::stack::capture::{as_recorded, listed_in_child, reserve_addresses, unloaded};
use crate::stack::modules::loaded_modules;
use memtrack_model::snapshot::Module;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The newest list of loaded binaries, which a forked child inherits; null before the first one. Read and replaced
/// while [`KNOWN_LOCK`] is held.
static KNOWN: AtomicPtr<Vec<Module>> = AtomicPtr::new(std::ptr::null_mut());
static KNOWN_LOCK: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

/// Returns a copy of the newest list of binaries; `None` if there is no list yet.
fn known() -> Option<Vec<Module>> {
    let _lock = KNOWN_LOCK.lock();
    // SAFETY: the pointer is null or points to a list that is replaced only while the lock is held.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }.cloned()
}

/// Replaces the newest list of binaries.
fn set_known(list: &[Module]) {
    let list = Box::into_raw(Box::new(list.to_vec()));
    let _lock = KNOWN_LOCK.lock();
    let replaced = KNOWN.swap(list, Ordering::AcqRel);
    if !replaced.is_null() {
        // SAFETY: the pointer came from a box, and other threads access the list only while the lock is held.
        drop(unsafe { Box::from_raw(replaced) });
    }
}

/// Returns the newest list of binaries. Lists the binaries now if there is no list yet, or in a forked child, which can
/// list them without the dynamic linker. In all other cases the dynamic linker is not called, so that this function can
/// be called inside a hook after a session has begun.
pub(super) fn known_or_loaded() -> Vec<Module> {
    match known() {
        Some(known) if fork::generation() > 0 => list_in_child(known),
        Some(known) => known,
        None => loaded(),
    }
}

/// Reports the newest list of binaries to the command, if recording goes to shared memory.
pub(super) fn log_all() {
    for module in known_or_loaded() {
        shared_memory::append(&Record::Module(module));
    }
}

/// Returns the binaries loaded now. In a forked child, these are the binaries on the parent's list that are still loaded, and
/// those that the child's own stacks have passed through.
pub(super) fn loaded() -> Vec<Module> {
    if fork::generation() > 0
        && let Some(known) = known()
    {
        process_unloaded();
        return list_in_child(known);
    }
    process_unloaded();
    let mut now: Vec<Module> = loaded_modules().into_iter().filter_map(as_recorded).collect();
    now.extend(UNLOADED.lock().iter().cloned());
    set_known(&now);
    now
}

/// Returns the binaries of a forked child, derived from the `previous` list.
fn list_in_child(previous: Vec<Module>) -> Vec<Module> {
    let unloaded = UNLOADED.lock().clone();
    let others = previous.into_iter().filter(|module| !unloaded.contains(module)).collect();
    let mut now = listed_in_child(others);
    now.extend(unloaded);
    set_known(&now);
    now
}

/// Returns whether the newest list contains the module. The list may have been written to a file, so the addresses of a
/// listed module must not be reused for other modules.
fn is_listed(module: &Module) -> bool {
    let _lock = KNOWN_LOCK.lock();
    // SAFETY: the pointer is null or points to a list that is replaced only while the lock is held.
    let list = unsafe { KNOWN.load(Ordering::Acquire).as_ref() };
    list.is_some_and(|list| {
        list.iter().any(|listed| (listed.start, &listed.path) == (module.start, &module.path))
    })
}

/// Binaries that are no longer loaded, but whose addresses are in recorded stacks, or that are in the newest list.
static UNLOADED: ForkCell<Mutex<Vec<Module>>> = ForkCell::new(Mutex::default);
/// The maximum number of unloaded binaries that are kept; beyond it, the oldest are dropped and the names of their code
/// are lost.
const MAX_UNLOADED: usize = 4096;

/// Returns the memory of the newest list and of the list of unloaded binaries, in bytes.
pub(super) fn list_bytes() -> usize {
    let bytes_of_list = |list: &[Module]| list.iter().map(bytes_of).sum::<usize>();
    let unloaded = bytes_of_list(&UNLOADED.lock());
    let _lock = KNOWN_LOCK.lock();
    // SAFETY: the pointer is null or points to a list that is replaced only while the lock is held.
    unloaded + unsafe { KNOWN.load(Ordering::Acquire).as_ref() }.map_or(0, |list| bytes_of_list(list))
}

/// Returns the memory of a binary in a list, in bytes.
fn bytes_of(module: &Module) -> usize {
    size_of::<Module>() + module.path.len() + module.build_id.len()
}

/// Returns the maximum memory of both lists in bytes, without the loaded binaries, for paths of `path_bytes`.
#[cfg(test)]
pub(super) fn max_bytes(path_bytes: usize) -> usize {
    const BUILD_ID_BYTES: usize = 40;
    2 * MAX_UNLOADED * (size_of::<Module>() + path_bytes + BUILD_ID_BYTES)
}

/// Processes the binaries that were unloaded: recorded stacks that contain their code can still be symbolized,
/// regardless of later mappings at the same addresses. Must not be called inside a hook, because this takes the dynamic
/// linker's lock, except in a forked child.
pub(super) fn process_unloaded() {
    for binary in unloaded() {
        // A forked child without events has no stacks yet.
        let is_in_stacks = RECORDER.is_made() && RECORDER.get().stacks.forget_code(&binary.code);
        if !is_in_stacks && !binary.module.as_ref().is_some_and(is_listed) {
            continue;
        }
        reserve_addresses(&binary);
        let Some(module) = binary.module else { continue };
        let mut all = UNLOADED.lock();
        if all.len() == MAX_UNLOADED {
            all.remove(0);
        }
        all.push(module);
        kits::invalidate_stacks();
    }
}

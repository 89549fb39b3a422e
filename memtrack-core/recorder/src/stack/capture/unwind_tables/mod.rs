//! The unwind tables of the loaded binaries, for framehop. They are read when monitoring starts. Binaries loaded later
//! are found with glibc's lock-free `_dl_find_object` when a new stack contains an address in no known binary, so that
//! a hook never waits for the dynamic linker's lock.
//!
//! Small tables are copies (except those of the program and others that are never unloaded), so they do not keep binaries
//! loaded, and [`refresh`] removes unloaded binaries. Large ones are read in place ([`guard`]). If other code is loaded at
//! recorded addresses, its addresses are relocated before they are stored, so that each address in a recording refers to the
//! code of only one binary.
#![allow(unsafe_code)]

mod guard;
mod loader;
mod relocation;
mod sections;

pub(crate) use relocation::{as_recorded, relocate, reserve};
#[cfg(test)]
pub(crate) use sections::MAX_COPIED_BYTES;

use crate::events::{ForkCell, generation as generation_of_process, wait_for_hooks};
use crate::shared_memory::{self, log::Record};
use framehop::x86_64::UnwinderX86_64;
use framehop::{ExplicitModuleSectionInfo, Module as Unwound, MustNotAllocateDuringUnwind, Unwinder};
use guard::{Guard, Guarded};
use memtrack_model::snapshot::Module;
use sections::Bytes;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

type Table = UnwinderX86_64<Bytes, MustNotAllocateDuringUnwind>;

/// The data for walks, which is immutable once published. When it is replaced, the old data is freed after all hooks
/// that may be using it have ended ([`refresh`]).
struct Known {
    table: Table,
    binaries: Vec<Binary>,
    guarded: Vec<Guarded>,
}

impl Known {
    /// Returns whether the code of a known binary contains the address.
    fn contains(&self, address: u64) -> bool {
        self.binaries.iter().any(|binary| binary.code.contains(&address))
    }
}

/// The code and unwind tables of a loaded binary.
#[derive(Clone)]
struct Binary {
    bias: u64,
    code: Range<u64>,
    eh_frame_hdr: Bytes,
    eh_frame: Bytes,
    /// The address of `eh_frame_hdr` in memory.
    eh_frame_hdr_at: u64,
    /// The address of `eh_frame` in memory.
    eh_frame_at: u64,
    /// The dynamic linker's name for the binary, which is empty for the program.
    name: String,
    /// The binary's entry in a recording's list of modules, before `shift` is added to its addresses.
    module: Option<Module>,
    /// The value added to the binary's addresses when they are stored.
    shift: u64,
}

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Returns the number of times the known binaries have changed, which makes a recording's list of modules outdated.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

static KNOWN: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());

fn known() -> Option<&'static Known> {
    // SAFETY: the pointer is null or a leaked box that never changes and is freed only after every hook that may have
    // read the pointer has ended. Code outside a hook calls `lock_known`, so that the box is not freed.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }
}

/// Returns the range of addresses at which the binary that contains `address` is mapped; `None` if there is no such
/// binary, or if glibc is older than 2.35. Takes no lock.
pub(in crate::stack) fn binary_at(address: u64) -> Option<Range<u64>> {
    loader::object_at(address).map(|object| object.mapped())
}

/// Returns the unwinder for all known binaries. Before it unwinds a frame, the guard must admit the frame's address.
#[inline(always)]
pub(super) fn unwinder() -> Option<(&'static Table, Guard)> {
    known().map(|known| (&known.table, Guard::new(&known.guarded)))
}

/// A binary that is no longer loaded. `code` and `module` contain the addresses that it has in recordings, and `raw`
/// those at which it was loaded.
pub(crate) struct UnloadedBinary {
    pub(crate) code: Range<u64>,
    pub(crate) module: Option<Module>,
    raw: Range<u64>,
}

/// The unloaded binaries that [`unloaded`] has not returned yet.
static UNLOADED: ForkCell<Mutex<Vec<UnloadedBinary>>> = ForkCell::new(Mutex::default);

/// Returns the binaries that were unloaded since the last call. Must not be called inside a hook, because it takes the
/// dynamic linker's lock, except in a forked child, where that lock may be held forever.
pub(crate) fn unloaded() -> Vec<UnloadedBinary> {
    refresh();
    std::mem::take(&mut *UNLOADED.lock())
}

/// Updates the known binaries: adds new ones whose unwind tables are small, and removes unloaded ones. Takes the dynamic
/// linker's lock and allocates, so it must not be called inside a hook.
///
/// In a forked child, that lock may stay locked forever. There, this function takes no lock and only removes unloaded
/// binaries. All other binaries are added when a stack first goes through them ([`load`]).
pub(super) fn refresh() {
    let lock = lock_known();
    let known = known();
    let before = known.map_or(&[][..], |known| &known.binaries);
    let (still, new) = if known.is_some() && generation_of_process() > 0 {
        (before.iter().map(loader::is_still_loaded).collect(), Vec::new())
    } else {
        loader::list(known)
    };
    let (loaded, unloaded): (Vec<_>, Vec<_>) = before.iter().zip(still).partition(|(_, still)| *still);
    if !new.is_empty() || !unloaded.is_empty() {
        let unloaded = unloaded.into_iter().map(|(binary, _)| UnloadedBinary {
            code: binary.code.start.wrapping_add(binary.shift)..binary.code.end.wrapping_add(binary.shift),
            module: binary.as_recorded(),
            raw: binary.code.clone(),
        });
        UNLOADED.lock().extend(unloaded);
        log_modules(&new);
        publish(loaded.into_iter().map(|(binary, _)| binary.clone()).chain(new).collect());
    }
    drop(lock);
    free_retired();
}

/// Returns the binaries for a forked child, which are those on its parent's list that are still loaded, and those that
/// have been added since. Takes no lock of the dynamic linker.
pub(crate) fn listed_in_child(parent_modules: Vec<Module>) -> Vec<Module> {
    let _lock = lock_known();
    let known = known().map_or(&[][..], |known| &known.binaries);
    let described: Vec<(&Binary, Module)> =
        known.iter().filter_map(|binary| Some((binary, binary.as_recorded()?))).collect();
    let is_loaded = |module: &Module| {
        let is_known = |(binary, known): &(&Binary, Module)| {
            (binary.code.start < module.end && module.start < binary.code.end).then_some(known == module)
        };
        // If a known binary overlaps the module's addresses, the module is still loaded only if it is that binary. If
        // no known binary overlaps them, the module may be a binary without unwind tables.
        match described.iter().find_map(is_known) {
            Some(is_same) => is_same,
            None => {
                described.iter().any(|(_, known)| known == module)
                    || loader::find_object().is_none()
                    || loader::object_at(module.start).is_some()
            }
        }
    };
    let mut modules: Vec<Module> = parent_modules.into_iter().filter(is_loaded).collect();
    let new: Vec<Module> =
        described.into_iter().map(|(_, module)| module).filter(|module| !modules.contains(module)).collect();
    modules.extend(new);
    modules
}

impl Binary {
    /// Returns the binary's entry in a recording's list of modules.
    fn as_recorded(&self) -> Option<Module> {
        self.module.as_ref().map(|module| relocation::shifted_module(module, self.shift))
    }
}

/// Locked while the known binaries are replaced, and by code that uses them outside a hook, because replaced data is
/// freed as soon as all hooks that may use it have ended.
static KNOWN_LOCK: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

/// Prevents the known binaries from being replaced while the returned guard is held, so that they can be used outside a
/// hook. May wait, so it must not be called inside a hook.
pub(super) fn lock_known() -> MutexGuard<'static, ()> {
    KNOWN_LOCK.lock()
}

/// Replaced tables that a hook may still be using.
static RETIRED: ForkCell<Mutex<Vec<Retired>>> = ForkCell::new(Mutex::default);

struct Retired(#[expect(dead_code, reason = "dropped when no hook can use it")] Box<Known>);

/// Waits for the running hooks, then frees the replaced tables.
fn free_retired() {
    let retired = std::mem::take(&mut *RETIRED.lock());
    if !retired.is_empty() && !wait_for_hooks() {
        // A thread is stopped inside a hook, perhaps by a debugger.
        RETIRED.lock().extend(retired);
    }
}

/// The number of times that a thread yields to the one that is changing the known binaries. A binary is added within a
/// millisecond.
const MAX_YIELDS: u32 = 64;

/// Adds the binaries that contain those `addresses` of a new stack that are in no known binary. Returns whether any binary was
/// added, by this thread or by another one meanwhile: then the stack may have been truncated and should be captured again.
/// Called inside hooks.
pub(crate) fn load(addresses: &[u64]) -> bool {
    let has_unknown = |known: &Known| addresses.iter().any(|&address| !known.contains(address));
    let Some(first) = known() else { return false };
    if !has_unknown(first) {
        return false;
    }
    for _ in 0..MAX_YIELDS {
        let Some(before) = known() else { return false };
        if !has_unknown(before) {
            return true;
        }
        let Ok(_lock) = KNOWN_LOCK.get().try_lock() else {
            std::thread::yield_now();
            continue;
        };
        if known().is_none_or(|now| !std::ptr::eq(now, before)) {
            continue;
        }
        let mut new: Vec<Binary> = Vec::new();
        for &address in addresses {
            if !before.contains(address) && !new.iter().any(|binary| binary.code.contains(&address)) {
                new.extend(loader::find(address));
            }
        }
        if new.is_empty() {
            return !std::ptr::eq(before, first);
        }
        log_modules(&new);
        publish(before.binaries.iter().cloned().chain(new).collect());
        return true;
    }
    // This stack stays truncated, and a later stack will add the binary.
    false
}

/// Reports new binaries to the command, if recording goes to shared memory. Called before a stack can go through them.
fn log_modules(new: &[Binary]) {
    for module in new.iter().filter_map(Binary::as_recorded) {
        shared_memory::append(&Record::Module(module));
    }
}

/// Publishes a table of `binaries`. Must be called while [`KNOWN_LOCK`] is held.
fn publish(binaries: Vec<Binary>) {
    let mut table = Table::new();
    let mut guarded = Vec::new();
    for binary in &binaries {
        if binary.eh_frame.is_guarded() {
            if guarded.len() == guard::MAX_GUARDED {
                continue;
            }
            guarded.push(Guarded { code: binary.code.clone(), eh_frame_hdr_at: binary.eh_frame_hdr_at });
        }
        let relative =
            |at: u64, len: usize| at.wrapping_sub(binary.bias)..at.wrapping_sub(binary.bias) + len as u64;
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma: Some(relative(binary.eh_frame_at, binary.eh_frame.len())),
            eh_frame: Some(binary.eh_frame.clone()),
            eh_frame_hdr_svma: Some(relative(binary.eh_frame_hdr_at, binary.eh_frame_hdr.len())),
            eh_frame_hdr: Some(binary.eh_frame_hdr.clone()),
            ..Default::default()
        };
        table.add_module(Unwound::new(String::new(), binary.code.clone(), binary.bias, sections));
    }
    let replaced = KNOWN.swap(Box::into_raw(Box::new(Known { table, binaries, guarded })), Ordering::AcqRel);
    GENERATION.fetch_add(1, Ordering::Release);
    if !replaced.is_null() {
        // SAFETY: the pointer came from a box that has no other owner now. It is freed only after the hooks that may
        // still read it have ended.
        let replaced = Retired(unsafe { Box::from_raw(replaced) });
        RETIRED.lock().push(replaced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Duration;

    /// Simulates a program that unloads libraries while the stream thread lists the loaded ones.
    #[test]
    fn known_binaries_are_not_freed_while_they_are_read() {
        refresh();
        let libc = known().and_then(|known| known.binaries.last()).and_then(|binary| binary.module.clone());
        let module = libc.expect("the program has libraries");
        let reads = Arc::new(AtomicUsize::new(0));
        let read = {
            let (reads, module) = (Arc::clone(&reads), module.clone());
            move || {
                for _ in 0..2000 {
                    assert_eq!(
                        as_recorded(module.clone()).map(|found| found.path),
                        Some(module.path.clone())
                    );
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        // Reading waits for a replacement in progress.
        let changing = lock_known();
        let reader = thread::spawn(read);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(reads.load(Ordering::Relaxed), 0, "it did not wait");
        drop(changing);
        while !reader.is_finished() {
            let changing = lock_known();
            publish(known().map_or(Vec::new(), |known| known.binaries.clone()));
            drop(changing);
            free_retired();
        }
        reader.join().expect("it found what is loaded");
    }
}

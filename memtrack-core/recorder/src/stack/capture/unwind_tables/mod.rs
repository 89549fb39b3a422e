//! The unwind tables of the loaded binaries, for framehop. Read when monitoring starts; binaries loaded later are found by
//! glibc's lock-free `_dl_find_object` when a new stack holds an address that no known binary covers, so that a hook never
//! waits for the dynamic linker's lock.
//!
//! Nothing is kept loaded: the tables are copies (but for the program's own, which cannot go), and what was unloaded is
//! forgotten by [`refresh`]. Where other code comes to lie on recorded addresses, its own are moved aside before they are
//! kept, so that an address in a recording means one thing.
#![allow(unsafe_code)]

mod apart;
mod loader;
mod sections;

pub(super) use apart::{as_recorded, keep_for_recordings, set_apart};
#[cfg(test)]
pub(crate) use sections::MOST_COPIED_BYTES;

use crate::recorder::{ForkCell, generation as generation_of_process, hooks_have_ended};
use framehop::x86_64::UnwinderX86_64;
use framehop::{ExplicitModuleSectionInfo, Module as Unwound, MustNotAllocateDuringUnwind, Unwinder};
use memtrack_model::snapshot::Module;
use sections::Bytes;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Table = UnwinderX86_64<Bytes, MustNotAllocateDuringUnwind>;

/// What a walk needs: immutable once published. A replaced one is given back when no hook can be walking with it any more
/// ([`refresh`]).
struct Known {
    table: Table,
    binaries: Vec<Binary>,
}

/// One loaded binary's code and unwind tables.
#[derive(Clone)]
struct Binary {
    bias: u64,
    code: Range<u64>,
    eh_frame_hdr: Bytes,
    eh_frame: Bytes,
    /// Where the two were in memory.
    eh_frame_hdr_at: u64,
    eh_frame_at: u64,
    /// How the loader calls it; empty for the program.
    name: String,
    /// What recordings say of it, at its own addresses.
    module: Option<Module>,
    /// What is added to its addresses when they are kept.
    shift: u64,
}

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Counts how often the known binaries have changed.
pub(super) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

static KNOWN: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());

fn known() -> Option<&'static Known> {
    // SAFETY: the pointer is null or a leaked box that nothing changes, and that is freed only when every hook that can
    // have seen it has ended. Who is in no hook has it kept by `unchanged`.
    unsafe { KNOWN.load(Ordering::Acquire).as_ref() }
}

/// The unwinder over all known binaries.
#[inline(always)]
pub(super) fn unwinder() -> Option<&'static Table> {
    known().map(|known| &known.table)
}

/// A binary that is no longer loaded, at the addresses that recordings know.
pub(crate) struct Gone {
    pub(crate) code: Range<u64>,
    pub(crate) module: Option<Module>,
    raw: Range<u64>,
}

/// What is gone and nobody has asked for yet.
static GONE: ForkCell<Mutex<Vec<Gone>>> = ForkCell::new(Mutex::default);

/// The binaries that [`refresh`] has found to be gone since this was last asked.
pub(super) fn take_gone() -> Vec<Gone> {
    std::mem::take(&mut *GONE.get().lock().unwrap_or_else(PoisonError::into_inner))
}

/// Looks at what is loaded: learns what is new and small, and forgets what is gone. Takes the dynamic linker's lock and
/// allocates: never inside a hook. In a forked child, in which a thread that is gone may hold that lock for ever, only what
/// is known is looked at, without it; what is new is learned when a stack goes through it ([`learn`]).
pub(super) fn refresh() {
    let changing = unchanged();
    let known = known();
    let before = known.map_or(&[][..], |known| &known.binaries);
    let (still, new) = if known.is_some() && generation_of_process() > 0 {
        (before.iter().map(loader::is_still_loaded).collect(), Vec::new())
    } else {
        loader::list(known)
    };
    let (here, gone): (Vec<_>, Vec<_>) = before.iter().zip(still).partition(|(_, still)| *still);
    if !new.is_empty() || !gone.is_empty() {
        let gone = gone.into_iter().map(|(binary, _)| Gone {
            code: binary.code.start.wrapping_add(binary.shift)..binary.code.end.wrapping_add(binary.shift),
            module: binary.as_recorded(),
            raw: binary.code.clone(),
        });
        GONE.get().lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
        publish(here.into_iter().map(|(binary, _)| binary.clone()).chain(new).collect());
    }
    drop(changing);
    give_back_retired();
}

/// The binaries as a forked child lists them: of those that its parent has listed what is still there, and what was learned
/// since. Takes no lock of the loader's.
pub(super) fn listed_in_child(of_parent: Vec<Module>) -> Vec<Module> {
    let _unchanged = unchanged();
    let known = known().map_or(&[][..], |known| &known.binaries);
    let described: Vec<(&Binary, Module)> =
        known.iter().filter_map(|binary| Some((binary, binary.as_recorded()?))).collect();
    let is_here = |module: &Module| {
        let is_known = |(binary, known): &(&Binary, Module)| {
            (binary.code.start < module.end && module.start < binary.code.end).then_some(known == module)
        };
        // Where another one's code lies now, it does not; what has no unwind tables is nobody else's.
        match described.iter().find_map(is_known) {
            Some(is_it) => is_it,
            None => {
                described.iter().any(|(_, known)| known == module)
                    || loader::find_object().is_none()
                    || loader::object_at(module.start).is_some()
            }
        }
    };
    let mut all: Vec<Module> = of_parent.into_iter().filter(is_here).collect();
    let new: Vec<Module> =
        described.into_iter().map(|(_, module)| module).filter(|module| !all.contains(module)).collect();
    all.extend(new);
    all
}

impl Binary {
    /// What recordings say of it.
    fn as_recorded(&self) -> Option<Module> {
        self.module.as_ref().map(|module| apart::moved(module, self.shift))
    }
}

/// Held while the known binaries are replaced, and by who looks at them outside a hook: only hooks are waited for before
/// replaced ones are given back.
static CHANGING: ForkCell<Mutex<()>> = ForkCell::new(Mutex::default);

/// While this is held the known binaries are not replaced, so that they can be looked at outside a hook. Waits: never inside
/// one.
pub(super) fn unchanged() -> MutexGuard<'static, ()> {
    CHANGING.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaced tables that a hook may still be walking with.
static RETIRED: ForkCell<Mutex<Vec<Retired>>> = ForkCell::new(Mutex::default);

struct Retired(#[expect(dead_code, reason = "dropped when nobody can use it")] Box<Known>);

/// Gives back what no hook can be using. Waits for those that are under way.
fn give_back_retired() {
    let retired = std::mem::take(&mut *RETIRED.get().lock().unwrap_or_else(PoisonError::into_inner));
    if !retired.is_empty() && !hooks_have_ended() {
        // One is stopped, perhaps by a debugger.
        RETIRED.get().lock().unwrap_or_else(PoisonError::into_inner).extend(retired);
    }
}

/// Learns the binaries that hold those `addresses` no known one covers; whether there were any. Called inside hooks.
pub(super) fn learn(addresses: &[u64]) -> bool {
    let Some(before) = known() else { return false };
    let unknown = |address: u64| !before.binaries.iter().any(|binary| binary.code.contains(&address));
    if !addresses.iter().any(|&address| unknown(address)) {
        return false;
    }
    // A thread that loses the race takes its stack again and learns then.
    let Ok(_changing) = CHANGING.get().try_lock() else { return false };
    let mut new: Vec<Binary> = Vec::new();
    for &address in addresses {
        if unknown(address) && !new.iter().any(|binary| binary.code.contains(&address)) {
            new.extend(loader::find(address));
        }
    }
    if new.is_empty() || known().is_none_or(|now| !std::ptr::eq(now, before)) {
        return false;
    }
    publish(before.binaries.iter().cloned().chain(new).collect());
    true
}

/// Must be called with [`CHANGING`] locked.
fn publish(binaries: Vec<Binary>) {
    let mut table = Table::new();
    for binary in &binaries {
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
    let replaced = KNOWN.swap(Box::into_raw(Box::new(Known { table, binaries })), Ordering::AcqRel);
    GENERATION.fetch_add(1, Ordering::Release);
    if !replaced.is_null() {
        // SAFETY: it came from a box, and this is its only owner now; whoever still reads it is waited for.
        let replaced = Retired(unsafe { Box::from_raw(replaced) });
        RETIRED.get().lock().unwrap_or_else(PoisonError::into_inner).push(replaced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Duration;

    /// As a program's threads do that unload libraries while the keeper lists what is loaded.
    #[test]
    fn known_binaries_are_not_given_back_while_they_are_looked_at() {
        refresh();
        let libc = known().and_then(|known| known.binaries.last()).and_then(|binary| binary.module.clone());
        let module = libc.expect("the program has libraries");
        let asked = Arc::new(AtomicUsize::new(0));
        let asks = {
            let (asked, module) = (Arc::clone(&asked), module.clone());
            move || {
                for _ in 0..2000 {
                    assert_eq!(
                        as_recorded(module.clone()).map(|found| found.path),
                        Some(module.path.clone())
                    );
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        // Who looks waits for who replaces them.
        let changing = unchanged();
        let looks = thread::spawn(asks);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(asked.load(Ordering::Relaxed), 0, "it did not wait");
        drop(changing);
        while !looks.is_finished() {
            let changing = unchanged();
            publish(known().map_or(Vec::new(), |known| known.binaries.clone()));
            drop(changing);
            give_back_retired();
        }
        looks.join().expect("it found what is loaded");
    }
}

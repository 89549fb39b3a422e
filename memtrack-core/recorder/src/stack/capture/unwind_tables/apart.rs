//! Addresses of recordings mean one thing each: code that lies where other code was when stacks were kept has its own
//! addresses moved aside before they are kept.

use super::{Binary, Gone, known, unchanged};
use crate::recorder::ForkCell;
use memtrack_model::snapshot::Module;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A module as it is recorded when its addresses are shifted.
pub(super) fn moved(module: &Module, shift: u64) -> Module {
    let add = |address: u64| address.wrapping_add(shift);
    Module { bias: add(module.bias), start: add(module.start), end: add(module.end), ..module.clone() }
}

/// Addresses that recordings know as those of a binary that is gone.
static TAKEN: ForkCell<Mutex<Vec<Range<u64>>>> = ForkCell::new(Mutex::default);
static ANY_TAKEN: AtomicBool = AtomicBool::new(false);
/// At most so many stretches are remembered; the oldest are forgotten.
const MOST_TAKEN: usize = 4096;

/// From now on code that comes to lie where `gone` was has other addresses in recordings.
pub(in crate::stack::capture) fn keep_for_recordings(gone: &Gone) {
    let mut taken = TAKEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !taken.contains(&gone.raw) {
        if taken.len() == MOST_TAKEN {
            taken.remove(0);
        }
        taken.push(gone.raw.clone());
    }
    ANY_TAKEN.store(true, Ordering::Release);
}

/// What to add to the addresses of new code: nothing where no other code has been.
pub(super) fn shift_of(code: &Range<u64>) -> u64 {
    /// No program has code there.
    const ELSEWHERE: u64 = 1 << 62;
    const PART: u64 = 1 << 36;
    static PARTS: AtomicU64 = AtomicU64::new(0);
    if !ANY_TAKEN.load(Ordering::Acquire) {
        return 0;
    }
    let taken = TAKEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !taken.iter().any(|taken| taken.start < code.end && code.start < taken.end) {
        return 0;
    }
    let part = ELSEWHERE + PARTS.fetch_add(1, Ordering::Relaxed) % (1 << 24) * PART;
    part.wrapping_sub(code.start & !0xfff)
}

/// A loaded binary as it is recorded: perhaps moved, and not at all if its addresses are in no stack while those of one
/// that is gone are.
pub(in crate::stack::capture) fn as_recorded(module: Module) -> Option<Module> {
    let (start, end) = (module.start, module.end);
    let overlaps = |code: &Range<u64>| code.start < end && start < code.end;
    let _unchanged = unchanged();
    let known = known().and_then(|known| known.binaries.iter().find(|binary| overlaps(&binary.code)));
    if let Some(binary) = known {
        return Some(moved(&module, binary.shift));
    }
    let taken = TAKEN.get().lock().unwrap_or_else(PoisonError::into_inner);
    (!taken.iter().any(overlaps)).then_some(module)
}

/// Moves the addresses of code that lies where other code was when a stack was kept.
pub(in crate::stack::capture) fn set_apart(addresses: &mut [u64]) {
    if !ANY_TAKEN.load(Ordering::Acquire) {
        return;
    }
    let Some(known) = known() else { return };
    let shifted: Vec<&Binary> = known.binaries.iter().filter(|binary| binary.shift != 0).collect();
    for address in addresses {
        if let Some(binary) = shifted.iter().find(|binary| binary.code.contains(address)) {
            *address = address.wrapping_add(binary.shift);
        }
    }
}

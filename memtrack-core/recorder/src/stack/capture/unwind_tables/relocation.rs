//! Gives addresses in recordings one meaning each: if code is loaded where other code was when stacks were stored,
//! its addresses are relocated before they are stored.

use super::{Binary, UnloadedBinary, known, lock_known};
use crate::events::ForkCell;
use memtrack_model::snapshot::Module;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Returns a module as it is recorded when its addresses are shifted.
pub(super) fn shifted_module(module: &Module, shift: u64) -> Module {
    let add = |address: u64| address.wrapping_add(shift);
    Module { bias: add(module.bias), start: add(module.start), end: add(module.end), ..module.clone() }
}

/// Addresses that belong to an unloaded binary in recordings.
static RESERVED: ForkCell<Mutex<Vec<Range<u64>>>> = ForkCell::new(Mutex::default);
static ANY_RESERVED: AtomicBool = AtomicBool::new(false);
/// At most so many ranges are kept; the oldest are dropped.
const MAX_RESERVED: usize = 4096;

/// Makes code that is loaded where `gone` was get other addresses in recordings.
pub(in crate::stack::capture) fn reserve(gone: &UnloadedBinary) {
    let mut reserved = RESERVED.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !reserved.contains(&gone.raw) {
        if reserved.len() == MAX_RESERVED {
            reserved.remove(0);
        }
        reserved.push(gone.raw.clone());
    }
    ANY_RESERVED.store(true, Ordering::Release);
}

/// Returns the shift for the addresses of new code: 0 if no other code has been there.
pub(super) fn shift_of(code: &Range<u64>) -> u64 {
    /// No program has code there.
    const ELSEWHERE: u64 = 1 << 62;
    const PART: u64 = 1 << 36;
    static PARTS: AtomicU64 = AtomicU64::new(0);
    if !ANY_RESERVED.load(Ordering::Acquire) {
        return 0;
    }
    let reserved = RESERVED.get().lock().unwrap_or_else(PoisonError::into_inner);
    if !reserved.iter().any(|reserved| reserved.start < code.end && code.start < reserved.end) {
        return 0;
    }
    let part = ELSEWHERE + PARTS.fetch_add(1, Ordering::Relaxed) % (1 << 24) * PART;
    part.wrapping_sub(code.start & !0xfff)
}

/// Returns a loaded binary as it is recorded: perhaps relocated, and `None` if its addresses are in no stack while
/// those of an unloaded one are.
pub(in crate::stack::capture) fn as_recorded(module: Module) -> Option<Module> {
    let (start, end) = (module.start, module.end);
    let overlaps = |code: &Range<u64>| code.start < end && start < code.end;
    let _unchanged = lock_known();
    let known = known().and_then(|known| known.binaries.iter().find(|binary| overlaps(&binary.code)));
    if let Some(binary) = known {
        return Some(shifted_module(&module, binary.shift));
    }
    let reserved = RESERVED.get().lock().unwrap_or_else(PoisonError::into_inner);
    (!reserved.iter().any(overlaps)).then_some(module)
}

/// Relocates the addresses of code that was loaded where other code was when a stack was stored.
pub(in crate::stack::capture) fn relocate(addresses: &mut [u64]) {
    if !ANY_RESERVED.load(Ordering::Acquire) {
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

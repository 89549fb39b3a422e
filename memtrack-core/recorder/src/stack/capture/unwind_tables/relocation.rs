//! Ensures that each address in a recording refers to the code of only one binary. If code is loaded at the addresses
//! of earlier code that stored stacks contain, the addresses of the new code are relocated before they are stored.

use super::{Binary, UnloadedBinary, known, lock_known};
use crate::events::ForkCell;
use memtrack_model::snapshot::Module;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Returns a module with its addresses shifted.
pub(super) fn shifted_module(module: &Module, shift: u64) -> Module {
    let add = |address: u64| address.wrapping_add(shift);
    Module { bias: add(module.bias), start: add(module.start), end: add(module.end), ..module.clone() }
}

/// The address ranges that belong to unloaded binaries in recordings.
static RESERVED: ForkCell<Mutex<Vec<Range<u64>>>> = ForkCell::new(Mutex::default);
static ANY_RESERVED: AtomicBool = AtomicBool::new(false);
/// The maximum number of ranges. Beyond it, the oldest are dropped.
const MAX_RESERVED: usize = 4096;

/// Reserves the addresses of an unloaded binary, which are in stored stacks, so that code loaded there later gets other
/// addresses in recordings.
pub(crate) fn reserve(unloaded: &UnloadedBinary) {
    let mut reserved = RESERVED.lock();
    if !reserved.contains(&unloaded.raw) {
        if reserved.len() == MAX_RESERVED {
            reserved.remove(0);
        }
        reserved.push(unloaded.raw.clone());
    }
    ANY_RESERVED.store(true, Ordering::Release);
}

/// Returns the shift for the addresses of new code, which is 0 if they are not reserved.
pub(super) fn shift_of(code: &Range<u64>) -> u64 {
    /// The first of the addresses that code is relocated to. No program has code there.
    const RELOCATED_START: u64 = 1 << 62;
    /// The size of the range for one binary.
    const PART_BYTES: u64 = 1 << 36;
    static PARTS: AtomicU64 = AtomicU64::new(0);
    if !ANY_RESERVED.load(Ordering::Acquire) {
        return 0;
    }
    let reserved = RESERVED.lock();
    if !reserved.iter().any(|reserved| reserved.start < code.end && code.start < reserved.end) {
        return 0;
    }
    let part = RELOCATED_START + PARTS.fetch_add(1, Ordering::Relaxed) % (1 << 24) * PART_BYTES;
    part.wrapping_sub(code.start & !0xfff)
}

/// Returns a loaded binary as it is recorded, relocated if necessary. Returns `None` if its addresses are reserved for
/// an unloaded binary and no stack goes through the loaded one.
pub(crate) fn as_recorded(module: Module) -> Option<Module> {
    let (start, end) = (module.start, module.end);
    let overlaps = |code: &Range<u64>| code.start < end && start < code.end;
    let _lock = lock_known();
    let known = known().and_then(|known| known.binaries.iter().find(|binary| overlaps(&binary.code)));
    if let Some(binary) = known {
        return Some(shifted_module(&module, binary.shift));
    }
    let reserved = RESERVED.lock();
    (!reserved.iter().any(overlaps)).then_some(module)
}

/// Relocates those addresses of a new stack that are of code that was loaded at reserved addresses, before they are stored.
pub(crate) fn relocate(addresses: &mut [u64]) {
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

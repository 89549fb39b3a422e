//! The functions of `unwind_tables` for processors other than x86-64, where the `backtrace` crate walks stacks and reads the
//! binaries' tables itself. Unloaded binaries are not noticed there.

use memtrack_model::snapshot::Module;
use std::ops::Range;

/// A binary that is no longer loaded. There is none.
pub(crate) struct UnloadedBinary {
    pub(crate) code: Range<u64>,
    pub(crate) module: Option<Module>,
}

pub(crate) fn unloaded() -> Vec<UnloadedBinary> {
    Vec::new()
}

pub(crate) fn reserve(_unloaded: &UnloadedBinary) {}

pub(crate) fn generation() -> u32 {
    0
}

pub(in crate::stack) fn binary_at(_address: u64) -> Option<Range<u64>> {
    None
}

pub(crate) fn load(_addresses: &[u64]) -> bool {
    false
}

pub(crate) fn as_recorded(module: Module) -> Option<Module> {
    Some(module)
}

pub(crate) fn listed_in_child(parent_modules: Vec<Module>) -> Vec<Module> {
    parent_modules
}

pub(crate) fn relocate(_addresses: &mut [u64]) {}

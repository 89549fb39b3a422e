//! Stacks and time for whoever keeps a history of their own: the caching allocator does, also while nothing is
//! monitored.

use super::hooks::Hook;
use super::{RECORDER, binaries, clock, fork};
use crate::reentry;
use crate::stack::capture::Registers;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::{Clock, Module, StackTable};

/// The stack of the calling thread, interned in the recorder's table; none inside memtrack's own work.
/// `stack::capture::prepare` was called before.
#[inline]
pub fn stack_here() -> StackId {
    if reentry::is_inside() {
        return StackId::NONE;
    }
    let hook = Hook::enter_anyway(Registers::here());
    let inside = *hook;
    inside.with_room(move || inside.stack(true))
}

/// Before the first account: what stacks are taken with, and what forks are noticed with.
pub(crate) fn begin_accounts() {
    crate::stack::capture::prepare();
    binaries::loaded();
    fork::watch();
}

/// The binaries loaded now. Outside of hooks.
pub(crate) fn loaded_binaries() -> Vec<Module> {
    binaries::loaded()
}

/// What makes time of ticks up to now.
pub fn clock_so_far() -> Clock {
    let (first, last) = (clock::first_reading(), clock::reading());
    Clock { first, last }
}

/// All stacks that were taken so far.
pub fn stacks_so_far() -> StackTable {
    RECORDER.get().stacks.table()
}

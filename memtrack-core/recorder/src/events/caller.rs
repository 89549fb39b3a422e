//! Stacks and clock readings for callers that keep their own history of events, as the caching allocator does, even
//! while nothing is monitored.

use super::hooks::Hook;
use super::{RECORDER, binaries, fork};
use crate::clock;
use crate::reentry;
use crate::stack::capture::Registers;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::{Clock, Module, StackTable};

/// Returns the stack of the calling thread, interned in the recorder's table; [`StackId::NONE`] inside memtrack.
/// `stack::capture::prepare` must have been called before.
#[inline]
pub fn stack_here() -> StackId {
    if reentry::is_inside() {
        return StackId::NONE;
    }
    let hook = Hook::enter_unconditionally(Registers::here());
    let inside = *hook;
    inside.with_room(move || inside.stack(true))
}

/// Prepares for the first account: initializes stack capture and the fork handler.
pub(crate) fn prepare_for_accounts() {
    crate::stack::capture::prepare();
    binaries::loaded();
    fork::watch();
}

/// Returns the binaries loaded now. Must not be called inside a hook.
pub(crate) fn loaded_binaries() -> Vec<Module> {
    binaries::loaded()
}

/// Returns the two clock readings that convert ticks up to now to time.
pub fn clock_so_far() -> Clock {
    let (first, last) = (clock::first_reading(), clock::reading());
    Clock { first, last }
}

/// Returns all stacks captured so far.
pub fn stacks_so_far() -> StackTable {
    RECORDER.get().stacks.table()
}

//! The switch for registering values, which is off until a watch starts. While it is off, a registration costs one
//! relaxed load and a branch.

use memtrack_recorder::recorder::{generation, watch_forks};
use memtrack_recorder::stack::capture;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

const ON: u8 = 1;
const STACKS: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(0);
/// The process that enabled registration. In a forked child, registration is off until the child enables it.
static ENABLED_IN: AtomicU32 = AtomicU32::new(0);

/// The options for registration, which determine what information is kept for registered values.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterOptions {
    stacks: bool,
}

impl RegisterOptions {
    /// Returns the default options, which keep only the place where each value was registered. This costs nothing.
    pub const fn new() -> Self {
        Self { stacks: false }
    }

    /// Sets whether the stack of each registration is also kept. Each stack costs some 45 ns if it was seen before, and
    /// memory in the recorder's table of stacks.
    #[must_use]
    pub const fn stacks(self, stacks: bool) -> Self {
        Self { stacks }
    }
}

/// Turns on registration: from now on, values are registered, each with the place of its registration. Earlier values
/// are not registered, but they are found through registered values that refer to them. The options replace those of any
/// earlier call.
pub fn enable(options: RegisterOptions) {
    watch_forks();
    if options.stacks {
        capture::prepare();
    }
    ENABLED_IN.store(generation(), Ordering::Relaxed);
    STATE.store(ON | if options.stacks { STACKS } else { 0 }, Ordering::Release);
}

/// Turns off registration.
pub(super) fn turn_off() {
    STATE.store(0, Ordering::Release);
}

/// Returns whether values are registered. This costs one relaxed load.
#[inline(always)]
pub(super) fn is_enabled() -> bool {
    STATE.load(Ordering::Relaxed) != 0
}

/// Returns whether values are registered in this process, which may be the child of the one that enabled
/// registration.
pub(crate) fn is_enabled_in_process() -> bool {
    is_enabled() && ENABLED_IN.load(Ordering::Relaxed) == generation()
}

/// Returns whether stacks are kept.
pub(super) fn wants_stacks() -> bool {
    STATE.load(Ordering::Relaxed) & STACKS != 0
}

//! Whether values are registered: off until something watches. Then the cost of a registration is one relaxed load and a branch.

use memtrack_recorder::recorder::{generation, watch_forks};
use memtrack_recorder::stack::capture;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

const ON: u8 = 1;
const STACKS: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(0);
/// The process that was enabled: the child of a fork is off until it enables itself.
static ENABLED_IN: AtomicU32 = AtomicU32::new(0);

/// What is kept of values that are registered.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegisterOptions {
    stacks: bool,
}

impl RegisterOptions {
    /// Only the place in the program where each value was registered, which costs nothing.
    pub const fn new() -> Self {
        Self { stacks: false }
    }

    /// Whether the stack is kept too with which each value was registered: some 45 ns each where the stack was seen before, and the memory of the recorder's table of stacks.
    #[must_use]
    pub const fn stacks(self, stacks: bool) -> Self {
        Self { stacks }
    }
}

/// Registers values from now on, with the place where they were registered. What was made before is not registered, but
/// found where something registered refers to it.
pub fn enable() {
    enable_with(RegisterOptions::new());
}

/// Like [`enable`], with options, which replace those of an earlier call.
pub fn enable_with(options: RegisterOptions) {
    watch_forks();
    if options.stacks {
        capture::prepare();
    }
    ENABLED_IN.store(generation(), Ordering::Relaxed);
    STATE.store(ON | if options.stacks { STACKS } else { 0 }, Ordering::Release);
}

/// Registers nothing any more, and forgets what all threads share and what this thread has registered; another thread's own values
/// are forgotten when it ends.
pub fn disable() {
    STATE.store(0, Ordering::Release);
    super::registry::forget();
}

/// Whether values are registered: one relaxed load.
#[inline(always)]
pub(super) fn is_on() -> bool {
    STATE.load(Ordering::Relaxed) != 0
}

/// Whether values are registered in this process, which may be the child of the one that enabled it.
pub(crate) fn is_on_here() -> bool {
    is_on() && ENABLED_IN.load(Ordering::Relaxed) == generation()
}

/// Whether stacks are kept.
pub(super) fn wants_stacks() -> bool {
    STATE.load(Ordering::Relaxed) & STACKS != 0
}

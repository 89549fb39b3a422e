//! The word of flags that every hook reads first. All bits are clear while nothing is monitored, so that a hook then
//! costs only one relaxed load and a predicted branch.

use std::sync::atomic::{AtomicU32, Ordering};

/// Scopes are tracked (`scope::*`, `#[track_memory]`).
pub const SCOPES: u32 = 1;
/// Allocations and frees are recorded.
pub const EVENTS: u32 = 2;
/// The recorded events include the events of the host heap.
pub const HOST: u32 = 4;
/// Memory ran out while memtrack was allocating, and memtrack's reserve is in use.
pub const RESERVE: u32 = 8;
/// Operators and their tensors are logged.
pub const OPERATORS: u32 = 16;

/// Accounts are kept, because tests with limits are running.
pub const ACCOUNTS: u32 = 32;

static SWITCHES: AtomicU32 = AtomicU32::new(0);

/// Returns the switches that are on.
#[inline(always)]
pub(crate) fn all() -> u32 {
    SWITCHES.load(Ordering::Relaxed)
}

/// Returns whether any of `switches` is on.
#[inline(always)]
pub fn is_on(switches: u32) -> bool {
    cfg!(feature = "record") && all() & switches != 0
}

/// Turns `switches` on or off for all threads.
pub fn set(switches: u32, on: bool) {
    if on {
        SWITCHES.fetch_or(switches, Ordering::SeqCst);
    } else {
        SWITCHES.fetch_and(!switches, Ordering::SeqCst);
    }
}

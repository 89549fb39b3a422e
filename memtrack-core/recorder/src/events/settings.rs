//! The running session's settings, readable by hooks without a lock. They survive a fork.

use crate::host::Rules;
use memtrack_model::event::Action;
use memtrack_model::options::{Context, Options};
use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};

static CONTEXT: AtomicU8 = AtomicU8::new(0);
static SKIPPED: AtomicU32 = AtomicU32::new(0);
/// As requested: equal to [`SKIPPED`], except while a snapshot is being taken.
static UNWANTED: AtomicU32 = AtomicU32::new(0);
static RING_ENTRIES: AtomicU64 = AtomicU64::new(u64::MAX);
static SAMPLE_THRESHOLD_BYTES: AtomicU64 = AtomicU64::new(0);
static SAMPLE_MEAN_BYTES: AtomicU64 = AtomicU64::new(1);
static BUDGET_MILLIONTHS: AtomicU32 = AtomicU32::new(0);
static LIVE_BLOCKS: AtomicU64 = AtomicU64::new(u64::MAX);
static SESSION: AtomicU64 = AtomicU64::new(0);
static START_TICKS: AtomicU64 = AtomicU64::new(0);

/// Applies the options of a session that starts now; `start_ticks` is the first stamp that belongs to it.
pub(crate) fn apply(options: &Options, start_ticks: u64) {
    CONTEXT.store(options.context as u8, Relaxed);
    SKIPPED.store(options.skip_actions, Relaxed);
    UNWANTED.store(options.skip_actions, Relaxed);
    RING_ENTRIES.store(options.ring_entries(), Relaxed);
    SAMPLE_THRESHOLD_BYTES.store(options.sample_threshold_bytes, Relaxed);
    SAMPLE_MEAN_BYTES.store(options.sample_mean_bytes, Relaxed);
    BUDGET_MILLIONTHS.store(options.budget_millionths, Relaxed);
    LIVE_BLOCKS.store(options.max_live_blocks(), Relaxed);
    START_TICKS.store(start_ticks, Relaxed);
    // Threads reset their state when they see it.
    SESSION.fetch_add(1, Release);
}

/// Returns whether blocks keep stacks.
#[inline(always)]
pub(crate) fn blocks_keep_stacks() -> bool {
    CONTEXT.load(Relaxed) >= Context::State as u8
}

/// Returns whether events keep stacks.
#[inline(always)]
pub(crate) fn events_keep_stacks() -> bool {
    CONTEXT.load(Relaxed) >= Context::Alloc as u8
}

/// Returns whether a free keeps its own stack.
#[inline(always)]
pub(crate) fn frees_keep_own_stacks() -> bool {
    CONTEXT.load(Relaxed) >= Context::All as u8
}

/// Returns whether hooks skip events of `action`.
#[inline(always)]
pub(crate) fn skips(action: Action) -> bool {
    SKIPPED.load(Relaxed) & 1 << action as u8 != 0
}

/// Makes hooks write all events, or only the wanted ones: a collector needs to know which blocks began after its
/// moment. Unwanted events are removed where chunks are read ([`is_wanted`]).
pub(crate) fn write_all(all: bool) {
    SKIPPED.store(if all { 0 } else { UNWANTED.load(Relaxed) }, Relaxed);
}

/// Returns whether there are actions that do not belong in recordings.
pub(crate) fn skips_any() -> bool {
    UNWANTED.load(Relaxed) != 0
}

/// Returns whether events of `action` belong in recordings.
pub(crate) fn is_wanted(action: Action) -> bool {
    UNWANTED.load(Relaxed) & 1 << action as u8 == 0
}

/// The code whose frames carry no information: the preload library's, first address and one past the last.
#[cfg(feature = "cuda")]
static INTERNAL_CODE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Makes stacks begin outside of this code.
#[cfg(feature = "cuda")]
pub fn set_internal_code(code: std::ops::Range<u64>) {
    INTERNAL_CODE[0].store(code.start, Relaxed);
    INTERNAL_CODE[1].store(code.end, Relaxed);
}

/// Returns a stack (outermost first) without its innermost frames if they are memtrack's own.
#[cfg(feature = "cuda")]
#[inline(always)]
pub(crate) fn without_internal_code(addresses: &[u64]) -> &[u64] {
    let [start, end] = [INTERNAL_CODE[0].load(Relaxed), INTERNAL_CODE[1].load(Relaxed)];
    let mut count = addresses.len();
    while count > 0 && addresses[count - 1] >= start && addresses[count - 1] < end {
        count -= 1;
    }
    &addresses[..count]
}

/// Returns the stack unchanged: memtrack's own frames have names in a program that links it.
#[cfg(not(feature = "cuda"))]
#[inline(always)]
pub(crate) fn without_internal_code(addresses: &[u64]) -> &[u64] {
    addresses
}

/// Returns the ring's bound in events per device.
pub(crate) fn ring_entries() -> u64 {
    RING_ENTRIES.load(Relaxed)
}

/// Returns the size below which host blocks are sampled.
#[inline(always)]
pub fn sample_threshold_bytes() -> u64 {
    SAMPLE_THRESHOLD_BYTES.load(Relaxed)
}

/// Returns the number of the session, from 1.
#[inline(always)]
pub fn session() -> u64 {
    SESSION.load(Relaxed)
}

/// Returns how small host blocks are picked.
pub fn sampling() -> Rules {
    Rules {
        mean_bytes: SAMPLE_MEAN_BYTES.load(Relaxed),
        budget: f64::from(BUDGET_MILLIONTHS.load(Relaxed)) / 1e6,
        live_blocks: max_live_blocks(),
    }
}

/// Returns how many live blocks of the first device may be tracked; each further one adds some.
pub(crate) fn max_live_blocks() -> u64 {
    LIVE_BLOCKS.load(Relaxed)
}

/// Returns the first stamp of the session.
pub(crate) fn start_ticks() -> u64 {
    START_TICKS.load(Relaxed)
}

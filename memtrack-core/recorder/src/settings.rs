//! The running session's settings, which hooks read without a lock. Forked children inherit them.

use crate::shared_memory;
use memtrack_model::event::Action;
use memtrack_model::options::{Context, Options};
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};

/// The rules by which a session samples small blocks of the host heap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rules {
    /// The mean number of bytes between two samples if it is fixed, that is, without a budget. If it is 0, every block
    /// is sampled.
    pub mean_bytes: u64,
    /// The share of processor time that recording may take, or 0 if the mean is fixed.
    pub budget: f64,
    /// The number of blocks that the live table may hold before small ones are sampled to save memory.
    pub live_blocks: u64,
}

static CONTEXT: AtomicU8 = AtomicU8::new(0);
/// The lowest context in which events of allocations have stacks.
static ALLOCATIONS_FROM: AtomicU8 = AtomicU8::new(Context::Alloc as u8);
static SKIPPED: AtomicU32 = AtomicU32::new(0);
/// The actions that the options exclude: equal to [`SKIPPED`], except while a snapshot is taken.
static UNWANTED: AtomicU32 = AtomicU32::new(0);
static RING_ENTRIES: AtomicU64 = AtomicU64::new(u64::MAX);
static SAMPLE_THRESHOLD_BYTES: AtomicU64 = AtomicU64::new(0);
static SAMPLE_MEAN_BYTES: AtomicU64 = AtomicU64::new(1);
static BUDGET_MILLIONTHS: AtomicU32 = AtomicU32::new(0);
static LIVE_BLOCKS: AtomicU64 = AtomicU64::new(u64::MAX);
static SESSION: AtomicU64 = AtomicU64::new(0);
static START_TICKS: AtomicU64 = AtomicU64::new(0);

/// Whether the tables have smaller bounds.
static SMALL_TABLES: AtomicBool = AtomicBool::new(false);

/// Sets the bounds of the tables for a session that starts now. Called before any of them grows.
pub(crate) fn set_table_bounds(options: &Options) {
    SMALL_TABLES.store(options.small_tables, Relaxed);
}

/// Returns an eighth of a table's bound if [`Options::service`] requests smaller tables, and otherwise the bound itself.
pub(crate) fn eighth_if_small(most: usize) -> usize {
    if SMALL_TABLES.load(Relaxed) { most / 8 } else { most }
}

/// Does the same as [`eighth_if_small`] with a quarter.
pub(crate) fn quarter_if_small(most: usize) -> usize {
    if SMALL_TABLES.load(Relaxed) { most / 4 } else { most }
}

/// Applies the options of a session that starts now; `start_ticks` is the first stamp that belongs to it.
pub(crate) fn apply(options: &Options, start_ticks: u64) {
    CONTEXT.store(options.context as u8, Relaxed);
    if shared_memory::is_connected() {
        ALLOCATIONS_FROM.store(Context::State as u8, Relaxed);
    }
    SKIPPED.store(options.skip_actions, Relaxed);
    UNWANTED.store(options.skip_actions, Relaxed);
    RING_ENTRIES.store(options.ring_entries(), Relaxed);
    SAMPLE_THRESHOLD_BYTES.store(options.sample_threshold_bytes, Relaxed);
    SAMPLE_MEAN_BYTES.store(options.sample_mean_bytes, Relaxed);
    BUDGET_MILLIONTHS.store(options.budget_millionths, Relaxed);
    LIVE_BLOCKS.store(options.max_live_blocks(), Relaxed);
    START_TICKS.store(start_ticks, Relaxed);
    // A thread resets its sampling state when it reads a session number that differs from the one it stored.
    SESSION.fetch_add(1, Release);
}

/// Returns whether live blocks have stacks.
#[inline(always)]
pub(crate) fn blocks_have_stacks() -> bool {
    CONTEXT.load(Relaxed) >= Context::State as u8
}

/// Returns whether events have stacks.
#[inline(always)]
pub(crate) fn events_have_stacks() -> bool {
    CONTEXT.load(Relaxed) >= Context::Alloc as u8
}

/// Returns whether the events of allocations have stacks. With shared memory, they also have stacks if only live blocks
/// should: the command, which writes the recording, knows the blocks from the events.
#[inline(always)]
pub(crate) fn allocations_have_stacks() -> bool {
    CONTEXT.load(Relaxed) >= ALLOCATIONS_FROM.load(Relaxed)
}

/// Returns whether the event of a free has the stack of the free rather than the stack of the allocation.
#[inline(always)]
pub(crate) fn frees_have_separate_stacks() -> bool {
    CONTEXT.load(Relaxed) >= Context::All as u8
}

/// Returns whether hooks skip events of `action`.
#[inline(always)]
pub(crate) fn skips(action: Action) -> bool {
    SKIPPED.load(Relaxed) & 1 << action as u8 != 0
}

/// Makes hooks write all events if `all` is set, and otherwise only the wanted events. A collector needs all events to
/// know which blocks were allocated after the snapshot's moment. Unwanted events are removed when chunks are read
/// ([`is_wanted`]).
pub(crate) fn write_all(all: bool) {
    SKIPPED.store(if all { 0 } else { UNWANTED.load(Relaxed) }, Relaxed);
}

/// Returns whether the options exclude any actions from recordings.
pub(crate) fn skips_any() -> bool {
    UNWANTED.load(Relaxed) != 0
}

/// Returns whether events of `action` belong in recordings.
pub(crate) fn is_wanted(action: Action) -> bool {
    UNWANTED.load(Relaxed) & 1 << action as u8 == 0
}

/// The code of the preload library, whose frames carry no information: its first address and one past its last.
#[cfg(feature = "cuda")]
static INTERNAL_CODE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Excludes this code from the innermost frames of stacks.
#[cfg(feature = "cuda")]
pub fn set_internal_code(code: std::ops::Range<u64>) {
    INTERNAL_CODE[0].store(code.start, Relaxed);
    INTERNAL_CODE[1].store(code.end, Relaxed);
}

/// Returns the code of the preload library; empty if the recorder is not part of it.
#[cfg(feature = "cuda")]
pub(crate) fn internal_code() -> std::ops::Range<u64> {
    INTERNAL_CODE[0].load(Relaxed)..INTERNAL_CODE[1].load(Relaxed)
}

/// Returns an empty range, because this recorder is not part of the preload library.
#[cfg(not(feature = "cuda"))]
pub(crate) fn internal_code() -> std::ops::Range<u64> {
    0..0
}

/// Returns a stack (outermost frame first) without the innermost frames that lie in memtrack's code.
#[cfg(feature = "cuda")]
#[inline(always)]
pub(crate) fn without_internal_code(addresses: &[u64]) -> &[u64] {
    let std::ops::Range { start, end } = internal_code();
    let mut count = addresses.len();
    while count > 0 && addresses[count - 1] >= start && addresses[count - 1] < end {
        count -= 1;
    }
    &addresses[..count]
}

/// Returns the stack unchanged: in a program that links memtrack, memtrack's frames are recognized by name.
#[cfg(not(feature = "cuda"))]
#[inline(always)]
pub(crate) fn without_internal_code(addresses: &[u64]) -> &[u64] {
    addresses
}

/// Removes the addresses in memtrack's code from a stack. Returns whether there were any.
#[cfg(feature = "cuda")]
pub(crate) fn drop_internal_code(addresses: &mut Vec<u64>) -> bool {
    let (code, before) = (internal_code(), addresses.len());
    addresses.retain(|address| !code.contains(address));
    addresses.len() < before
}

/// Leaves the stack unchanged, as [`without_internal_code`] does.
#[cfg(not(feature = "cuda"))]
pub(crate) fn drop_internal_code(_addresses: &mut Vec<u64>) -> bool {
    false
}

/// Returns the ring's bound in events per device.
pub(crate) fn ring_entries() -> u64 {
    RING_ENTRIES.load(Relaxed)
}

/// Returns the size below which host blocks are sampled.
#[inline(always)]
pub(crate) fn sample_threshold_bytes() -> u64 {
    SAMPLE_THRESHOLD_BYTES.load(Relaxed)
}

/// Returns the number of the session; the first is 1.
#[inline(always)]
pub(crate) fn session() -> u64 {
    SESSION.load(Relaxed)
}

/// Returns the rules by which small host blocks are sampled.
pub(crate) fn sampling() -> Rules {
    Rules {
        mean_bytes: SAMPLE_MEAN_BYTES.load(Relaxed),
        budget: f64::from(BUDGET_MILLIONTHS.load(Relaxed)) / 1e6,
        live_blocks: max_live_blocks(),
    }
}

/// Returns the maximum number of tracked live blocks of the first device; each further device adds some.
pub(crate) fn max_live_blocks() -> u64 {
    LIVE_BLOCKS.load(Relaxed)
}

/// Returns the first stamp of the session.
pub(crate) fn start_ticks() -> u64 {
    START_TICKS.load(Relaxed)
}

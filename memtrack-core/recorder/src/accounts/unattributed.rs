//! Exact per-thread sums of the allocations that are made outside all accounts while accounts are kept.

use super::books::Amount;
use crate::events::{Hook, HookContext, ThreadState, name_of_thread, states, thread_outside_hooks};
use crate::stack::capture::Registers;
use memtrack_model::event::ThreadId;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts a block allocated by the calling thread, which is in no account.
#[inline]
pub(super) fn count(bytes: u64) {
    match thread_outside_hooks() {
        Some(thread) => add(thread.state, bytes),
        None => count_first(bytes),
    }
}

/// Counts a block for a thread without a state, either because the block is the thread's first or because the thread is
/// ending.
#[cold]
fn count_first(bytes: u64) {
    if !crate::reentry::is_inside() && super::is_this_process() {
        count_in_hook(*Hook::enter_unconditionally(Registers::here()), bytes);
    }
}

/// Counts a block allocated by a thread that is in no account and has already entered a hook.
pub(super) fn count_in_hook(inside: HookContext, bytes: u64) {
    add(inside.thread.state, bytes);
}

fn add(state: &ThreadState, bytes: u64) {
    let add = |sum: &AtomicU64, by| sum.store(sum.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    add(&state.unattributed[0], bytes);
    add(&state.unattributed[1], 1);
}

/// The sums of all threads at one point in time.
#[derive(Debug, Default)]
pub(super) struct Reading(Vec<(usize, ThreadId, Amount)>);

/// The allocations that a thread, or all ended threads, made outside all accounts.
#[derive(Clone, Debug)]
pub struct Unattributed {
    /// The thread's name according to the system (at most 15 bytes), or `None` for all threads that have ended.
    pub thread: Option<String>,
    /// The memory that the thread or threads allocated.
    pub allocated: Amount,
}

fn current_sums() -> impl Iterator<Item = (usize, ThreadId, Amount)> {
    states().map(|state| {
        let [bytes, blocks] = state.unattributed.each_ref().map(|sum| sum.load(Ordering::Relaxed));
        (std::ptr::from_ref(state).addr(), state.thread_id(), Amount { bytes, blocks })
    })
}

impl Reading {
    pub(super) fn take() -> Self {
        Self(current_sums().collect())
    }

    /// Returns the memory that was allocated since this reading, largest amounts first.
    pub(super) fn since(&self) -> Vec<Unattributed> {
        let mut ended = Amount::default();
        let mut others: Vec<Unattributed> = Vec::new();
        for (state, thread, now) in current_sums() {
            let before = self.0.iter().find(|(other, ..)| *other == state);
            let then = before.map_or(Amount::default(), |(.., then)| *then);
            let grown = Amount { bytes: now.bytes - then.bytes, blocks: now.blocks - then.blocks };
            // The state of a thread that has ended may have been reused by another thread.
            let is_same = before.is_none_or(|(_, previous, _)| *previous == thread);
            if grown.blocks == 0 {
                continue;
            }
            match name_of_thread(thread).filter(|_| is_same) {
                Some(name) => others.push(Unattributed { thread: Some(name), allocated: grown }),
                None => {
                    ended.bytes += grown.bytes;
                    ended.blocks += grown.blocks;
                }
            }
        }
        if ended.blocks > 0 {
            others.push(Unattributed { thread: None, allocated: ended });
        }
        others.sort_by_key(|other| std::cmp::Reverse(other.allocated.bytes));
        others
    }
}

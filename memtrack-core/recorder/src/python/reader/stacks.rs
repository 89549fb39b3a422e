//! The ids of stacks by their hash with Python frames as the interpreter has them. Many of these hashes belong to one
//! stack, because it has lines, not instructions; so they are not in the table of stacks, and a thread's cache has room
//! for few of them.
//!
//! No lock is taken. A slot holds the newest id that was stored for it.
#![allow(unsafe_code)]

use crate::events::ForkCell;
use crate::zeroed::Zeroed;
use memtrack_model::event::StackId;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of slots (512 KiB).
const SLOTS: usize = 1 << 16;

/// The bits of a slot that hold the id; the others hold the upper bits of the hash, whose lower bits select the slot.
const ID_BITS: u32 = 20;

/// The maximum memory of the cache, in bytes.
#[cfg(test)]
pub(super) const MAX_BYTES: usize = SLOTS * size_of::<AtomicU64>();

/// The cache of one process: a forked child has stacks of its own.
static STACKS: ForkCell<Stacks> = ForkCell::new(Stacks::new);

struct Stacks {
    slots: Zeroed<AtomicU64>,
}

/// Returns the id that was stored for a hash. `generation` is that of the loaded code, so that a stack through unloaded
/// code is not found.
pub(crate) fn stack_with(hash: u64, generation: u32) -> Option<StackId> {
    STACKS.get().find(key(hash, generation))
}

/// Stores the id of a stack for a hash.
pub(crate) fn store(hash: u64, generation: u32, stack: StackId) {
    STACKS.get().store(key(hash, generation), stack);
}

fn key(hash: u64, generation: u32) -> u64 {
    hash ^ u64::from(generation).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Stacks {
    fn new() -> Self {
        // SAFETY: zero is a valid atomic number.
        Self { slots: unsafe { Zeroed::new(SLOTS) } }
    }

    fn find(&self, key: u64) -> Option<StackId> {
        let slot = self.slots[key as usize % SLOTS].load(Ordering::Acquire);
        let id = slot & ((1 << ID_BITS) - 1);
        (id != 0 && slot >> ID_BITS == key >> ID_BITS).then_some(StackId(id as u32))
    }

    fn store(&self, key: u64, stack: StackId) {
        if stack.is_none() || stack.0 >> ID_BITS != 0 {
            return;
        }
        let slot = key >> ID_BITS << ID_BITS | u64::from(stack.0);
        self.slots[key as usize % SLOTS].store(slot, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_stack_of_a_slot_is_found_by_its_own_hash_only() {
        let stacks = Stacks::new();
        let hash = 0x1234_5678_9abc_def0;
        assert_eq!(stacks.find(hash), None);
        stacks.store(hash, StackId(7));
        assert_eq!((stacks.find(hash), stacks.find(hash ^ 1 << 40)), (Some(StackId(7)), None));
        stacks.store(hash ^ 1 << 40, StackId(8));
        assert_eq!((stacks.find(hash), stacks.find(hash ^ 1 << 40)), (None, Some(StackId(8))));
        stacks.store(hash, StackId::NONE);
        assert_eq!(stacks.find(hash), None, "a stack that had no room has no id");
    }

    #[test]
    fn stack_of_another_generation_is_not_found() {
        assert_ne!(key(5, 1), key(5, 2));
    }
}

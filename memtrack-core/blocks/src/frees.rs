//! The stacks of blocks for which the trace contains only the free. A free event carries either its own stack or, if
//! stacks were captured only for allocations (PyTorch's context `alloc`, memtrack's default), the stack of the block's
//! allocation. A recording states which of the two its frees carry. For a PyTorch file, this is inferred from the
//! blocks whose allocation and free are both in the trace.
//!
//! **How are the stacks of frees classified in a PyTorch file?** A single block whose free and allocation have
//! different stacks proves that frees carry their own stacks. If there is no such block, and eight distinct stacks are
//! the same at allocation and free, frees are taken to carry the stacks of allocations.

use crate::lifetimes::Lifetime;
use memtrack_model::event::{Action, StackId};
use memtrack_model::snapshot::Snapshot;
use std::collections::HashSet;

/// The number of distinct stacks that must be the same at allocation and free before frees are taken to carry the
/// stacks of allocations. With fewer, the stacks might only be the same because each of these lines frees the blocks
/// that it allocated.
const MIN_EQUAL_STACKS: usize = 8;

/// The origin of the stacks that free events carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FreeStacks {
    /// The stacks of the frees themselves.
    OfFrees,
    /// The stacks of the blocks' allocations.
    OfAllocations,
    /// The origin of the stacks is unknown.
    Unknown,
}

/// The free events of one device, and the origin of their stacks.
#[derive(Clone, Copy, Debug)]
pub struct Frees<'a> {
    snapshot: &'a Snapshot,
    carried: FreeStacks,
}

impl<'a> Frees<'a> {
    /// Determines the origin of the stacks that frees carry on a device; `lifetimes` are those of the device's blocks.
    pub fn of(snapshot: &'a Snapshot, lifetimes: &[Lifetime]) -> Self {
        let carried = match (snapshot.pytorch.is_some(), &snapshot.meta.context[..]) {
            (true, _) => infer_free_stacks(snapshot, lifetimes),
            (false, "all") => FreeStacks::OfFrees,
            (false, "alloc") => FreeStacks::OfAllocations,
            (false, _) => FreeStacks::Unknown,
        };
        Self { snapshot, carried }
    }

    /// Returns the stack of a block's allocation if the block's free carries it.
    pub fn allocation_stack(&self, lifetime: &Lifetime) -> Option<StackId> {
        self.free_stack(lifetime).filter(|_| self.carried == FreeStacks::OfAllocations)
    }

    /// Returns the stack that freed a block if the block's free carries it.
    pub fn freeing_stack(&self, lifetime: &Lifetime) -> Option<StackId> {
        self.free_stack(lifetime).filter(|_| self.carried == FreeStacks::OfFrees)
    }

    /// Returns the stack carried by the free of a block that is older than the trace.
    fn free_stack(&self, lifetime: &Lifetime) -> Option<StackId> {
        let row = lifetime.to.filter(|&row| lifetime.from.is_none() && is_free(self.snapshot, row))?;
        let stack = self.snapshot.events.stack[row];
        (!self.snapshot.frame_keys(stack).is_empty()).then_some(stack)
    }
}

/// Returns whether a lifetime ended with a free event in `row`. If not, it ended because another block was allocated at
/// the same address, so the free was not recorded.
fn is_free(snapshot: &Snapshot, row: usize) -> bool {
    matches!(snapshot.events.action[row], Action::Free | Action::FreeRequested | Action::FreeCompleted)
}

fn infer_free_stacks(snapshot: &Snapshot, lifetimes: &[Lifetime]) -> FreeStacks {
    let mut same: HashSet<StackId, foldhash::fast::RandomState> = HashSet::default();
    let mut different: HashSet<(StackId, StackId), foldhash::fast::RandomState> = HashSet::default();
    for lifetime in lifetimes {
        let (Some(from), Some(to)) = (lifetime.from, lifetime.to) else { continue };
        if !is_free(snapshot, to) {
            continue;
        }
        let (began, ended) = (snapshot.events.stack[from], snapshot.events.stack[to]);
        if began.is_none() || ended.is_none() || different.contains(&(began, ended)) {
            continue;
        }
        if began == ended || snapshot.frame_keys(began) == snapshot.frame_keys(ended) {
            same.insert(began);
        } else if !snapshot.frame_keys(began).is_empty() && !snapshot.frame_keys(ended).is_empty() {
            return FreeStacks::OfFrees;
        } else {
            different.insert((began, ended));
        }
    }
    if same.len() >= MIN_EQUAL_STACKS { FreeStacks::OfAllocations } else { FreeStacks::Unknown }
}

//! Blocks of which only the free is in the trace, and the stack of that free. A free carries its own stack or, where only
//! allocations were captured, that of the block's allocation (PyTorch's context `alloc`, memtrack's default). A recording
//! states which; for a PyTorch file, it follows from the blocks whose two ends are in the trace.
//!
//! **How does a PyTorch file show it?** One block whose free and allocation have different stacks shows that frees carry
//! their own; eight blocks whose frees all have the stacks of their allocations show that they carry the allocations'.

use super::lifetimes::Lifetime;
use memtrack_model::event::{Action, StackId};
use memtrack_model::snapshot::Snapshot;
use std::collections::HashSet;

/// The number of different stacks that must be equal at allocation and free before frees are taken to carry the
/// stacks of allocations: with a few lines, each may free its own allocations.
const ENOUGH: usize = 8;

/// The stacks that frees carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// The stacks of the frees themselves.
    Own,
    /// The stacks of the blocks' allocations.
    Allocations,
    /// Unknown which of the two.
    Unknown,
}

/// The frees of one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frees<'a> {
    snapshot: &'a Snapshot,
    carried: Carried,
}

impl<'a> Frees<'a> {
    /// Creates the frees of the device with these lifetimes.
    pub(super) fn of(snapshot: &'a Snapshot, lifetimes: &[Lifetime]) -> Self {
        let carried = match (snapshot.pytorch.is_some(), &snapshot.meta.context[..]) {
            (true, _) => carried_by_pairs(snapshot, lifetimes),
            (false, "all") => Carried::Own,
            (false, "alloc") => Carried::Allocations,
            (false, _) => Carried::Unknown,
        };
        Self { snapshot, carried }
    }

    /// Returns the stack of the block's allocation, if its free carries it.
    pub(super) fn allocation(&self, lifetime: &Lifetime) -> Option<StackId> {
        self.stack(lifetime).filter(|_| self.carried == Carried::Allocations)
    }

    /// Returns the stack that freed a block.
    pub(super) fn freeing(&self, lifetime: &Lifetime) -> Option<StackId> {
        self.stack(lifetime).filter(|_| self.carried == Carried::Own)
    }

    /// Returns the stack of the free of a block that is older than the trace.
    fn stack(&self, lifetime: &Lifetime) -> Option<StackId> {
        let row = lifetime.to.filter(|&row| lifetime.from.is_none() && is_free(self.snapshot, row))?;
        let stack = self.snapshot.events.stack[row];
        (!self.snapshot.frame_keys(stack).is_empty()).then_some(stack)
    }
}

/// Returns whether a block's end is its free: otherwise another block was allocated at its address, and its
/// free was not recorded.
fn is_free(snapshot: &Snapshot, row: usize) -> bool {
    matches!(snapshot.events.action[row], Action::Free | Action::FreeRequested | Action::FreeCompleted)
}

fn carried_by_pairs(snapshot: &Snapshot, lifetimes: &[Lifetime]) -> Carried {
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
            return Carried::Own;
        } else {
            different.insert((began, ended));
        }
    }
    if same.len() >= ENOUGH { Carried::Allocations } else { Carried::Unknown }
}

//! The origin of a block, as far as the trace shows it: the stack of its allocation, or for blocks that are older than
//! the trace the stack that freed them. Flame graphs and exports use it.

use super::frees::Frees;
use super::lifetimes::Lifetime;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::Snapshot;

/// The known origin of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// This stack allocated it.
    Allocated(StackId),
    /// It is older than the trace, in which this stack freed it.
    Freed(StackId),
    /// It is older than the trace.
    Older,
    /// It was allocated in the trace, which has no stack of it.
    NoStack,
}

impl Origin {
    /// Returns the placeholder for a missing stack: `(allocated before the first event)`, `(no stack)`; none where there
    /// is a stack.
    pub fn stands_for_stack(self) -> Option<&'static str> {
        match self {
            Self::Allocated(_) => None,
            Self::Freed(_) | Self::Older => Some(super::top::rows::OLDER_BLOCKS),
            Self::NoStack => Some(super::top::rows::NO_STACK),
        }
    }
}

/// Finds the origins of the blocks of one device.
#[derive(Clone, Copy, Debug)]
pub struct Origins<'a> {
    snapshot: &'a Snapshot,
    frees: Frees<'a>,
}

impl<'a> Origins<'a> {
    /// Creates the origins for the device with these lifetimes.
    pub fn of(snapshot: &'a Snapshot, lifetimes: &[Lifetime]) -> Self {
        Self { snapshot, frees: Frees::of(snapshot, lifetimes) }
    }

    /// Returns the origin of a block.
    pub fn origin(&self, lifetime: &Lifetime) -> Origin {
        let has_frames = |stack: &StackId| !self.snapshot.frame_keys(*stack).is_empty();
        let own = Some(lifetime.stack).filter(|_| lifetime.known).filter(has_frames);
        match (own.or_else(|| self.frees.allocation(lifetime)), self.frees.freeing(lifetime)) {
            (Some(stack), _) => Origin::Allocated(stack),
            (None, Some(stack)) => Origin::Freed(stack),
            (None, None) if lifetime.from.is_none() && !self.snapshot.events.is_empty() => Origin::Older,
            (None, None) => Origin::NoStack,
        }
    }
}

//! A block's origin, as far as the trace shows it: the stack that allocated the block or, if the block is older than
//! the trace, the stack that freed it. Flame graphs and exports use it.

use crate::frees::Frees;
use crate::lifetimes::Lifetime;
use memtrack_frames::attribution::{NO_STACK, OLDER_MEMORY};
use memtrack_model::event::StackId;
use memtrack_model::snapshot::Snapshot;

/// A block's origin, to the extent that it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The block was allocated with this stack.
    Allocated(StackId),
    /// The block is older than the trace and was freed with this stack.
    Freed(StackId),
    /// The block is older than the trace, and the stack that freed it is unknown.
    Older,
    /// The block was allocated within the trace but without a stack.
    NoStack,
}

impl Origin {
    /// Returns the placeholder for the stack of the allocation, `(allocated before the first event)` or `(no stack)`;
    /// `None` if that stack is known.
    pub fn stack_placeholder(self) -> Option<&'static str> {
        match self {
            Self::Allocated(_) => None,
            Self::Freed(_) | Self::Older => Some(OLDER_MEMORY),
            Self::NoStack => Some(NO_STACK),
        }
    }
}

/// A lookup for the origins of the blocks of one device.
#[derive(Clone, Copy, Debug)]
pub struct Origins<'a> {
    snapshot: &'a Snapshot,
    frees: Frees<'a>,
}

impl<'a> Origins<'a> {
    /// Creates a lookup for the blocks of one device; `lifetimes` must be the lifetimes of all of these blocks.
    pub fn of(snapshot: &'a Snapshot, lifetimes: &[Lifetime]) -> Self {
        Self { snapshot, frees: Frees::of(snapshot, lifetimes) }
    }

    /// Returns the origin of a block.
    pub fn origin(&self, lifetime: &Lifetime) -> Origin {
        let has_frames = |stack: &StackId| !self.snapshot.frame_keys(*stack).is_empty();
        let own = Some(lifetime.stack).filter(|_| lifetime.known).filter(has_frames);
        match (own.or_else(|| self.frees.allocation_stack(lifetime)), self.frees.freeing_stack(lifetime)) {
            (Some(stack), _) => Origin::Allocated(stack),
            (None, Some(stack)) => Origin::Freed(stack),
            (None, None) if lifetime.from.is_none() && !self.snapshot.events.is_empty() => Origin::Older,
            (None, None) => Origin::NoStack,
        }
    }
}

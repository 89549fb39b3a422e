//! Finds where a live block was allocated, for callers that come across its address.

use super::RECORDER;
use crate::{reentry, scope};
use memtrack_model::ScopePosition;
use memtrack_model::event::DeviceId;

/// The place of a block's allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// Its size.
    pub size_bytes: u64,
    /// The return addresses of the stack, innermost first; empty if it was not captured.
    pub stack: Vec<u64>,
    /// The modules, phase and operator that were running.
    pub place: ScopePosition<'static>,
}

/// Returns where the block that begins at `address` was allocated: `None` if none is live there, or it was not
/// recorded, because it was allocated before recording began or was not sampled. Locks a shard for a moment, and
/// copies the stack.
pub fn allocated_at(device: DeviceId, address: u64) -> Option<Allocated> {
    let _inside = reentry::enter();
    let recorder = RECORDER.get();
    let block = recorder.live.get(device, address)?;
    Some(Allocated {
        size_bytes: block.size_bytes,
        stack: recorder.stacks.addresses(block.stack),
        place: scope::node_of(block.scope).map(|node| node.place()).unwrap_or_default(),
    })
}

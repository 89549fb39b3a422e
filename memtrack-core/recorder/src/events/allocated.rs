//! Finds out where a live block was allocated, for callers that have its address.

use super::RECORDER;
use crate::{reentry, scope};
use memtrack_model::ScopePosition;
use memtrack_model::event::DeviceId;

/// Where a live block was allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// The size of the block.
    pub size_bytes: u64,
    /// The return addresses of the stack, innermost first; empty if it was not captured.
    pub stack: Vec<u64>,
    /// The modules, phase and operator that were active at the allocation.
    pub place: ScopePosition<'static>,
}

/// Returns where the block that begins at `address` was allocated. Returns `None` if no block is live at that address, or
/// if the block was not recorded because it was allocated before recording began or was not sampled. Briefly locks a
/// shard, and copies the stack.
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

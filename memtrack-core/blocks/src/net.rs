//! The recorder's own count of the memory that was allocated on a heap and not freed. It is exact even if sums over
//! sampled blocks are estimates. All reports take the heap's memory at the end from [`counted_at_end`]; [`net`] only
//! provides a lower bound on the retained memory, which `check` compares with its limit.
//!
//! **When is the count not used?** If the count is less than the sum of the individually recorded blocks, an unknown
//! amount of memory from before the recording was freed too, so the estimate is reported instead. A ranking with only
//! one row does not assign the count to that row, because blocks that were not sampled may belong to other rows, which
//! are then missing.

use crate::estimate::Estimate;
use crate::lifetimes::{Lifetime, is_estimate};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;

/// Everything allocated since recording began, minus everything freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Net {
    /// Requested bytes; negative if more older memory was freed than new memory was allocated.
    pub bytes: i64,
    /// The number of blocks; negative if more older blocks were freed than new blocks were allocated.
    pub blocks: i64,
}

/// The memory that a sampled heap holds at the end, as used by all reports.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct HeldAtEnd {
    /// The requested bytes of the blocks that are live at the end.
    pub bytes: u64,
    /// The number of blocks that are live at the end.
    pub blocks: u64,
    /// The error of the bytes, which are exact unless the recording is incomplete.
    pub bytes_error: Estimate,
    /// The error of the number of blocks, which is exact unless the recording is incomplete.
    pub blocks_error: Estimate,
}

/// Returns the recorder's own count of the memory that `device` holds at the end; `lifetimes` must be the lifetimes of
/// the device's blocks. Returns `None` if sums over blocks are exact, if there is no count, or if the count is less
/// than the recorded blocks because older memory, which was never counted, was freed.
pub fn counted_at_end(snapshot: &Snapshot, device: DeviceId, lifetimes: &[Lifetime]) -> Option<HeldAtEnd> {
    let net = net(snapshot, device).filter(|_| is_estimate(snapshot, device, lifetimes))?;
    let (bytes, blocks) = (u64::try_from(net.bytes).ok()?, u64::try_from(net.blocks).ok()?);
    let live = lifetimes.iter().filter(|one| one.to.is_none());
    let recorded =
        live.fold((0u64, 0u64), |(bytes, blocks), one| (bytes.saturating_add(one.size_bytes), blocks + 1));
    (recorded.0 <= bytes && recorded.1 <= blocks).then(|| HeldAtEnd {
        bytes,
        blocks,
        bytes_error: Estimate::exact(bytes as f64).with_completeness(snapshot.meta.complete),
        blocks_error: Estimate::exact(blocks as f64).with_completeness(snapshot.meta.complete),
    })
}

/// Returns the net count of `device`; `None` unless the device is a heap and the recorder counted its allocations.
pub fn net(snapshot: &Snapshot, device: DeviceId) -> Option<Net> {
    let counts = snapshot.exact_counts(device).filter(|_| snapshot.is_heap(device))?;
    Some(Net {
        bytes: counts.allocated_bytes.wrapping_sub(counts.freed_bytes) as i64,
        blocks: counts.allocations.wrapping_sub(counts.frees) as i64,
    })
}

//! What a heap has handed out and not got back, by the recorder's own count: exact even where sums over sampled blocks
//! are estimates. `summary` shows it, and `check` fails a process that certainly holds more than the limit.

use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;

/// What was handed out since recording began, minus what was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Net {
    /// Requested bytes; negative when more of older memory was given back than was handed out.
    pub bytes: i64,
    /// Blocks; negative likewise.
    pub blocks: i64,
}

/// The net count of `device`; `None` unless it is a heap whose recorder counted.
pub fn net(snapshot: &Snapshot, device: DeviceId) -> Option<Net> {
    let counts = snapshot.exact_counts(device).filter(|_| snapshot.is_heap(device))?;
    Some(Net {
        bytes: counts.allocated_bytes.wrapping_sub(counts.freed_bytes) as i64,
        blocks: counts.allocations.wrapping_sub(counts.frees) as i64,
    })
}

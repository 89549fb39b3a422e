//! A device's segments and blocks at the end of the trace, as the file contains them.

use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::snapshot::pytorch::{Key, PyTorch};
use std::collections::HashMap;

/// The segments and blocks of a device at the end of the trace, keyed by address.
pub(crate) struct FinalRows {
    /// The row of each active block and the number of bytes that are reserved for it, keyed by address.
    pub(crate) blocks: HashMap<u64, (usize, u64), foldhash::fast::RandomState>,
    /// The first address, size in bytes, and row of each segment, sorted by address.
    segments: Vec<(u64, u64, usize)>,
}

impl FinalRows {
    pub(crate) fn of(snapshot: &Snapshot, pytorch: &PyTorch, device: DeviceId) -> Self {
        let mut rows = Self { blocks: HashMap::default(), segments: Vec::new() };
        for (row, segment) in snapshot.segments.iter().enumerate() {
            if segment.device != device || row >= pytorch.segments.len() {
                continue;
            }
            rows.segments.push((segment.address, segment.size_bytes, row));
            for block in pytorch.segments.rows(row, Key::Blocks) {
                let state = snapshot.strings.bytes(pytorch.blocks.text(block, Key::State));
                if state.starts_with(b"active") {
                    let address = pytorch.blocks.number(block, Key::Address);
                    rows.blocks.insert(address, (block, pytorch.blocks.number(block, Key::Size)));
                }
            }
        }
        rows.segments.sort_unstable();
        rows
    }

    /// Returns the pool of the segment that contains an address, or `None` if the file does not contain such a segment
    /// or its pool.
    pub(crate) fn pool(&self, pytorch: &PyTorch, address: u64) -> Option<(u64, u64)> {
        let after = self.segments.partition_point(|segment| segment.0 <= address);
        let &(first, bytes, row) = self.segments.get(after.checked_sub(1)?)?;
        if address - first >= bytes {
            return None;
        }
        pytorch.segments.named_pool(row, Key::SegmentPoolId)
    }
}

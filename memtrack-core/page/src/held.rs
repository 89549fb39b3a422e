//! A device's segments and blocks at the end of the trace, as the file contains them.

use memtrack_blocks::held::{file_segments, live_blocks, recorded_segments};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::pytorch::{BlockState, Key, PyTorch};
use memtrack_model::snapshot::{Snapshot, lay_out};
use std::collections::HashMap;

/// The segments and blocks of a device at the end of the trace, keyed by address.
pub(crate) struct FinalRows {
    /// The number of bytes that are reserved for each active block, keyed by address. In a PyTorch file, the block's row
    /// as well.
    pub(crate) blocks: HashMap<u64, (Option<usize>, u64), foldhash::fast::RandomState>,
    /// The first address, size in bytes, and row of each segment, sorted by address.
    segments: Vec<(u64, u64, usize)>,
}

impl FinalRows {
    pub(crate) fn of(snapshot: &Snapshot, device: DeviceId) -> Self {
        let mut rows = Self { blocks: HashMap::default(), segments: Vec::new() };
        match snapshot.pytorch.as_deref() {
            Some(pytorch) => rows.add_from_file(snapshot, pytorch, device),
            None => rows.add_recorded(snapshot, device),
        }
        rows
    }

    fn add_from_file(&mut self, snapshot: &Snapshot, pytorch: &PyTorch, device: DeviceId) {
        for row in file_segments(snapshot, pytorch, device) {
            let segment = &snapshot.segments[row];
            self.segments.push((segment.address, segment.size_bytes, row));
            for block in pytorch.segments.rows(row, Key::Blocks) {
                let state = snapshot.strings.bytes(pytorch.blocks.text(block, Key::State));
                if BlockState::named(state) != BlockState::Inactive {
                    let address = pytorch.blocks.number(block, Key::Address);
                    self.blocks.insert(address, (Some(block), pytorch.blocks.number(block, Key::Size)));
                }
            }
        }
        self.segments.sort_unstable();
    }

    /// Adds the blocks of a recording. All its segments are in the default pool, so they need not be known.
    fn add_recorded(&mut self, snapshot: &Snapshot, device: DeviceId) {
        let blocks = live_blocks(snapshot, device);
        lay_out(&recorded_segments(snapshot, device), &blocks, |_, pieces| {
            for (piece, block) in pieces.iter().filter_map(|piece| Some((piece, &blocks[piece.block?]))) {
                self.blocks.insert(block.address, (None, piece.size_bytes));
            }
        });
    }

    /// Returns the pool of the segment that contains an address, or `None` if the file does not contain such a segment
    /// or its pool.
    fn pool_at(&self, pytorch: &PyTorch, address: u64) -> Option<(u64, u64)> {
        let after = self.segments.partition_point(|segment| segment.0 <= address);
        let &(first, bytes, row) = self.segments.get(after.checked_sub(1)?)?;
        if address - first >= bytes {
            return None;
        }
        pytorch.segments.named_pool(row, Key::SegmentPoolId)
    }

    /// Returns the pool of a block or of reserved memory: that of the event in `row`, or else that of its segment. All
    /// memory of a recording is in the default pool.
    pub(crate) fn pool(&self, snapshot: &Snapshot, row: Option<usize>, address: u64) -> Option<(u64, u64)> {
        let Some(pytorch) = snapshot.pytorch.as_deref() else { return Some((0, 0)) };
        let named = row.and_then(|row| pytorch.events.named_pool(row, Key::PoolId));
        named.or_else(|| self.pool_at(pytorch, address))
    }
}

//! A device's contents in the form of PyTorch's snapshots: segments with their blocks.

use crate::error::AllocatorError;
use crate::memory::DeviceMemory;
use crate::state::blocks::{Block, BlockId};
use crate::state::device::Device;
use memtrack_model::snapshot::pytorch::{BlockInfo, BlockState, SegmentInfo};

impl<M: DeviceMemory> Device<M> {
    /// Returns all segments, sorted by address.
    pub(crate) fn segments(&self) -> Vec<SegmentInfo> {
        let is_head = |block: &Block| {
            block.mapped && block.prev.to_option().is_none_or(|prev| !self.blocks[prev].mapped)
        };
        let heads = self.blocks.iter().filter(|(_, block)| is_head(block));
        let mut segments: Vec<SegmentInfo> = heads.map(|(id, _)| self.segment(id)).collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        segments
    }

    /// Returns the start and size of a live block's segment, or `None` if no live block starts at `address`.
    pub(crate) fn base_allocation(&self, address: u64) -> Option<Result<(u64, u64), AllocatorError>> {
        let block = &self.blocks[self.live.get(address)?];
        if block.is_expandable() {
            let text = "Tensors allocated with expandable_segments:True cannot be shared between processes. Consider \
                        using expandable_segments:False in data loading workers via \
                        torch.cuda.memory._set_allocator_settings('expandable_segments:False')";
            return Some(Err(AllocatorError::Unsupported(text.into())));
        }
        let mut end = block;
        while let Some(next) = end.next.to_option() {
            end = &self.blocks[next];
        }
        Some(Ok((block.base, end.address + end.size - block.base)))
    }

    fn segment(&self, head: BlockId) -> SegmentInfo {
        let first = &self.blocks[head];
        let mut segment = SegmentInfo {
            device: self.id,
            address: first.address,
            total_size: 0,
            allocated_size: 0,
            active_size: 0,
            requested_size: 0,
            stream: first.stream,
            kind: first.pool.kind(),
            pool: self.pool(first.pool).owner,
            is_expandable: first.is_expandable(),
            stack: first.segment_stack,
            blocks: Vec::new(),
        };
        let mut at = Some(head);
        while let Some(block) = at.map(|id| &self.blocks[id]).filter(|block| block.mapped) {
            let state = match (block.allocated, block.is_free()) {
                (true, _) => BlockState::ActiveAllocated,
                (false, false) => BlockState::ActivePendingFree,
                (false, true) => BlockState::Inactive,
            };
            let Block { address, size, requested: requested_size, stack, .. } = *block;
            segment.blocks.push(BlockInfo { address, size, requested_size, state, stack });
            segment.total_size += size;
            if state == BlockState::ActiveAllocated {
                segment.allocated_size += size;
            }
            if state != BlockState::Inactive {
                segment.active_size += size;
                segment.requested_size += requested_size;
            }
            at = block.next.to_option();
        }
        segment
    }
}

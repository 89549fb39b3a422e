//! What a device holds: its segments with their blocks, as PyTorch's snapshots list them.

use crate::api::error::AllocatorError;
use crate::memory::device_memory::DeviceMemory;
use crate::state::block::{Block, BlockId};
use crate::state::device::Device;
use crate::state::private_pools::MempoolId;
use crate::state::stats::PoolKind;
use memtrack_model::event::{DeviceId, StackId, StreamId};

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// It is handed out.
    ActiveAllocated,
    /// It was given back, but other streams may still use it.
    ActivePendingFree,
    /// It is free.
    Inactive,
}

impl BlockState {
    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ActiveAllocated => "active_allocated",
            Self::ActivePendingFree => "active_pending_free",
            Self::Inactive => "inactive",
        }
    }
}

/// One block. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Where it is.
    pub address: u64,
    /// How large it is.
    pub size: u64,
    /// What was asked for; of a free block, when it or a part of it was handed out last.
    pub requested_size: u64,
    /// What it is used for.
    pub state: BlockState,
    /// Who asked for it.
    pub stack: StackId,
}

/// One segment, or one run of mapped pages of an expandable range. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The device.
    pub device: DeviceId,
    /// Where it is.
    pub address: u64,
    /// How large it is.
    pub total_size: u64,
    /// What of it is handed out.
    pub allocated_size: u64,
    /// What of it is not free.
    pub active_size: u64,
    /// What was asked for of that.
    pub requested_size: u64,
    /// The stream it belongs to.
    pub stream: StreamId,
    /// The kind of pool it is in.
    pub kind: PoolKind,
    /// The private pool it is in, or (0, 0).
    pub pool: MempoolId,
    /// Whether it is of an expandable range.
    pub is_expandable: bool,
    /// Who caused it.
    pub stack: StackId,
    /// Its blocks, by address.
    pub blocks: Vec<BlockInfo>,
}

impl SegmentInfo {
    /// PyTorch's `segment_type`: `small` or `large`.
    pub fn segment_type(&self) -> &'static str {
        match self.kind {
            PoolKind::Small => "small",
            PoolKind::Large => "large",
        }
    }
}

impl<M: DeviceMemory> Device<M> {
    /// All segments by address.
    pub(crate) fn segments(&self) -> Vec<SegmentInfo> {
        let is_head =
            |block: &Block| block.mapped && block.prev.some().is_none_or(|prev| !self.blocks[prev].mapped);
        let heads = self.blocks.iter().filter(|(_, block)| is_head(block));
        let mut segments: Vec<SegmentInfo> = heads.map(|(id, _)| self.segment(id)).collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        segments
    }

    /// The beginning and the size of the segment of a live block; none when no live block begins there.
    pub(crate) fn base_allocation(&self, address: u64) -> Option<Result<(u64, u64), AllocatorError>> {
        let block = &self.blocks[self.live.get(address)?];
        if block.is_expandable() {
            let text = "Tensors allocated with expandable_segments:True cannot be shared between processes. Consider \
                        using expandable_segments:False in data loading workers via \
                        torch.cuda.memory._set_allocator_settings('expandable_segments:False')";
            return Some(Err(AllocatorError::Unsupported(text.into())));
        }
        let mut end = block;
        while let Some(next) = end.next.some() {
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
            at = block.next.some();
        }
        segment
    }
}

//! The state of an allocator in PyTorch's terms: segments with their blocks, as its snapshots list them.

use crate::event::{DeviceId, StackId, StreamId};

/// The id of a private pool, as PyTorch's pair of numbers. The first is set for graphs and the second for `MemPool`s;
/// (0, 0) is the default pool.
pub type MempoolId = (u64, u64);

/// The kind of pool that a block belongs to. A private pool has both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolKind {
    /// Blocks of up to 1 MiB.
    Small,
    /// Larger blocks.
    Large,
}

impl PoolKind {
    /// Returns PyTorch's `segment_type`: `small` or `large`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// The block is allocated.
    ActiveAllocated,
    /// The block was freed, but other streams may still use it.
    ActivePendingFree,
    /// The block is free.
    Inactive,
}

impl BlockState {
    /// Returns PyTorch's name for the state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ActiveAllocated => "active_allocated",
            Self::ActivePendingFree => "active_pending_free",
            Self::Inactive => "inactive",
        }
    }

    /// Returns the state that a PyTorch file calls `name`. PyTorch has had two names for pending blocks. Any unknown name
    /// counts as inactive.
    pub const fn named(name: &[u8]) -> Self {
        match name {
            b"active_allocated" => Self::ActiveAllocated,
            b"active_pending_free" | b"active_awaiting_free" => Self::ActivePendingFree,
            _ => Self::Inactive,
        }
    }
}

/// A block. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// The address of the block.
    pub address: u64,
    /// The size of the block.
    pub size: u64,
    /// The requested bytes. For a free block, this is the size of the last request that the block or a part of it served.
    pub requested_size: u64,
    /// The state of the block.
    pub state: BlockState,
    /// The stack of the request.
    pub stack: StackId,
}

/// A segment, or a run of mapped pages in an expandable range. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The device that the segment is on.
    pub device: DeviceId,
    /// The address of the segment.
    pub address: u64,
    /// The size of the segment.
    pub total_size: u64,
    /// The total size of the allocated blocks.
    pub allocated_size: u64,
    /// The total size of the allocated and pending blocks.
    pub active_size: u64,
    /// The requested bytes of the allocated and pending blocks.
    pub requested_size: u64,
    /// The stream that the segment belongs to.
    pub stream: StreamId,
    /// The kind of pool that the segment is in.
    pub kind: PoolKind,
    /// The private pool that the segment is in, or (0, 0).
    pub pool: MempoolId,
    /// Whether the segment belongs to an expandable range.
    pub is_expandable: bool,
    /// The stack of the request for which the segment was allocated.
    pub stack: StackId,
    /// The segment's blocks, by address.
    pub blocks: Vec<BlockInfo>,
}

impl SegmentInfo {
    /// Returns PyTorch's `segment_type`: `small` or `large`.
    pub const fn segment_type(&self) -> &'static str {
        self.kind.name()
    }
}

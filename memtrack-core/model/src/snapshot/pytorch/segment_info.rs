//! What an allocator holds, in PyTorch's words: segments with their blocks, as its snapshots list them.

use crate::event::{DeviceId, StackId, StreamId};

/// The id of a private pool, as PyTorch's pair: the first is set for graphs, the second for `MemPool`s; (0, 0) is the
/// default pool.
pub type MempoolId = (u64, u64);

/// The kind of pool a block is of; private pools have both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolKind {
    /// Blocks of up to 1 MiB.
    Small,
    /// Larger blocks.
    Large,
}

impl PoolKind {
    /// PyTorch's `segment_type`: `small` or `large`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

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
    pub const fn name(self) -> &'static str {
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
    pub const fn segment_type(&self) -> &'static str {
        self.kind.name()
    }
}

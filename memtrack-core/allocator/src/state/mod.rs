//! The state of a device: segments and blocks, free blocks, statistics, and the history of events.

pub(crate) mod block;
pub(crate) mod caller;
pub(crate) mod device;
pub(crate) mod free_blocks;
pub(crate) mod hash_order_map;
pub(crate) mod history;
pub(crate) mod live_blocks;
pub(crate) mod pools;
pub(crate) mod private_pools;
pub(crate) mod segments;
pub(crate) mod stats;
pub(crate) mod stream_uses;

//! The state of a device: segments and blocks, free blocks, statistics, and the history of events.

pub(crate) mod blocks;
pub(crate) mod device;
pub(crate) mod free_blocks;
pub(crate) mod hash_order_map;
pub(crate) mod history;
pub(crate) mod pending_frees;
pub(crate) mod pools;
pub(crate) mod private_pools;
pub(crate) mod segments;
pub(crate) mod stats;

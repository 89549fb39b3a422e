//! Frees that wait: for events on the other streams that use the block or, if these streams are being captured, for the
//! end of the graph capture. During a capture, work on the captured streams is captured instead of executed, so events
//! on these streams would not show when the work is done.

use crate::state::blocks::BlockId;
use crate::state::hash_order_map::HashOrderMap;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memtrack_model::event::StreamId;
use std::collections::VecDeque;

/// Pending events, by stream.
pub(crate) type EventQueues<E> = HashOrderMap<StreamId, VecDeque<(E, BlockId)>>;

/// Frees that a device has deferred until after a capture.
#[derive(Debug, Default)]
pub(crate) struct DeferredFrees {
    /// Blocks that were freed during a capture while other streams used them, or for which an event could not be
    /// recorded.
    pub(crate) blocks: VecDeque<BlockId>,
    /// For each block, the streams that used it during a capture. These streams are joined when the capture ends, so
    /// the block need not wait for them.
    pub(crate) uses: HashMap<BlockId, Vec<(u64, StreamId)>, FixedState>,
}

impl DeferredFrees {
    pub(crate) fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    pub(crate) fn defer(&mut self, id: BlockId) {
        self.blocks.push_back(id);
    }

    pub(crate) fn add_use_in_capture(&mut self, id: BlockId, hash: u64, stream: StreamId) {
        self.uses.entry(id).or_default().push((hash, stream));
    }

    /// Removes the entry for a block that has become free, because its id may be reused.
    #[inline]
    pub(crate) fn forget(&mut self, id: BlockId) {
        if !self.uses.is_empty() {
            self.uses.remove(&id);
        }
    }
}

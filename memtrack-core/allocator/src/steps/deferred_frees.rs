//! Frees that are deferred until the end of a graph capture. During a capture, work on the captured streams is
//! captured instead of executed, so events on these streams would not show when the work is done.

use crate::api::error::AllocatorError;
use crate::memory::device_memory::DeviceMemory;
use crate::state::block::BlockId;
use crate::state::caller::Caller;
use crate::state::device::Device;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memtrack_model::event::StreamId;
use std::collections::VecDeque;

/// Frees that a device has deferred until after a capture.
#[derive(Debug, Default)]
pub(crate) struct DeferredFrees {
    /// Blocks that were freed during a capture while other streams used them, or for which an event could not be
    /// recorded.
    blocks: VecDeque<BlockId>,
    /// For each block, the streams that used it during a capture. These streams are joined when the capture ends, so
    /// the block need not wait for them.
    uses: HashMap<BlockId, Vec<(u64, StreamId)>, FixedState>,
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

impl<M: DeviceMemory> Device<M> {
    /// Completes deferred frees after a capture: records events on the streams that were not part of the capture,
    /// and frees the blocks that no such stream uses.
    pub(crate) fn complete_deferred_frees(&mut self, context: Caller) -> Result<(), AllocatorError> {
        if self.private.is_capturing() {
            return Ok(());
        }
        while let Some(&id) = self.deferred.blocks.front() {
            let joined = self.deferred.uses.remove(&id).unwrap_or_default();
            let block = &mut self.blocks[id];
            block.uses = block.uses.take().and_then(|uses| uses.remove_streams(&joined));
            if block.uses.is_some() {
                self.record_events(id)?;
            } else {
                let context = self.context_of_free(id, context);
                self.complete_free(id, context);
            }
            self.deferred.blocks.pop_front();
        }
        Ok(())
    }
}

//! Frees that wait for the end of a graph capture: during a capture, work on its streams is only recorded,
//! and no event could be recorded there.

use crate::api::error::AllocatorError;
use crate::memory::device_memory::DeviceMemory;
use crate::state::block::BlockId;
use crate::state::caller::Caller;
use crate::state::device::Device;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memtrack_model::event::StreamId;
use std::collections::VecDeque;

/// The operations that a device has deferred until after a capture.
#[derive(Debug, Default)]
pub(crate) struct DeferredFrees {
    /// Blocks that were freed during a capture and that other streams use; also those, capture or not, for
    /// which a stream could record no event.
    blocks: VecDeque<BlockId>,
    /// Streams that a block was used on in a capture. They have been joined when it ends, so that no wait is
    /// needed.
    uses: HashMap<BlockId, Vec<(u64, StreamId)>, FixedState>,
}

impl DeferredFrees {
    pub(crate) fn any(&self) -> bool {
        !self.blocks.is_empty()
    }

    pub(crate) fn defer(&mut self, id: BlockId) {
        self.blocks.push_back(id);
    }

    pub(crate) fn used_in_capture(&mut self, id: BlockId, hash: u64, stream: StreamId) {
        self.uses.entry(id).or_default().push((hash, stream));
    }

    /// Removes a block that is free: its number will be reused.
    #[inline]
    pub(crate) fn forget(&mut self, id: BlockId) {
        if !self.uses.is_empty() {
            self.uses.remove(&id);
        }
    }
}

impl<M: DeviceMemory> Device<M> {
    /// Completes deferred operations after the capture: records events for the streams that are not joined,
    /// and frees the blocks that have none.
    pub(crate) fn end_deferred(&mut self, context: Caller) -> Result<(), AllocatorError> {
        if self.private.capturing() {
            return Ok(());
        }
        while let Some(&id) = self.deferred.blocks.front() {
            let joined = self.deferred.uses.remove(&id).unwrap_or_default();
            let block = &mut self.blocks[id];
            block.uses = block.uses.take().and_then(|uses| uses.without(&joined));
            if block.uses.is_some() {
                self.record_events(id)?;
            } else {
                let context = self.context_of_free(id, context);
                self.complete(id, context);
            }
            self.deferred.blocks.pop_front();
        }
        Ok(())
    }
}

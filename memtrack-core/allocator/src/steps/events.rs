//! Blocks that other streams use. Their memory becomes free only when those streams have finished the work that
//! was queued before the free.

use crate::error::AllocatorError;
use crate::memory::{DeviceError, DeviceMemory};
use crate::recorder::Caller;
use crate::state::blocks::BlockId;
use crate::state::device::Device;
use memtrack_model::event::StreamId;
use std::collections::VecDeque;

impl<M: DeviceMemory> Device<M> {
    /// Returns PyTorch's hash of a stream, which combines the device type, the device and the stream's number.
    fn hash(&self, stream: StreamId) -> u64 {
        let number = self.memory.stream_number(stream);
        (1u64 << 56).wrapping_add(u64::from(self.id.0) << 48).wrapping_add(number)
    }

    /// Records that a block is also used on another stream; returns `false` if no allocated block starts at
    /// `address`. The stream for which the block was allocated is ignored.
    pub(crate) fn record_stream(&mut self, address: u64, stream: StreamId) -> bool {
        let Some(id) = self.live.get(address) else { return false };
        let hash = self.hash(stream);
        let block = &mut self.blocks[id];
        if block.stream != stream {
            block.uses.get_or_insert_default().insert(hash, stream);
            // PyTorch checks the thread's current stream instead.
            if self.private.captures(stream) {
                self.deferred.add_use_in_capture(id, hash, stream);
            }
        }
        true
    }

    /// Records an event on each stream that uses a block. If any event cannot be recorded, nothing is changed.
    #[cold]
    pub(crate) fn record_events(&mut self, id: BlockId) -> Result<(), AllocatorError> {
        let Some(uses) = &self.blocks[id].uses else { return Ok(()) };
        let record = |stream| Ok((stream, self.memory.record_event(stream)?));
        let recorded: Vec<(StreamId, M::Event)> =
            uses.streams().map(record).collect::<Result<_, DeviceError>>()?;
        self.blocks[id].uses = None;
        for (stream, event) in recorded {
            self.blocks[id].events += 1;
            let hash = self.hash(stream);
            match self.events.get_mut(hash, stream) {
                Some(queue) => queue.push_back((event, id)),
                None => self.events.insert(hash, stream, VecDeque::from([(event, id)])),
            }
        }
        Ok(())
    }

    /// Returns whether any blocks are waiting for streams or for the end of a capture.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        !self.events.is_empty() || self.deferred.has_blocks()
    }

    /// Frees the blocks whose events are done. The events on each stream are queried in order, up to the first
    /// one that is not done.
    #[cold]
    pub(crate) fn process_events(&mut self, context: Caller) -> Result<(), AllocatorError> {
        self.complete_deferred_frees(context)?;
        let mut start = 0;
        while let Some(at) = self.events.next(start) {
            start = at + 1;
            while let Some((event, _)) = self.events.value_at(at).and_then(|queue| queue.front()) {
                if !self.memory.is_done(event)? {
                    break;
                }
                if let Some((_, id)) = self.events.value_at(at).and_then(VecDeque::pop_front) {
                    self.complete_event(id, context);
                }
            }
            if self.events.value_at(at).is_some_and(|queue| queue.is_empty()) {
                self.events.remove_at(at);
                start = at;
            }
        }
        Ok(())
    }

    /// Waits for all events, or only for the events of blocks in one pair of pools, and frees the blocks.
    pub(crate) fn wait_for_events(
        &mut self,
        pair: Option<u32>,
        context: Caller,
    ) -> Result<(), AllocatorError> {
        self.stats.num_sync_all_streams += 1;
        self.complete_deferred_frees(context)?;
        let mut start = 0;
        while let Some(at) = self.events.next(start) {
            start = at + 1;
            let mut index = 0;
            while let Some((event, id)) = self.events.value_at(at).and_then(|queue| queue.get(index)) {
                let pool = self.blocks[*id].pool;
                if pair.is_some_and(|pair| pool.pair() != pair) {
                    index += 1;
                    continue;
                }
                self.memory.wait(event)?;
                if let Some((_, id)) = self.events.value_at(at).and_then(|queue| queue.remove(index)) {
                    self.complete_event(id, context);
                }
            }
            if self.events.value_at(at).is_some_and(|queue| queue.is_empty()) {
                self.events.remove_at(at);
                start = at;
            }
        }
        Ok(())
    }

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

    fn complete_event(&mut self, id: BlockId, context: Caller) {
        let block = &mut self.blocks[id];
        block.events -= 1;
        if block.events == 0 {
            let context = self.context_of_free(id, context);
            self.complete_free(id, context);
        }
    }
}

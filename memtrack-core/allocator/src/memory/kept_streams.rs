//! Keeps streams alive for as long as memory belongs to them. Cached memory still belongs to its stream after the last
//! buffer is dropped. The allocator later uses the stream's handle to wait for the stream before it unmaps its pages,
//! and a new stream with the same handle would receive the memory while the destroyed stream's work still uses it. The
//! allocator therefore holds a reference to the stream of each buffer. When a buffer is created on a new stream, idle
//! streams that have no other references are released along with their memory.
//!
//! **What if a client passes a handle instead of the stream object?** Then the client must keep the stream alive. If
//! the driver detects that the stream was destroyed, the allocator waits for the whole device.

use crate::api::caching::CachingAllocator;
use crate::api::error::AllocatorError;
use crate::memory::cuda_memory::CudaMemory;
use crate::state::caller::Caller;
use crate::state::device::Device;
use crate::state::pools::PoolId;
use cudarc::driver::CudaStream;
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PoolKind;
use std::sync::Arc;

impl CachingAllocator<CudaMemory> {
    /// Retains a stream for as long as memory on the device belongs to it or is used on it.
    ///
    /// # Errors
    /// Fails when there is no such device.
    pub(crate) fn retain_stream(
        &self,
        device: DeviceId,
        stream: &Arc<CudaStream>,
    ) -> Result<(), AllocatorError> {
        let mut device = self.lock_device(device)?;
        if !device.memory.retains_stream(stream) {
            device.release_idle_streams();
            device.memory.retain_stream(stream);
        }
        Ok(())
    }
}

impl Device<CudaMemory> {
    /// Releases idle streams that have no other references, along with their cached memory. A stream whose memory
    /// cannot be released stays retained.
    fn release_idle_streams(&mut self) {
        if self.private.is_capturing() {
            return;
        }
        let context = Caller::capture_free(&self.history);
        let unused = self.memory.unused_streams();
        if unused.is_empty() || self.process_events(context).is_err() {
            return;
        }
        for stream in unused {
            if !self.memory.is_stream_done(stream) {
                continue;
            }
            for kind in [PoolKind::Large, PoolKind::Small] {
                // If a segment cannot be released, its stream stays retained.
                let _ = self.release_blocks_of(PoolId::of(0, kind), Some(stream), context);
            }
            if !self.has_memory_of(stream) {
                self.memory.release_stream(stream);
            }
        }
    }

    /// Returns whether any memory belongs to a stream or is used on it.
    fn has_memory_of(&self, stream: StreamId) -> bool {
        self.blocks.iter().any(|(_, block)| {
            let is_used =
                |uses: &crate::state::stream_uses::StreamUses| uses.streams().any(|other| other == stream);
            block.stream == stream || block.uses.as_deref().is_some_and(is_used)
        })
    }
}

//! The device of a replay: a simulated device on which events complete when they completed in the trace.

use crate::{DeviceError, DeviceMemory, MemoryInfo, SimulatedMemory};
use memtrack_model::event::StreamId;
use std::sync::{Arc, Mutex, PoisonError};

/// The first artificial stream. Each artificial stream stands for all streams that one block waits for.
const FIRST_STREAM: u64 = 1 << 63;

/// A simulated device. Clones share one device.
#[derive(Clone, Debug)]
pub(super) struct ReplayMemory {
    memory: SimulatedMemory,
    completed_slots: Arc<Mutex<Vec<bool>>>,
}

impl ReplayMemory {
    pub(super) fn new(total: u64, slots: u32) -> Self {
        let completed_slots = Arc::new(Mutex::new(vec![false; slots as usize]));
        Self { memory: SimulatedMemory::new(0, total), completed_slots }
    }

    /// Returns the artificial stream that the block in a slot waits for.
    pub(super) fn stream_of(slot: u32) -> StreamId {
        StreamId(FIRST_STREAM + u64::from(slot))
    }

    /// Marks a slot's artificial stream as done.
    pub(super) fn complete(&self, slot: u32) {
        self.lock_completed_slots()[slot as usize] = true;
    }

    fn lock_completed_slots(&self) -> std::sync::MutexGuard<'_, Vec<bool>> {
        self.completed_slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceMemory for ReplayMemory {
    type Event = StreamId;

    fn allocate(&self, size: u64) -> Result<u64, DeviceError> {
        self.memory.allocate(size)
    }

    fn release(&self, address: u64) -> Result<(), DeviceError> {
        self.memory.release(address)
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        self.memory.memory_info()
    }

    fn record_event(&self, stream: StreamId) -> Result<StreamId, DeviceError> {
        Ok(stream)
    }

    fn is_done(&self, event: &StreamId) -> Result<bool, DeviceError> {
        let slot = event.0.checked_sub(FIRST_STREAM).and_then(|slot| usize::try_from(slot).ok());
        Ok(slot.and_then(|slot| self.lock_completed_slots().get(slot).copied()).unwrap_or(true))
    }

    fn wait(&self, _event: &StreamId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn wait_for_stream(&self, _stream: StreamId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn reserve(&self, size: u64) -> Result<u64, DeviceError> {
        self.memory.reserve(size)
    }

    fn map(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.memory.map(address, size, page)
    }

    fn unmap(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.memory.unmap(address, size, page)
    }

    fn unreserve(&self, address: u64, size: u64) -> Result<(), DeviceError> {
        self.memory.unreserve(address, size)
    }
}

//! A device that fails once: nothing is lost, and no memory is reused too early.

use memtrack_core::allocator::{
    AllocatorError, Backend, BlockState, CachingAllocator, DeviceError, DeviceMemory, MemoryInfo, Settings,
    SimulatedMemory,
};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_tests::allocator::check_books;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MIB: u64 = 1 << 20;
const DEVICE: DeviceId = DeviceId(0);
const MAIN: StreamId = StreamId(0);

/// A simulated device that cannot record events on the stream `broken`; 0 means that no stream is broken.
#[derive(Clone, Debug)]
struct Failing {
    memory: SimulatedMemory,
    broken: Arc<AtomicU64>,
}

impl DeviceMemory for Failing {
    type Event = <SimulatedMemory as DeviceMemory>::Event;

    fn record_event(&self, stream: StreamId) -> Result<Self::Event, DeviceError> {
        if stream.0 == self.broken.load(Ordering::Relaxed) {
            return Err(DeviceError::Failed("the stream is broken".into()));
        }
        self.memory.record_event(stream)
    }

    fn allocate(&self, size: u64) -> Result<u64, DeviceError> {
        self.memory.allocate(size)
    }

    fn release(&self, address: u64) -> Result<(), DeviceError> {
        self.memory.release(address)
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        self.memory.memory_info()
    }

    fn is_done(&self, event: &Self::Event) -> Result<bool, DeviceError> {
        self.memory.is_done(event)
    }

    fn wait(&self, event: &Self::Event) -> Result<(), DeviceError> {
        self.memory.wait(event)
    }

    fn wait_for_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.memory.wait_for_stream(stream)
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

#[test]
fn a_free_whose_event_cannot_be_recorded_is_completed_later() {
    let device = Failing { memory: SimulatedMemory::new(0, 100 * MIB), broken: Arc::default() };
    let allocator = CachingAllocator::new([device.clone()], &Settings::default()).unwrap();
    let alloc = |size| allocator.caching_allocator_alloc(size, DEVICE, MAIN);
    let state = || allocator.memory_snapshot()[0].blocks[0].state;
    let block = alloc(MIB).unwrap();
    allocator.record_stream(block, StreamId(1));
    allocator.record_stream(block, StreamId(2));
    device.memory.set_events_ready(false);
    for broken in [1, 2] {
        device.broken.store(broken, Ordering::Relaxed);
        let failed = match broken {
            1 => allocator.caching_allocator_delete(block),
            _ => alloc(MIB).map(drop),
        };
        assert!(matches!(failed, Err(AllocatorError::Device(DeviceError::Failed(_)))), "{failed:?}");
        assert_eq!(state(), BlockState::ActivePendingFree);
        check_books(&allocator);
    }
    // Although the calls failed, the block counts as freed: a second free is refused.
    assert_eq!(allocator.caching_allocator_delete(block), Err(AllocatorError::InvalidPointer(block)));
    device.broken.store(0, Ordering::Relaxed);
    let other = alloc(MIB).unwrap();
    assert_ne!(other, block, "two streams use it");
    assert_eq!(state(), BlockState::ActivePendingFree);
    device.memory.set_events_ready(true);
    assert_eq!(alloc(MIB).unwrap(), block);
    check_books(&allocator);
}

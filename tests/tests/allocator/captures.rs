//! While a CUDA graph is captured, requests for the captured streams use a private pool, events are not queried, and cached
//! memory is not released. Deferred frees are completed after the capture.

use memtrack_core::allocator::{
    AllocatorError, Backend, BlockState, CachingAllocator, MempoolId, SegmentInfo, Settings, SimulatedMemory,
};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_tests::allocator::check_books;

const MIB: u64 = 1 << 20;
const DEVICE: DeviceId = DeviceId(0);
const MAIN: StreamId = StreamId(0);
const CAPTURED: StreamId = StreamId(1);
const SIDE: StreamId = StreamId(2);

struct World {
    allocator: CachingAllocator<SimulatedMemory>,
    memory: SimulatedMemory,
}

impl World {
    fn new(total: u64) -> Self {
        let memory = SimulatedMemory::new(0, total);
        let allocator = CachingAllocator::new([memory.clone()], &Settings::default()).unwrap();
        Self { allocator, memory }
    }

    fn alloc(&self, size: u64, stream: StreamId) -> u64 {
        self.allocator.caching_allocator_alloc(size, DEVICE, stream).unwrap()
    }

    fn free(&self, address: u64) {
        self.allocator.caching_allocator_delete(address).unwrap();
    }

    fn begin(&self, pool: MempoolId) {
        self.allocator.begin_allocate_to_pool(DEVICE, pool, |stream| stream == CAPTURED).unwrap();
    }

    fn end(&self, pool: MempoolId) {
        self.allocator.end_allocate_to_pool(DEVICE, pool).unwrap();
    }

    fn segment_of(&self, address: u64) -> SegmentInfo {
        let holds = |segment: &SegmentInfo| {
            (segment.address..segment.address + segment.total_size).contains(&address)
        };
        self.allocator.memory_snapshot().into_iter().find(holds).unwrap()
    }

    fn state_of(&self, address: u64) -> BlockState {
        let segment = self.segment_of(address);
        let holds = |block: &&memtrack_core::allocator::BlockInfo| {
            (block.address..block.address + block.size).contains(&address)
        };
        segment.blocks.iter().find(holds).unwrap().state
    }

    fn reserved(&self) -> u64 {
        self.allocator.memory_reserved(DEVICE).unwrap()
    }
}

#[test]
fn requests_for_captured_streams_use_a_private_pool() {
    let world = World::new(200 * MIB);
    let graph = world.allocator.capture_pool_id();
    assert_eq!((graph.1, world.allocator.graph_pool_handle().0), (0, 0));
    world.begin(graph);
    let (inside, outside) = (world.alloc(2 * MIB, CAPTURED), world.alloc(2 * MIB, MAIN));
    // Requests of other threads use the private pool, too: only the stream matters.
    let elsewhere =
        std::thread::scope(|scope| scope.spawn(|| world.alloc(2 * MIB, CAPTURED)).join().unwrap());
    world.end(graph);
    let after = world.alloc(2 * MIB, CAPTURED);
    let pools = [inside, elsewhere, outside, after].map(|address| world.segment_of(address).pool);
    assert_eq!(pools, [graph, graph, (0, 0), (0, 0)]);
    // The graph may be replayed: its memory stays reserved although no block is live.
    [inside, elsewhere, outside, after].into_iter().for_each(|address| world.free(address));
    world.allocator.empty_cache().unwrap();
    assert_eq!(world.reserved(), 20 * MIB);
    // A second capture shares the pool, and both must release it.
    world.begin(graph);
    world.end(graph);
    world.allocator.release_pool(DEVICE, graph).unwrap();
    world.allocator.empty_cache().unwrap();
    assert_eq!(world.reserved(), 20 * MIB);
    world.allocator.release_pool(DEVICE, graph).unwrap();
    world.allocator.empty_pool(DEVICE, graph).unwrap();
    assert_eq!(world.reserved(), 0);
    check_books(&world.allocator);
}

#[test]
fn wrong_captures_are_refused() {
    let world = World::new(200 * MIB);
    let graph = (5, 0);
    let begin = || world.allocator.begin_allocate_to_pool(DEVICE, graph, |_| true);
    assert_eq!(world.allocator.end_allocate_to_pool(DEVICE, graph), Err(AllocatorError::NotRouted(graph)));
    assert_eq!(world.allocator.release_pool(DEVICE, graph), Err(AllocatorError::PoolReleased(graph)));
    begin().unwrap();
    assert_eq!(begin(), Err(AllocatorError::AlreadyRouted(graph)));
    let error = begin().unwrap_err().to_string();
    assert!(error.starts_with("beginAllocateToPool: already recording to mempool_id"), "{error}");
    let kept = world.alloc(MIB, MAIN);
    world.end(graph);
    let error = world.allocator.end_allocate_to_pool(DEVICE, graph).unwrap_err().to_string();
    assert!(error.starts_with("endAllocatePool: not currently recording to mempool_id"), "{error}");
    world.allocator.release_pool(DEVICE, graph).unwrap();
    assert_eq!(begin(), Err(AllocatorError::PoolReleased(graph)), "released while a block is live");
    assert!(begin().unwrap_err().to_string().contains("INTERNAL ASSERT FAILED"));
    world.free(kept);
    check_books(&world.allocator);
}

#[test]
fn frees_wait_for_the_end_of_a_capture() {
    let world = World::new(200 * MIB);
    let graph = (1, 0);
    // Other streams use `before` before the capture, `both` before and during it, and `inside` only during it.
    let [before, both, inside] = [MIB; 3].map(|size| world.alloc(size, MAIN));
    world.allocator.record_stream(before, SIDE);
    world.allocator.record_stream(both, SIDE);
    world.begin(graph);
    world.allocator.record_stream(both, CAPTURED);
    world.allocator.record_stream(inside, CAPTURED);
    // A block that no other stream uses is free at once.
    let unshared = world.alloc(MIB, CAPTURED);
    world.free(unshared);
    assert_eq!(world.state_of(unshared), BlockState::Inactive);
    [before, both, inside].into_iter().for_each(|address| world.free(address));
    let states = || [before, both, inside].map(|address| world.state_of(address));
    let pending = BlockState::ActivePendingFree;
    // During the capture, neither a request nor `empty_cache` may query events.
    let more = world.alloc(MIB, CAPTURED);
    world.allocator.empty_cache().unwrap();
    assert_eq!(states(), [pending; 3]);
    assert_eq!(world.allocator.statistics(DEVICE).unwrap().num_sync_all_streams, 0);
    check_books(&world.allocator);

    world.end(graph);
    assert_eq!(states(), [pending; 3], "pending until the next request");
    world.memory.set_events_ready(false);
    world.alloc(MIB, SIDE);
    // When the capture ends, the captured streams have been joined, so the allocator waits only for the other streams.
    assert_eq!(states(), [pending, pending, BlockState::Inactive]);
    world.memory.set_events_ready(true);
    world.alloc(MIB, SIDE);
    assert_eq!(states(), [BlockState::Inactive; 3]);
    world.free(more);
    check_books(&world.allocator);
}

#[test]
fn events_are_not_queried_during_a_capture() {
    let world = World::new(200 * MIB);
    let block = world.alloc(MIB, MAIN);
    world.allocator.record_stream(block, SIDE);
    world.memory.set_events_ready(false);
    world.free(block);
    world.begin((1, 0));
    world.memory.set_events_ready(true);
    world.alloc(MIB, CAPTURED);
    assert_eq!(world.state_of(block), BlockState::ActivePendingFree);
    world.end((1, 0));
    world.alloc(MIB, SIDE);
    assert_eq!(world.state_of(block), BlockState::Inactive);
}

/// Observed with PyTorch 2.15 when the thread's current stream is not the captured stream.
#[test]
fn requests_for_other_streams_are_unchanged_during_a_capture() {
    let world = World::new(100 * MIB);
    let (block, cached) = (world.alloc(MIB, MAIN), world.alloc(60 * MIB, MAIN));
    world.allocator.record_stream(block, SIDE);
    world.memory.set_events_ready(false);
    [cached, block].into_iter().for_each(|address| world.free(address));
    world.begin((1, 0));
    world.memory.set_events_ready(true);
    world.alloc(MIB, CAPTURED);
    assert_eq!(world.state_of(block), BlockState::ActivePendingFree);
    world.alloc(MIB, SIDE);
    assert_eq!(world.state_of(block), BlockState::Inactive);
    // Cached memory is released for requests on other streams, too.
    world.alloc(70 * MIB, MAIN);
    assert_eq!(world.allocator.statistics(DEVICE).unwrap().num_alloc_retries, 1);
    world.end((1, 0));
    check_books(&world.allocator);
}

/// A free of a block that another stream uses waits for that stream, capture or not; a free of a block that captured streams use
/// waits for the end of the capture.
#[test]
fn stream_uses_recorded_during_a_capture_are_kept() {
    let world = World::new(100 * MIB);
    let [outside, inside] = [MIB; 2].map(|size| world.alloc(size, MAIN));
    world.begin((1, 0));
    world.allocator.record_stream(outside, SIDE);
    world.allocator.record_stream(inside, CAPTURED);
    world.memory.set_events_ready(false);
    [outside, inside].into_iter().for_each(|address| world.free(address));
    let states = || [outside, inside].map(|address| world.state_of(address));
    let pending = BlockState::ActivePendingFree;
    world.alloc(MIB, MAIN);
    assert_eq!(states(), [pending; 2]);
    world.end((1, 0));
    world.alloc(100, SIDE);
    assert_eq!(states(), [pending, BlockState::Inactive]);
    world.memory.set_events_ready(true);
    world.alloc(100, SIDE);
    assert_eq!(states(), [BlockState::Inactive; 2]);
    check_books(&world.allocator);
}

#[test]
fn requests_in_a_capture_release_no_cached_memory() {
    let world = World::new(100 * MIB);
    let cached = world.alloc(60 * MIB, MAIN);
    world.free(cached);
    world.begin((1, 0));
    let error = world.allocator.caching_allocator_alloc(60 * MIB, DEVICE, CAPTURED).unwrap_err();
    assert!(matches!(error, AllocatorError::OutOfMemory(_)), "{error}");
    let stats = world.allocator.statistics(DEVICE).unwrap();
    assert_eq!((stats.num_alloc_retries, stats.num_ooms, world.reserved()), (0, 1, 60 * MIB));
    world.end((1, 0));
    world.alloc(60 * MIB, CAPTURED);
    assert_eq!(world.allocator.statistics(DEVICE).unwrap().num_alloc_retries, 1);
    check_books(&world.allocator);
}

#[test]
fn a_reused_block_number_has_no_old_streams() {
    let world = World::new(100 * MIB);
    let block = world.alloc(30 * MIB, MAIN);
    world.begin((1, 0));
    world.allocator.record_stream(block, SIDE);
    world.end((1, 0));
    // The block is freed only after the capture, so the allocator waits for the stream that used it, as it does without a
    // capture.
    world.memory.set_events_ready(false);
    world.free(block);
    world.allocator.empty_cache().unwrap();
    assert_eq!(world.reserved(), 0);
    // The allocator gives the next block the same internal number as the first block, but must not consider it as used by the
    // streams that were recorded for the first block.
    let next = world.alloc(30 * MIB, MAIN);
    world.allocator.record_stream(next, SIDE);
    world.begin((2, 0));
    world.free(next);
    world.end((2, 0));
    world.alloc(MIB, MAIN);
    assert_eq!(world.state_of(next), BlockState::ActivePendingFree);
}

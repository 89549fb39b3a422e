//! On the mock driver the caching allocator does what it does on a simulated device: the same blocks, statistics and
//! texts, with plain segments and with expandable ones; and nothing is left behind.

use cudarc::driver::CudaContext;
use memtrack_core::allocator::{
    AllocatorError, BufferError, CachingAllocator, CudaMemory, DeviceBuffer, DeviceMemory, MemPoolOptions,
    Settings, SimulatedMemory,
};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_tests::allocator::check_books;
use memtrack_tests::mock_cuda;

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 512 * MIB;
const DEVICE: DeviceId = DeviceId(0);

/// What a step came to, without addresses.
type Answer = Result<u64, String>;

fn allocate<M: DeviceMemory>(allocator: &CachingAllocator<M>, size: u64, stream: u64) -> (u64, Answer) {
    match allocator.allocate(size, DEVICE, StreamId(stream)) {
        Ok(allocation) => (allocation.address, Ok(allocation.size)),
        Err(error @ AllocatorError::OutOfMemory(_)) => (0, Err(error.to_string())),
        Err(error) => panic!("{error}"),
    }
}

fn compare(settings: &str) {
    let settings = Settings::parse(settings).unwrap();
    let simulated = CachingAllocator::new([SimulatedMemory::new(0, TOTAL)], &settings).unwrap();
    let cuda = CachingAllocator::new([CudaMemory::new(0).unwrap()], &settings).unwrap();
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut pools = Vec::new();
    let mut failures = 0;
    let mut state = 1u64;
    for step in 0..3000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (choice, stream) = (state >> 59, state >> 40 & 1);
        // 0, 1 and 2 are streams that every driver has.
        match choice {
            0..17 => {
                let most = [4096, 2 * MIB, 24 * MIB, 80 * MIB][(state >> 50 & 3) as usize];
                let size = 1 + (state >> 10) % most;
                let (ours, theirs) = (allocate(&simulated, size, stream), allocate(&cuda, size, stream));
                assert_eq!(ours.1, theirs.1, "step {step}");
                if ours.1.is_ok() {
                    live.push((ours.0, theirs.0));
                } else {
                    failures += 1;
                }
            }
            17..30 if !live.is_empty() => {
                let (ours, theirs) = live.swap_remove((state >> 20) as usize % live.len());
                if choice == 17 {
                    simulated.record_stream(ours, StreamId(2));
                    cuda.record_stream(theirs, StreamId(2));
                }
                simulated.free(ours).unwrap();
                cuda.free(theirs).unwrap();
            }
            30 => {
                let options = MemPoolOptions { use_on_oom: step % 2 == 0, no_split: false };
                let ours = simulated.mem_pool(DEVICE, options).unwrap();
                let theirs = cuda.mem_pool(DEVICE, options).unwrap();
                let routes = (ours.use_mem_pool().unwrap(), theirs.use_mem_pool().unwrap());
                let (a, b) = (allocate(&simulated, 3 * MIB, stream), allocate(&cuda, 3 * MIB, stream));
                assert_eq!(a.1, b.1, "step {step}");
                drop(routes);
                live.extend(a.1.is_ok().then_some((a.0, b.0)));
                pools.push((ours, theirs));
                if pools.len() > 3 {
                    pools.remove(0);
                }
            }
            31 if step % 3 == 0 => {
                simulated.empty_cache().unwrap();
                cuda.empty_cache().unwrap();
            }
            _ => {}
        }
        assert_eq!(simulated.statistics(DEVICE), cuda.statistics(DEVICE), "step {step}");
        assert_eq!(simulated.mem_get_info(DEVICE), cuda.mem_get_info(DEVICE), "step {step}");
    }
    assert!(failures > 0, "memory runs out at times, or that is not compared");
    check_books(&cuda);
    // What is live when the allocator goes, goes with it.
    drop((pools, cuda));
    let after = CudaMemory::new(0).unwrap().memory_info().unwrap();
    assert_eq!(after.free, TOTAL);
}

/// Runs in a process of its own, which finds the mock driver.
#[test]
#[ignore = "is run by the test below"]
fn the_decisions_are_the_same() {
    for settings in ["", "expandable_segments:True", "max_split_size_mb:32,roundup_power2_divisions:4"] {
        compare(settings);
    }
    assert_eq!(CudaMemory::all().unwrap().len(), 1);
    let error = CudaMemory::new(7).unwrap_err();
    assert_eq!(error.to_string(), "there is no CUDA device 7; there are 1, counted from 0");
}

/// Runs in a process of its own, which finds the mock driver.
#[test]
#[ignore = "is run by the test below"]
fn buffers_are_copied_and_given_back() {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let allocator = CachingAllocator::new([CudaMemory::new(0).unwrap()], &Settings::default()).unwrap();
    let values: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let buffer = DeviceBuffer::from_host(&allocator, &stream, &values).unwrap();
    assert_eq!(buffer.to_host().unwrap(), values);
    let mut copy = DeviceBuffer::<f32>::zeros(&allocator, &stream, 1000).unwrap();
    assert_eq!(copy.to_host().unwrap(), [0.0; 1000]);
    // On another stream too.
    let other = context.new_stream().unwrap();
    other.memcpy_dtod(&buffer, &mut copy).unwrap();
    assert_eq!(copy.to_host().unwrap(), values);
    assert_eq!(allocator.memory_allocated(DEVICE), Ok(2 * 4096));
    let segments = allocator.memory_snapshot();
    assert_eq!(segments[0].stream, StreamId(stream.cu_stream() as u64));
    let address = buffer.address();
    drop((buffer, copy));
    assert_eq!(allocator.memory_allocated(DEVICE), Ok(0));
    assert_eq!(allocator.free(address), Err(AllocatorError::InvalidPointer(address)));
    let empty = DeviceBuffer::<u64>::zeros(&allocator, &stream, 0).unwrap();
    assert_eq!((empty.address(), empty.to_host().unwrap().len()), (0, 0));
    let error = DeviceBuffer::<u64>::zeros(&allocator, &stream, usize::MAX).unwrap_err();
    assert_eq!(error, BufferError::Allocator(AllocatorError::TooLarge));
}

#[test]
fn a_buffer_works_with_cudarc() {
    run_on_the_mock("buffers_are_copied_and_given_back");
}

#[test]
fn the_mock_driver_and_the_simulated_device_agree() {
    run_on_the_mock("the_decisions_are_the_same");
}

fn run_on_the_mock(test: &str) {
    mock_cuda::run_ignored_test(test, &[("MEMTRACK_MOCK_TOTAL", &TOTAL.to_string())]);
}

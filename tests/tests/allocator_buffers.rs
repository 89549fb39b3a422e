//! Typed memory of the caching allocator on the mock driver, as cudarc uses it.

use cudarc::driver::CudaContext;
use memtrack_core::allocator::{
    AllocatorError, BufferError, CachingAllocator, CudaMemory, DeviceBuffer, Settings,
};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_tests::mock_cuda;

const DEVICE: DeviceId = DeviceId(0);

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
    mock_cuda::run_ignored_test("buffers_are_copied_and_given_back", &[]);
}

//! Typed buffers of the caching allocator, used with cudarc on the mock driver.

#![allow(unsafe_code)]

use cudarc::driver::{CudaContext, sys};
use memtrack_core::allocator::{
    AllocatorError, Backend, BufferError, CachingAllocator, CudaMemory, DeviceBuffer, DeviceMemory, Settings,
};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_tests::mock_cuda;

const DEVICE: DeviceId = DeviceId(0);
const MIB: u64 = 1 << 20;
/// Settings for plain segments, and for expandable segments, whose pages are unmapped when their memory is released.
const SETTINGS: [&str; 2] = ["", "expandable_segments:True"];

fn allocator(settings: &str) -> CachingAllocator<CudaMemory> {
    CachingAllocator::new([CudaMemory::new(0).unwrap()], &Settings::parse(settings).unwrap()).unwrap()
}

/// Returns the number of streams (`what` 0) or events (1) that exist in the driver.
fn objects(what: i32) -> i64 {
    // SAFETY: the mock exports a function with this name and signature.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"memtrack_mock_objects".as_ptr());
        let found = if found.is_null() {
            let driver = libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW);
            libc::dlsym(driver, c"memtrack_mock_objects".as_ptr())
        } else {
            found
        };
        assert!(!found.is_null());
        std::mem::transmute::<*mut libc::c_void, extern "C" fn(i32) -> i64>(found)(what)
    }
}

/// Simulates a service that creates a stream for each request. Afterwards, memory is cached for streams that no longer exist.
#[test]
#[ignore = "is run by the test below"]
fn streams_come_and_go() {
    let context = CudaContext::new(0).unwrap();
    for settings in SETTINGS {
        let allocator = allocator(settings);
        for request in 0..200_u64 {
            let stream = context.new_stream().unwrap();
            let large = DeviceBuffer::<u8>::zeros(&allocator, &stream, (3 * MIB) as usize).unwrap();
            let small = DeviceBuffer::<u8>::zeros(&allocator, &stream, 1000).unwrap();
            if request % 3 == 0 {
                stream.synchronize().unwrap();
            }
            // Another stream uses the memory, too, and is destroyed before the memory is freed.
            let other = context.new_stream().unwrap();
            large.record_stream(&other);
            let copy = other.clone_dtoh(&small).unwrap();
            assert_eq!(copy, [0; 1000]);
            drop(other);
            if request % 2 == 0 {
                drop(stream);
                drop((large, small));
            } else {
                drop((large, small));
                drop(stream);
            }
            if request % 7 == 0 {
                allocator.empty_cache().unwrap();
            }
            assert!(objects(0) < 8, "{settings:?}: {} streams", objects(0));
        }
        let reserved = allocator.memory_reserved(DEVICE).unwrap();
        assert!(reserved <= 64 * MIB, "{settings:?}: {reserved} bytes");
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(DEVICE), Ok(0), "{settings:?}");
        drop(allocator);
        assert_eq!((objects(0), objects(1)), (0, 0), "{settings:?}: streams and events");
    }
}

#[test]
fn memory_of_destroyed_streams_is_released() {
    mock_cuda::run_ignored_test(streams_come_and_go, &[]);
    // With events that complete only after three queries.
    mock_cuda::run_ignored_test(streams_come_and_go, &[("MEMTRACK_MOCK_EVENT_QUERIES", "3")]);
}

/// Pages that queued work uses stay mapped until the work is done: otherwise the mock would abort the process.
#[test]
#[ignore = "is run by the test below"]
fn work_is_queued_when_the_allocator_is_dropped() {
    let context = CudaContext::new(0).unwrap();
    for settings in SETTINGS {
        let (stream, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let (memory, kept) = (allocator(settings), allocator(settings));
        let size = (30 * MIB) as usize;
        let freed = DeviceBuffer::<u8>::zeros(&memory, &stream, size).unwrap();
        let mut shared = DeviceBuffer::<u8>::zeros(&kept, &other, size).unwrap();
        shared.record_stream(&stream);
        stream.memcpy_dtod(&freed, &mut shared).unwrap();
        stream.memset_zeros(&mut shared).unwrap();
        drop((freed, memory));
        // Events of this allocator are still pending when it is dropped.
        drop((shared, kept));
        drop((stream, other));
        assert_eq!((objects(0), objects(1)), (0, 0), "{settings:?}: streams and events");
        assert_eq!(CudaMemory::new(0).unwrap().memory_info().unwrap().free_bytes, 16 << 30, "{settings:?}");
    }
}

/// A program that identifies streams by their handles must keep the streams alive. If the driver reports that a stream was
/// destroyed, the allocator waits for the whole device.
#[test]
#[ignore = "is run by the test below"]
fn handles_of_destroyed_streams() {
    let context = CudaContext::new(0).unwrap();
    for settings in SETTINGS {
        let allocator = allocator(settings);
        let (stream, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let [owner, user] = [&stream, &other].map(|stream| StreamId(stream.cu_stream() as u64));
        let block = allocator.caching_allocator_alloc(30 * MIB, DEVICE, owner).unwrap();
        allocator.record_stream(block, user);
        // SAFETY: the memory is allocated.
        unsafe {
            sys::cuMemsetD8Async(block, 7, 4096, stream.cu_stream());
            sys::cuMemsetD8Async(block, 7, 4096, other.cu_stream());
        }
        drop((stream, other));
        allocator.free(block).unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(DEVICE), Ok(0), "{settings:?}");
        allocator.caching_allocator_alloc(30 * MIB, DEVICE, StreamId(0)).unwrap();
    }
}

#[test]
fn memory_used_by_queued_work_stays_mapped() {
    mock_cuda::run_ignored_test(work_is_queued_when_the_allocator_is_dropped, &[]);
    mock_cuda::run_ignored_test(handles_of_destroyed_streams, &[]);
}

/// Runs in its own process, which loads the mock driver.
#[test]
#[ignore = "is run by the test below"]
fn buffers_are_copied_and_freed() {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let allocator = CachingAllocator::new([CudaMemory::new(0).unwrap()], &Settings::default()).unwrap();
    let values: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let buffer = DeviceBuffer::from_host(&allocator, &stream, &values).unwrap();
    assert_eq!(buffer.to_host().unwrap(), values);
    let mut copy = DeviceBuffer::<f32>::zeros(&allocator, &stream, 1000).unwrap();
    assert_eq!(copy.to_host().unwrap(), [0.0; 1000]);
    // A copy on another stream works, too.
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
    mock_cuda::run_ignored_test(buffers_are_copied_and_freed, &[]);
}

//! The mock driver aborts a program that frees memory while queued work uses it, and detects destroyed streams: errors that the
//! real driver detects only sometimes.
#![allow(unsafe_code)]

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaStream};
use memtrack_core::allocator::{CudaMemory, DeviceMemory};
use memtrack_tests::{child, mock_cuda};
use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::sync::Arc;

const PAGE: u64 = 2 << 20;

/// Runs one of the tests below in a separate process, which may fail.
fn run(test: impl Fn()) -> Output {
    let drivers = mock_cuda::driver_dir();
    mock_cuda::find_driver(&mut child::this_program(test), drivers.path()).output().unwrap()
}

/// Maps a page, and queues work on a stream that fills part of the page.
fn a_page_in_use() -> (CudaMemory, u64, Arc<CudaStream>) {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let memory = CudaMemory::new(0).unwrap();
    let address = memory.reserve(4 * PAGE).unwrap();
    memory.map(address, PAGE, PAGE).unwrap();
    // SAFETY: the page was mapped.
    let queued = unsafe { sys::cuMemsetD8Async(address + 512, 7, 512, stream.cu_stream()) };
    assert_eq!(queued, CUresult::CUDA_SUCCESS);
    (memory, address, stream)
}

#[test]
#[ignore = "is run by the test below, and ends the process"]
fn unmapping_at_once() {
    let (memory, address, _stream) = a_page_in_use();
    let _ = memory.unmap(address, PAGE, PAGE);
}

#[test]
#[ignore = "is run by the test below, and ends the process"]
fn unmapping_after_another_stream() {
    let (memory, address, stream) = a_page_in_use();
    stream.context().new_stream().unwrap().synchronize().unwrap();
    let _ = memory.unmap(address, PAGE, PAGE);
}

#[test]
#[ignore = "is run by the test below, and ends the process"]
fn freeing_on_another_stream() {
    let context = CudaContext::new(0).unwrap();
    let (user, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let mut address = 0;
    // SAFETY: the memory is allocated when the stream uses it.
    unsafe {
        assert_eq!(sys::cuMemAllocAsync(&mut address, 4096, user.cu_stream()), CUresult::CUDA_SUCCESS);
        assert_eq!(sys::cuMemsetD8Async(address, 7, 4096, user.cu_stream()), CUresult::CUDA_SUCCESS);
        sys::cuMemFreeAsync(address, other.cu_stream());
    }
}

#[test]
fn freeing_memory_that_queued_work_uses_aborts_the_program() {
    for (output, call) in [
        (run(unmapping_at_once), "cuMemUnmap"),
        (run(unmapping_after_another_stream), "cuMemUnmap"),
        (run(freeing_on_another_stream), "cuMemFreeAsync"),
    ] {
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
        assert!(text.contains(&format!("mock CUDA driver: {call} of ")), "{text}");
    }
}

#[test]
#[ignore = "is run by the test below"]
fn every_way_to_wait() {
    let waits: [fn(&Arc<CudaStream>); 5] = [
        |stream| stream.synchronize().unwrap(),
        |stream| stream.context().synchronize().unwrap(),
        |stream| stream.record_event(None).unwrap().synchronize().unwrap(),
        // Waits through another stream that joins this one.
        |stream| {
            let other = stream.context().new_stream().unwrap();
            other.join(stream).unwrap();
            other.synchronize().unwrap();
        },
        |stream| {
            // SAFETY: the stream exists.
            assert_eq!(unsafe { sys::cuStreamQuery(stream.cu_stream()) }, CUresult::CUDA_SUCCESS);
        },
    ];
    for wait in waits {
        let (memory, address, stream) = a_page_in_use();
        wait(&stream);
        memory.unmap(address, PAGE, PAGE).unwrap();
        memory.unreserve(address, 4 * PAGE).unwrap();
    }
    // Work that uses other memory does not prevent an unmap.
    let (memory, address, _stream) = a_page_in_use();
    memory.map(address + PAGE, PAGE, PAGE).unwrap();
    memory.unmap(address + PAGE, PAGE, PAGE).unwrap();
    drop(memory);
}

#[test]
#[ignore = "is run by the test below"]
fn a_destroyed_stream() {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let handle = stream.cu_stream();
    drop(stream);
    let mut address = 0;
    // SAFETY: the mock detects destroyed streams.
    let results = unsafe {
        [
            sys::cuStreamSynchronize(handle),
            sys::cuStreamQuery(handle),
            sys::cuMemAllocAsync(&mut address, 4096, handle),
            sys::cuStreamDestroy_v2(handle),
        ]
    };
    assert_eq!(results, [CUresult::CUDA_ERROR_INVALID_HANDLE; 4]);
}

#[test]
fn waiting_allows_frees_and_destroyed_streams_are_invalid() {
    mock_cuda::run_ignored_test(every_way_to_wait, &[]);
    mock_cuda::run_ignored_test(a_destroyed_stream, &[]);
}

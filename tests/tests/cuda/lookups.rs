//! The ways in which programs look up the driver's functions: each way leads through the hook exactly once.

use crate::books::{assert_agrees_with_mock, events, snapshot, start};
use crate::client::{self, call, call_at};
use memtrack_core::event::{Action, DeviceId};
use memtrack_tests::mock_cuda::run_ignored_test;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

/// Functions found by `cuGetProcAddress` are hooked too, with separate functions for legacy and per-thread streams.
#[test]
#[ignore = "is run by the test below"]
pub fn by_procedure() {
    client::begin(0);
    start();
    let (mut one, mut two, mut three) = (0, 0, 0);
    let legacy = client::procedure(c"cuMemAllocAsync", 12080, 0);
    let per_thread = client::procedure(c"cuMemAllocAsync", 12080, 2);
    assert_ne!(legacy, per_thread);
    assert_eq!(legacy, client::procedure(c"cuMemAllocAsync", 12080, 0));
    call_at!(legacy, &mut one => *mut u64, 100 => usize, 0 => u64).expect("memory");
    call_at!(per_thread, &mut two => *mut u64, 200 => usize, 0 => u64).expect("memory");
    let plain = client::procedure(c"cuMemAlloc", 12080, 0);
    call_at!(plain, &mut three => *mut u64, 300 => usize).expect("memory");
    assert_agrees_with_mock(0);
    let stream_of = |address: u64| {
        snapshot().blocks.iter().find(|block| block.address == address).map(|block| block.stream.0)
    };
    assert_eq!((stream_of(one), stream_of(two), stream_of(three)), (Some(0), Some(2), Some(0)));
    let free = client::procedure(c"cuMemFreeAsync", 12080, 2);
    call_at!(free, one => u64, 0 => u64).expect("it succeeds");
    call_at!(free, two => u64, 0 => u64).expect("it succeeds");
    call_at!(client::procedure(c"cuMemFree", 12080, 0), three => u64).expect("it succeeds");
    assert_agrees_with_mock(0);

    // The first version of `cuGetProcAddress` finds the same functions; it also finds itself and the second version.
    assert_eq!(plain, client::procedure_v1(c"cuMemAlloc", 11040, 0));
    assert_eq!(per_thread, client::procedure_v1(c"cuMemAllocAsync", 11040, 2));
    assert_eq!(client::symbol("cuGetProcAddress"), client::procedure_v1(c"cuGetProcAddress", 11040, 0));
    assert_eq!(client::symbol("cuGetProcAddress_v2"), client::procedure_v1(c"cuGetProcAddress", 12000, 0));
    assert!(call!(cuGetProcAddress(c"cuNothing".as_ptr() => *const c_char, &mut null_mut() => *mut *mut c_void, 11040 => i32, 0 => u64)).is_err());

    // A pool that the program created, and the per-thread stream.
    let (properties, mut pool) = (client::properties(0), 0);
    call!(cuMemPoolCreate(&mut pool => *mut u64, properties.as_ptr().cast() => *const c_void))
        .expect("a pool");
    let from_pool = client::procedure_v1(c"cuMemAllocFromPoolAsync", 11040, 2);
    assert_ne!(from_pool, client::procedure_v1(c"cuMemAllocFromPoolAsync", 11040, 0));
    call_at!(from_pool, &mut one => *mut u64, 400 => usize, pool => u64, 0 => u64).expect("memory");
    let stream = client::stream();
    call!(cuMemAllocFromPoolAsync_ptsz(&mut two => *mut u64, 500 => usize, pool => u64, stream => u64))
        .expect("memory");
    assert_agrees_with_mock(0);
    assert_eq!((stream_of(one), stream_of(two)), (Some(2), Some(stream)));
    call_at!(free, one => u64, 0 => u64).expect("it succeeds");
    call_at!(free, two => u64, stream => u64).expect("it succeeds");
    assert_agrees_with_mock(0);
    memtrack_core::stop();
}

/// The mock allocates pitched memory by calling `cuMemAlloc_v2` through the hook; its device has 1 MiB of memory.
#[test]
#[ignore = "is run by the test below"]
fn nested() {
    // Global scope: the driver must resolve the same symbols as the process.
    // SAFETY: the name is a C string, and the library may be opened at any time.
    let everywhere = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!everywhere.is_null());
    client::begin(0);
    start();
    let pitched = |height: usize| {
        let (mut address, mut pitch) = (0, 0);
        call!(cuMemAllocPitch_v2(&mut address => *mut u64, &mut pitch => *mut usize, 100 => usize, height => usize, 4 => u32))
            .map(|()| address)
    };
    let address = pitched(7).expect("memory");
    assert_eq!((client::count(0, 0, 0), client::count(0, 1, 0)), (1, 0), "the nested call allocated it");
    assert_agrees_with_mock(0);
    let count = |action| events(&snapshot(), DeviceId(0), action);
    assert_eq!((count(Action::SegmentAlloc), count(Action::Alloc), count(Action::Free)), (1, 1, 0));
    // Running out of memory is recorded once, and the thread's next call is not nested.
    assert_eq!(pitched(1 << 20), Err(client::OUT_OF_MEMORY));
    assert_eq!(count(Action::Oom), 1);
    client::alloc(1000).expect("memory");
    client::free(address).expect("it succeeds");
    assert_agrees_with_mock(0);
    assert_eq!((count(Action::SegmentAlloc), count(Action::Alloc), count(Action::Free)), (2, 2, 1));
    assert_eq!(memtrack_core::cuda::unknown_frees(), 0);
    memtrack_core::stop();
}

/// The driver is opened after the recording began. Blocks that were allocated before a recording are unknown to it, and their
/// frees are only counted.
#[test]
#[ignore = "is run by the test below"]
fn late() {
    start();
    client::begin(0);
    let kept = client::alloc(100).expect("memory");
    assert_agrees_with_mock(0);
    let recording = memtrack_core::stop();
    assert_eq!(recording.snapshot().blocks.len(), 1);
    let between = client::alloc(200).expect("memory");
    start();
    client::free(kept).expect("it succeeds");
    client::free(between).expect("it succeeds");
    let now = snapshot();
    assert!(now.events.is_empty() && now.blocks.is_empty());
    assert_eq!(memtrack_core::cuda::unknown_frees(), 2);
    client::alloc(300).expect("memory");
    assert_agrees_with_mock(0);
    memtrack_core::stop();
}

#[test]
fn functions_found_by_the_drivers_lookup_are_hooked() {
    run_ignored_test(by_procedure, &[]);
}

#[test]
fn nested_calls_of_the_driver_are_part_of_the_outer_call() {
    run_ignored_test(nested, &[("MEMTRACK_MOCK_NESTED", "1"), ("MEMTRACK_MOCK_TOTAL", "1048576")]);
}

#[test]
fn a_driver_loaded_late_is_hooked_and_earlier_blocks_are_unknown() {
    run_ignored_test(late, &[]);
}

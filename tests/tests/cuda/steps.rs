//! One thread, one device: after every call, the recording agrees with the driver's totals.

use crate::books::{assert_agrees_with_mock, events, live_and_segment_bytes, snapshot, start};
use crate::client::{self, call};
use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::mock_cuda::run_ignored_test;
use std::ffi::c_void;

/// Every hooked way to allocate memory, step by step.
#[test]
#[ignore = "is run by the test below"]
pub fn every_kind() {
    client::begin(0);
    start();
    let plain = client::alloc(1000).expect("memory");
    assert_agrees_with_mock(0);
    let (mut pitched, mut pitch) = (0, 0);
    call!(cuMemAllocPitch_v2(&mut pitched => *mut u64, &mut pitch => *mut usize, 100 => usize, 7 => usize, 4 => u32))
        .expect("memory");
    assert_agrees_with_mock(0);
    let mut managed = 0;
    call!(cuMemAllocManaged(&mut managed => *mut u64, 4096 => usize, 1 => u32)).expect("memory");
    assert_agrees_with_mock(0);
    let stream = client::stream();
    let pooled = client::alloc_async(1 << 20, stream).expect("memory");
    assert_agrees_with_mock(0);
    let row = snapshot().blocks.iter().find(|block| block.address == pooled).copied().expect("it is live");
    assert_eq!(row.stream, StreamId(stream));
    let properties = client::properties(0);
    let (mut pool, mut from_pool) = (0, 0);
    call!(cuMemPoolCreate(&mut pool => *mut u64, properties.as_ptr().cast() => *const c_void))
        .expect("a pool");
    call!(cuMemAllocFromPoolAsync(&mut from_pool => *mut u64, 5000 => usize, pool => u64, stream => u64))
        .expect("memory");
    assert_agrees_with_mock(0);
    let descriptor = [64_u64, 32, 0x20 | 4 << 32];
    let mut flat = 0;
    call!(cuArrayCreate_v2(&mut flat => *mut u64, descriptor.as_ptr().cast() => *const c_void))
        .expect("an array");
    assert_agrees_with_mock(0);
    let solid = [16_u64, 8, 4, 0x10 | 2 << 32, 0];
    let (mut cube, mut mipmapped) = (0, 0);
    call!(cuArray3DCreate_v2(&mut cube => *mut u64, solid.as_ptr().cast() => *const c_void))
        .expect("an array");
    assert_agrees_with_mock(0);
    call!(cuMipmappedArrayCreate(&mut mipmapped => *mut u64, solid.as_ptr().cast() => *const c_void, 3 => u32))
        .expect("an array");
    assert_agrees_with_mock(0);
    let pinned = client::host_alloc(8192).expect("memory");
    assert_agrees_with_mock(-2);
    let mut plain_host = 0;
    call!(cuMemAllocHost_v2(&mut plain_host => *mut u64, 4096 => usize)).expect("memory");
    assert_agrees_with_mock(-2);
    let page = vec![0_u8; 1 << 16];
    let registered = page.as_ptr() as u64;
    call!(cuMemHostRegister_v2(registered => u64, page.len() => usize, 0 => u32)).expect("it can be pinned");
    assert_eq!(live_and_segment_bytes(&snapshot(), DeviceId::PINNED).0, client::live_bytes(-2));

    call!(cuMemHostUnregister(registered => u64)).expect("it succeeds");
    client::host_free(plain_host).expect("it succeeds");
    client::host_free(pinned).expect("it succeeds");
    assert_agrees_with_mock(-2);
    call!(cuMipmappedArrayDestroy(mipmapped => u64)).expect("it succeeds");
    call!(cuArrayDestroy(cube => u64)).expect("it succeeds");
    call!(cuArrayDestroy(flat => u64)).expect("it succeeds");
    assert_agrees_with_mock(0);
    client::free_async(from_pool, stream).expect("it succeeds");
    call!(cuMemPoolDestroy(pool => u64)).expect("it succeeds");
    client::free_async(pooled, stream).expect("it succeeds");
    assert_agrees_with_mock(0);
    for address in [managed, pitched, plain] {
        client::free(address).expect("it succeeds");
        assert_agrees_with_mock(0);
    }
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    assert!(snapshot.blocks.is_empty() && snapshot.segments.is_empty());
    for device in [DeviceId(0), DeviceId::PINNED] {
        let count = |action| events(snapshot, device, action);
        assert!(count(Action::Alloc) > 0);
        assert_eq!(count(Action::Alloc), count(Action::Free));
        assert_eq!(count(Action::SegmentAlloc), count(Action::SegmentFree));
        assert_eq!(count(Action::Alloc), count(Action::SegmentAlloc));
    }
    assert_eq!(memtrack_core::cuda::unknown_frees(), 0);
}

#[inline(never)]
fn the_function_that_allocates() -> u64 {
    client::alloc(1 << 20).expect("memory")
}

#[inline(never)]
fn the_function_that_frees(address: u64) {
    client::free(address).expect("it succeeds");
}

/// The stack and the scope of a block name the caller.
#[test]
#[ignore = "is run by the test below"]
fn stacks() {
    client::begin(0);
    start();
    let address = {
        let _module = memtrack_core::scope::module("encoder");
        let _operator = memtrack_core::scope::operator("matmul");
        the_function_that_allocates()
    };
    let snapshot = memtrack_core::snapshot().expect("something is monitored");
    let block = snapshot.blocks.iter().find(|block| block.address == address).expect("it is live");
    let mut symbols = Symbolizer::of(&snapshot);
    let names: Vec<String> = snapshot
        .stacks
        .get(block.stack)
        .iter()
        .flat_map(|&address| symbols.frames(address).to_vec())
        .map(|frame| frame.function.to_string())
        .collect();
    assert!(names.iter().any(|name| name.ends_with("the_function_that_allocates")), "{names:#?}");
    assert!(names.iter().any(|name| name.ends_with("steps::stacks")), "{names:#?}");
    assert!(names.iter().any(|name| name.ends_with("thread_start")), "{names:#?}");
    let place = snapshot.scopes.place(block.scope);
    assert!(place.operator_name().is_some_and(|name| name.contains("encoder") && name.ends_with("matmul")));
    let top = memtrack_core::analysis::top::top(
        &snapshot,
        memtrack_core::By::Stack,
        DeviceId(0),
        &Default::default(),
    );
    assert!(top.rows[0].name.ends_with("client::alloc"), "{}", top.rows[0].name);
    the_function_that_frees(address);
    memtrack_core::stop();
}

/// Destroying a context frees its memory.
#[test]
#[ignore = "is run by the test below"]
pub fn teardown() {
    let primary = client::begin(0);
    start();
    let stream = client::stream();
    client::alloc(1000).expect("memory");
    let pooled = client::alloc_async(5000, stream).expect("memory");
    client::free_async(pooled, stream).expect("it succeeds");
    let mut context = 0;
    call!(cuCtxCreate_v2(&mut context => *mut u64, 0 => u32, 0 => i32)).expect("a context");
    client::alloc(2000).expect("memory");
    client::host_alloc(3000).expect("memory");
    assert_agrees_with_mock(0);
    call!(cuCtxDestroy_v2(context => u64)).expect("it succeeds");
    assert_agrees_with_mock(0);
    assert_agrees_with_mock(-2);
    assert!(client::live_bytes(0) > 0);
    // The context is retained twice: the first release frees nothing.
    call!(cuCtxSetCurrent(primary => u64)).expect("it can be current");
    client::begin(0);
    call!(cuDevicePrimaryCtxRelease_v2(0 => i32)).expect("it is retained");
    assert_agrees_with_mock(0);
    assert!(client::live_bytes(0) > 0);
    call!(cuDevicePrimaryCtxRelease_v2(0 => i32)).expect("it is retained");
    assert_agrees_with_mock(0);
    assert_eq!(client::live_bytes(0), 0);
    client::begin(0);
    client::alloc(4000).expect("memory");
    call!(cuDevicePrimaryCtxReset_v2(0 => i32)).expect("it can be reset");
    assert_agrees_with_mock(0);
    assert_eq!(client::live_bytes(0), 0);
    memtrack_core::stop();
}

/// Physical memory counts while it is mapped, and one call may unmap several mappings.
#[test]
#[ignore = "is run by the test below"]
pub fn unmapping() {
    const SIZE: usize = 2 << 20;
    client::begin(0);
    start();
    let properties = client::properties(0);
    let mut range = 0;
    call!(cuMemAddressReserve(&mut range => *mut u64, 4 * SIZE => usize, 0 => usize, 0 => u64, 0 => u64))
        .expect("addresses");
    for place in 0..3_u64 {
        let mut handle = 0;
        call!(cuMemCreate(&mut handle => *mut u64, SIZE => usize, properties.as_ptr().cast() => *const c_void, 0 => u64))
            .expect("memory");
        let address = range + place * SIZE as u64;
        call!(cuMemMap(address => u64, SIZE => usize, 0 => usize, handle => u64, 0 => u64)).expect("it fits");
        call!(cuMemRelease(handle => u64)).expect("it succeeds");
        assert_agrees_with_mock(0);
    }
    call!(cuMemUnmap(range => u64, 2 * SIZE => usize)).expect("both are mapped");
    assert_agrees_with_mock(0);
    let now = snapshot();
    assert_eq!(events(&now, DeviceId(0), Action::SegmentMap), 3);
    assert_eq!(events(&now, DeviceId(0), Action::SegmentUnmap), 2);
    assert!(now.segments.iter().all(|segment| segment.is_expandable), "the range has room for more");
    call!(cuMemUnmap(range + 2 * SIZE as u64 => u64, SIZE => usize)).expect("it is mapped");
    call!(cuMemAddressFree(range => u64, 4 * SIZE => usize)).expect("it succeeds");
    assert_agrees_with_mock(0);

    // A range that one mapping fills cannot grow: it is a plain segment.
    let mut handle = 0;
    call!(cuMemAddressReserve(&mut range => *mut u64, SIZE => usize, 0 => usize, 0 => u64, 0 => u64))
        .expect("addresses");
    call!(cuMemCreate(&mut handle => *mut u64, SIZE => usize, properties.as_ptr().cast() => *const c_void, 0 => u64))
        .expect("memory");
    call!(cuMemMap(range => u64, SIZE => usize, 0 => usize, handle => u64, 0 => u64)).expect("it fits");
    assert_agrees_with_mock(0);
    let now = snapshot();
    assert!(now.segments.iter().any(|segment| segment.address == range && !segment.is_expandable));
    call!(cuMemUnmap(range => u64, SIZE => usize)).expect("it is mapped");
    call!(cuMemRelease(handle => u64)).expect("it succeeds");
    assert_agrees_with_mock(0);
    memtrack_core::stop();
}

#[test]
fn every_kind_of_memory_is_recorded_at_every_step() {
    run_ignored_test(every_kind, &[]);
    run_ignored_test(every_kind, &[("MEMTRACK_MOCK_POOL_CHUNK", "1000000")]);
}

#[test]
fn stacks_and_scopes_name_the_caller() {
    run_ignored_test(stacks, &[]);
}

#[test]
fn destroying_a_context_frees_its_memory() {
    run_ignored_test(teardown, &[]);
}

#[test]
fn memory_counts_while_it_is_mapped() {
    run_ignored_test(unmapping, &[]);
}

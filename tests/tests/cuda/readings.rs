//! The driver readings in the recording: each part compared with the mock's settings and with the counters of the pools.

use crate::books::{assert_agrees_with_mock, live_and_segment_bytes, snapshot, start};
use crate::client::{self, OUT_OF_MEMORY, call};
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::{DriverReading, ReadingMoment, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::mock_cuda::run_ignored_test;
use memtrack_tests::time;
use std::ffi::c_void;
use std::time::Instant;

/// The bytes that other processes use, and the bytes that each context uses, as the tests configure them in the mock.
const OTHERS: u64 = 1 << 30;
const CONTEXT: u64 = 300 << 20;
/// The granularity in which the mock's pools grow.
const CHUNK: u64 = 32 << 20;
const MIB: u64 = 1 << 20;

#[track_caller]
fn reading(snapshot: &Snapshot, moment: ReadingMoment) -> DriverReading {
    *snapshot.driver.iter().find(|reading| reading.moment == moment).expect("there is one")
}

/// Takes a snapshot, and returns the newest reading in it: used, tracked, cached and untracked bytes.
#[track_caller]
fn parts() -> [u64; 4] {
    let now = reading(&snapshot(), ReadingMoment::Last);
    [now.used_bytes(), now.tracked_bytes, now.cached_bytes(), now.untracked_bytes()]
}

/// Queries an attribute of a pool from the driver.
fn attribute(pool: u64, number: i32) -> u64 {
    let mut value = 0_u64;
    call!(cuMemPoolGetAttribute(pool => u64, number => i32, (&raw mut value).cast() => *mut c_void))
        .expect("it has one");
    value
}

/// While the program allocates and frees each kind of memory, the readings divide the device's used memory correctly into
/// tracked, cached and untracked bytes.
#[test]
#[ignore = "is run by the test below"]
fn every_part() {
    let context = client::begin(0);
    let old = client::alloc(7 * MIB as usize).expect("memory");
    start();
    // Memory allocated before the recording is untracked: it may belong to another process.
    let base = OTHERS + CONTEXT + 7 * MIB;
    assert_eq!(parts(), [base, 0, 0, base]);
    let plain = client::alloc(10 * MIB as usize).expect("memory");
    assert_eq!(parts(), [base + 10 * MIB, 10 * MIB, 0, base]);

    let stream = client::stream();
    let pooled = client::alloc_async(5 * MIB as usize, stream).expect("memory");
    assert_eq!(parts(), [base + 10 * MIB + CHUNK, 15 * MIB, CHUNK - 5 * MIB, base]);
    let properties = client::properties(0);
    let (mut pool, mut block) = (0, 0);
    call!(cuMemPoolCreate(&mut pool => *mut u64, properties.as_ptr().cast() => *const c_void))
        .expect("a pool");
    call!(cuMemAllocFromPoolAsync(&mut block => *mut u64, 3 * MIB as usize => usize, pool => u64, stream => u64))
        .expect("memory");
    assert_eq!(parts(), [base + 10 * MIB + 2 * CHUNK, 18 * MIB, 2 * CHUNK - 8 * MIB, base]);
    client::free_async(pooled, stream).expect("it succeeds");

    // The pools' counters include the bytes in use, which distinguish a leak from a cache.
    let now = snapshot();
    let last = reading(&now, ReadingMoment::Last);
    let mut default = 0;
    call!(cuDeviceGetDefaultMemPool(&mut default => *mut u64, 0 => i32)).expect("it has one");
    let both = |number| attribute(default, number) + attribute(pool, number);
    assert_eq!(last.pools, 2);
    assert_eq!((last.pool_reserved_bytes, last.pool_reserved_peak_bytes), (both(5), both(6)));
    assert_eq!((last.pool_used_bytes, last.pool_used_peak_bytes), (both(7), both(8)));
    assert_eq!((last.pool_used_bytes, last.pool_used_peak_bytes), (3 * MIB, 8 * MIB));

    // A conversion to PyTorch's format keeps the reading.
    let converted = now.as_pytorch(&mut Symbolizer::of(&now));
    let of_file = reading(&converted, ReadingMoment::Last);
    assert_eq!(DriverReading { ticks: last.ticks, ..of_file }, last);

    // A destroyed pool is not queried.
    client::free_async(block, stream).expect("it succeeds");
    call!(cuMemPoolDestroy(pool => u64)).expect("it succeeds");
    let without = reading(&snapshot(), ReadingMoment::Last);
    assert_eq!((without.pools, without.pool_used_bytes), (1, 0));
    client::free(plain).expect("it succeeds");
    client::free(old).expect("it succeeds");
    assert_agrees_with_mock(0);

    // On a thread without a context, the driver is not queried, and the capture mode is unchanged.
    let mut mode = 0;
    call!(cuThreadExchangeStreamCaptureMode(&mut mode => *mut i32)).expect("it is known");
    assert_eq!(mode, 0);
    call!(cuCtxSetCurrent(0 => u64)).expect("none can be current");
    let before = reading(&snapshot(), ReadingMoment::Last);
    assert_eq!(before, reading(&snapshot(), ReadingMoment::Last));
    call!(cuCtxSetCurrent(context => u64)).expect("it can be current");

    // The release of the context is the last opportunity for a reading.
    call!(cuDevicePrimaryCtxRelease_v2(0 => i32)).expect("it is retained");
    let recording = memtrack_core::stop();
    let end = recording.snapshot();
    let last = reading(end, ReadingMoment::Last);
    assert!(last.ticks > before.ticks);
    assert_eq!([last.used_bytes(), last.tracked_bytes], [OTHERS + CONTEXT + CHUNK, 0]);
    assert_eq!(reading(end, ReadingMoment::Fullest).used_bytes(), base + 10 * MIB + 2 * CHUNK);
}

/// The device has 1.5 GiB of memory, most of which other processes use.
#[test]
#[ignore = "is run by the test below"]
fn at_out_of_memory() {
    client::begin(0);
    start();
    let kept = client::alloc(100 * MIB as usize).expect("memory");
    assert_eq!(client::alloc(200 * MIB as usize), Err(OUT_OF_MEMORY));
    client::free(kept).expect("it succeeds");
    let recording = memtrack_core::stop();
    let at_oom = reading(recording.snapshot(), ReadingMoment::OutOfMemory);
    assert_eq!((at_oom.tracked_bytes, at_oom.untracked_bytes()), (100 * MIB, OTHERS + CONTEXT));
    assert_eq!(at_oom.free_bytes, 112 * MIB);
    assert_eq!(reading(recording.snapshot(), ReadingMoment::Last).tracked_bytes, 0);
}

/// Many allocations cause few readings: the test counts the calls of the driver. Prints the wall time and the processor time of
/// the allocations in nanoseconds.
#[test]
#[ignore = "is run by the test below"]
fn few_readings() {
    client::begin(0);
    start();
    let (wall_start, cpu_start) = (Instant::now(), time::of_thread());
    for _ in 0..100_000 {
        let address = client::alloc(4096).expect("memory");
        client::free(address).expect("it succeeds");
    }
    println!("{} {}", wall_start.elapsed().as_nanos(), (time::of_thread() - cpu_start).as_nanos());
    memtrack_core::stop();
}

/// Memory of other processes is counted as opened memory, and nowhere else.
#[test]
#[ignore = "is run by the test below"]
pub fn opened() {
    const SIZE: usize = 2 << 20;
    client::begin(0);
    start();
    let shared = client::alloc(3 * SIZE).expect("memory");
    let mut handle = [0_u64; 8];
    call!(cuIpcGetMemHandle(handle.as_mut_ptr().cast() => *mut c_void, shared => u64)).expect("it is live");
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Handle([u64; 8]);
    let mut address = 0;
    call!(cuIpcOpenMemHandle_v2(&mut address => *mut u64, Handle(handle) => Handle, 1 => u32))
        .expect("it opens");
    let opened = |snapshot: &Snapshot| {
        let last = reading(snapshot, ReadingMoment::Last);
        (last.opened, last.opened_bytes)
    };
    assert_agrees_with_mock(0);
    assert_eq!(opened(&snapshot()), (1, 3 * SIZE as u64));

    // Another way to share: physical memory that is imported, and mapped next to the program's own.
    let properties = client::properties(0);
    let (mut range, mut exported, mut imported, mut number) = (0, 0, 0, 0_i32);
    call!(cuMemAddressReserve(&mut range => *mut u64, 2 * SIZE => usize, 0 => usize, 0 => u64, 0 => u64))
        .expect("addresses");
    call!(cuMemCreate(&mut exported => *mut u64, SIZE => usize, properties.as_ptr().cast() => *const c_void, 0 => u64))
        .expect("memory");
    call!(cuMemExportToShareableHandle((&raw mut number).cast() => *mut c_void, exported => u64, 1 => i32, 0 => u64))
        .expect("it can be shared");
    let number = std::ptr::without_provenance_mut(number as usize);
    call!(cuMemImportFromShareableHandle(&mut imported => *mut u64, number => *mut c_void, 1 => i32))
        .expect("it can be imported");
    let map = |place: u64, handle: u64| {
        let address = range + place * SIZE as u64;
        call!(cuMemMap(address => u64, SIZE => usize, 0 => usize, handle => u64, 0 => u64)).expect("it fits");
    };
    map(0, exported);
    map(1, imported);
    assert_agrees_with_mock(0);
    let now = snapshot();
    assert_eq!(opened(&now), (2, 4 * SIZE as u64));
    assert_eq!(live_and_segment_bytes(&now, DeviceId(0)), (4 * SIZE as u64, 4 * SIZE as u64));

    call!(cuMemUnmap(range => u64, 2 * SIZE => usize)).expect("both are mapped");
    assert_eq!(opened(&snapshot()), (1, 3 * SIZE as u64));
    call!(cuIpcCloseMemHandle(address => u64)).expect("it is open");
    assert!(call!(cuIpcCloseMemHandle(address => u64)).is_err(), "it was closed");
    assert_eq!(opened(&snapshot()), (0, 0));
    agree_after_release(exported, imported);

    // Memory opened in a context is closed with the context.
    call!(cuIpcOpenMemHandle_v2(&mut address => *mut u64, Handle(handle) => Handle, 1 => u32))
        .expect("it opens");
    call!(cuDevicePrimaryCtxReset_v2(0 => i32)).expect("it can be reset");
    client::begin(0);
    assert_eq!(opened(&snapshot()), (0, 0));
    memtrack_core::stop();
}

fn agree_after_release(exported: u64, imported: u64) {
    call!(cuMemRelease(exported => u64)).expect("it succeeds");
    call!(cuMemRelease(imported => u64)).expect("it succeeds");
    assert_agrees_with_mock(0);
}

/// The mock's settings for the bytes that other processes use, and for the bytes that each context uses.
const UNTRACKED: [(&str, &str); 2] =
    [("MEMTRACK_MOCK_OTHER_BYTES", "1073741824"), ("MEMTRACK_MOCK_CONTEXT_BYTES", "314572800")];

#[test]
fn cached_and_untracked_memory_is_recorded() {
    run_ignored_test(every_part, &UNTRACKED);
    let [others, contexts] = UNTRACKED;
    run_ignored_test(at_out_of_memory, &[others, contexts, ("MEMTRACK_MOCK_TOTAL", "1610612736")]);
}

#[test]
fn the_driver_is_queried_rarely() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace");
    let text =
        run_ignored_test(few_readings, &[("MEMTRACK_MOCK_TRACE", trace.to_str().expect("a path"))]).text;
    let times: Vec<u128> = text.split_whitespace().map(|time| time.parse().expect("a number")).collect();
    let [wall_ns, cpu_ns] = times[..] else { panic!("{text}") };
    let trace = std::fs::read_to_string(trace).expect("it was traced");
    let count = |name: &str| trace.lines().filter(|line| *line == format!("{name} 0")).count();
    let (allocations, readings) = (count("cuMemAlloc_v2"), count("cuMemGetInfo_v2"));
    assert_eq!(allocations, 100_000);
    // The time for readings is limited to a share of the wall time. On a busy machine, the program's calls get only a part of
    // the wall time, so more readings are allowed for the same number of calls. On an idle machine, there are fewer than 2,000
    // readings.
    let allowed = allocations as u128 * wall_ns.max(cpu_ns) / cpu_ns;
    assert!(readings > 1 && readings as u128 * 5 < allowed, "{readings} readings, {text}");
    assert_eq!(count("cuThreadExchangeStreamCaptureMode"), 2 * readings);
}

#[test]
fn memory_of_other_processes_counts_only_there() {
    run_ignored_test(opened, &[]);
}

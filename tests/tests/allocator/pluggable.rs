//! Pluggable allocators, in both directions: memtrack's allocator behind PyTorch's C interface, and a library with that interface
//! as memtrack's backend. The tests run on the mock driver, each in its own process.
#![allow(unsafe_code)]

use memtrack_core::allocator::{
    AllocatorError, Backend, CachingAllocator, MemPoolOptions, Pluggable, PoolAllocator, Settings,
};
use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::mock_cuda;
use memtrack_tests::pluggable::{BaseAlloc, Client, LIBRARY, Malloc};
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::Arc;

const MIB: usize = 1 << 20;
const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);

#[test]
#[ignore = "is run by the test below"]
fn the_c_interface() {
    let client = Client::new();
    // SAFETY: the function has this type.
    unsafe { client.get::<unsafe extern "C" fn(c_int)>("memtrack_init")(1) };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.pickle");
    // SAFETY: the function has this type.
    let record =
        unsafe { client.get::<unsafe extern "C" fn(i64) -> c_int>("memtrack_record_memory_history") };
    // SAFETY: the function has this type.
    assert_eq!(unsafe { record(-1) }, 0);

    assert!(client.malloc(0).is_null());
    let small = client.malloc(1000);
    let large = client.malloc(30 * MIB);
    assert!(!small.is_null() && !large.is_null());
    // The mock's memory is host memory: it is writable, and no other block overlaps it.
    // SAFETY: the blocks have these sizes.
    unsafe {
        ptr::write_bytes(small.cast::<u8>(), 1, 1000);
        ptr::write_bytes(large.cast::<u8>(), 2, 30 * MIB);
        assert_eq!(*small.cast::<u8>(), 1);
    }
    assert_eq!(client.number("requested_bytes.all.current"), 1000 + 30 * MIB as u64);
    let second = client.malloc(2000);
    let mut size = 0;
    // SAFETY: the function has this type.
    let base = unsafe { client.get::<BaseAlloc>("memtrack_base_alloc")(second, &raw mut size) };
    assert_eq!((base, size), (small, 2 * MIB));

    // A block that another stream uses stays active after its free, until a later request finds that the stream has finished
    // its work.
    // SAFETY: the function has this type, and the mock has a stream with this number.
    unsafe {
        let record = client.get::<unsafe extern "C" fn(*mut c_void, *mut c_void)>("memtrack_record_stream");
        record(small, 2 as *mut c_void);
    }
    client.free(small);
    assert_eq!(client.number("active.all.current"), 3);
    client.free(large);
    client.free(second);
    client.call("memtrack_reset");
    assert_eq!((client.number("reserved_bytes.all.current"), client.number("active.all.current")), (0, 0));

    // The life of a graph's pool: begin, end, release.
    client.pool("memtrack_begin_allocate_to_pool", (0, 7, 0));
    let inside = client.malloc(MIB);
    client.pool("memtrack_end_allocate_to_pool", (0, 7, 0));
    assert_eq!(client.number("reserved_bytes_by_private_pools.7_0.all.current"), 2 * MIB as u64);
    client.free(inside);
    client.call("memtrack_reset");
    assert_eq!(client.number("reserved_bytes.all.current"), 2 * MIB as u64, "the graph may be replayed");
    client.pool("memtrack_release_pool", (0, 7, 0));
    client.call("memtrack_reset");
    assert_eq!(client.number("reserved_bytes.all.current"), 0);

    let before = client.stats();
    // Failing calls return null, print a message on standard error, and change nothing.
    let limit = |fraction| {
        // SAFETY: the function has this type.
        unsafe { client.get::<unsafe extern "C" fn(f64, c_int)>("memtrack_memory_fraction")(fraction, 0) };
    };
    limit(1.5);
    assert!(client.malloc(usize::MAX).is_null());
    // SAFETY: the function has this type.
    assert!(unsafe { client.get::<Malloc>("memtrack_malloc")(1, -1, ptr::null_mut()) }.is_null());
    client.free(inside);
    client.pool("memtrack_release_pool", (0, 9, 0));
    assert_eq!(client.stats(), before);
    limit(0.0);
    assert!(client.malloc(1).is_null());

    let text = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the function has this type, and the string is NUL-terminated.
    unsafe {
        let dump = client.get::<unsafe extern "C" fn(*const i8) -> c_int>("memtrack_dump_snapshot");
        assert_eq!(dump(text.as_ptr().cast()), 0);
        assert_eq!(dump(c"/no/such/folder/s.pickle".as_ptr().cast()), 1);
    }
    let snapshot = memtrack_core::snapshot::Snapshot::open(&path, Default::default()).unwrap().snapshot;
    let actions: Vec<Action> = snapshot.events.iter().map(|event| event.action).collect();
    let count = |action| actions.iter().filter(|&&other| other == action).count();
    assert_eq!((count(Action::Alloc), count(Action::FreeCompleted), count(Action::Oom)), (4, 4, 1));
}

#[test]
fn memtracks_allocator_exports_pytorchs_functions() {
    let errors = mock_cuda::run_ignored_test(the_c_interface, &[]).errors;
    for text in [
        "memtrack allocator: set_per_process_memory_fraction: Invalid fraction value: 1.5. Allowed range: 0~1\n",
        "memtrack allocator: malloc: CUDA out of memory. Tried to allocate more than 1EB memory.\n",
        "memtrack allocator: malloc: invalid device ordinal: ",
        "memtrack allocator: free: invalid device pointer: 0x",
        "memtrack allocator: release_pool: INTERNAL ASSERT FAILED",
        "memtrack allocator: malloc: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has",
        "memtrack allocator: dump_snapshot: ",
    ] {
        assert!(errors.contains(text), "{text:?} in {errors}");
    }
}

/// Loads memtrack's allocator library through the interface for any library, which knows only the names of the functions.
fn foreign() -> Pluggable {
    // SAFETY: the library's functions have the types of PyTorch's interface.
    unsafe {
        let path = mock_cuda::beside_the_test(LIBRARY);
        let error = Pluggable::load("/no/such.so", "a", "b").unwrap_err();
        assert!(error.to_string().starts_with("/no/such.so: "), "{error}");
        let error = Pluggable::load(&path, "memtrack_malloc", "no_such").unwrap_err();
        assert_eq!(error.to_string(), "the library has no function no_such");
        Pluggable::load(&path, "memtrack_malloc", "memtrack_free").unwrap()
    }
}

#[test]
#[ignore = "is run by the test below"]
fn the_library_as_a_backend() {
    let client = Client::new();
    let options = memtrack_core::recorder::Options::new().without_host_heap();
    memtrack_core::start_monitor_with(&options).unwrap();
    let mut backend = foreign();
    assert_eq!(backend.base_allocation(4096), (4096, None), "without the function, memory is its own base");
    // SAFETY: the functions have these types.
    unsafe {
        backend.set_init_fn("memtrack_init", 1).unwrap();
        backend.set_reset_fn("memtrack_reset").unwrap();
        backend.set_memory_fraction_fn("memtrack_memory_fraction").unwrap();
        backend.set_base_alloc_fn("memtrack_base_alloc").unwrap();
        backend.set_record_stream_fn("memtrack_record_stream").unwrap();
        assert!(backend.set_reset_fn("no_such").is_err());
    }
    assert_eq!(backend.get_allocator_backend(), "pluggable");
    let alloc = |size: usize| backend.caching_allocator_alloc(size as u64, DEVICE, STREAM);
    let kept = alloc(3 * MIB).unwrap();
    let freed = alloc(1000).unwrap();
    assert_eq!(client.number("requested_bytes.all.current"), 3 * MIB as u64 + 1000);
    assert_eq!(backend.base_allocation(kept), (kept, Some(20 * MIB as u64)));
    backend.record_stream(freed, StreamId(2)).unwrap();
    backend.caching_allocator_delete(freed).unwrap();
    assert_eq!(client.number("active.all.current"), 2, "the library recorded the other stream's use");
    backend.empty_cache().unwrap();
    assert_eq!(client.number("active.all.current"), 1);
    assert!(backend.mem_get_info(DEVICE).unwrap().free_bytes > 0);

    // Errors have PyTorch's messages, and the library is not called.
    let before = client.stats();
    let error = backend.caching_allocator_delete(freed).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        ("RuntimeError", "Trying to free a pointer not allocated here")
    );
    let refused = "CUDAPluggableAllocator does not yet support getDeviceStats. If you need it, please file an issue \
                   describing your use case.";
    for error in [
        backend.memory_stats(DEVICE).unwrap_err(),
        backend.memory_allocated(DEVICE).unwrap_err(),
        backend.memory_summary(DEVICE, false).unwrap_err(),
    ] {
        assert_eq!(error, AllocatorError::Unsupported(refused.into()));
    }
    for (error, what) in [
        (backend.reset_peak_memory_stats(DEVICE).unwrap_err(), "resetPeakStats"),
        (backend.reset_accumulated_memory_stats(DEVICE).unwrap_err(), "resetAccumulatedStats"),
        (backend.snapshot().unwrap_err(), "snapshot"),
        (backend.record_memory_history(None).unwrap_err(), "recordHistory"),
        (backend.get_per_process_memory_fraction(DEVICE).unwrap_err(), "getMemoryFraction"),
        (backend.attach_out_of_memory_observer(Box::new(|_| {})).unwrap_err(), "attachOutOfMemoryObserver"),
    ] {
        assert_eq!(error.to_string(), refused.replace("getDeviceStats", what));
    }
    let error = backend.set_per_process_memory_fraction(-1.0, DEVICE).unwrap_err();
    assert_eq!(error.to_string(), "Invalid fraction value: -1.0. Allowed range: 0~1");
    assert_eq!(alloc(usize::MAX), Err(AllocatorError::TooLarge));
    assert_eq!((alloc(0), backend.caching_allocator_delete(0)), (Ok(0), Ok(())));
    assert_eq!(client.stats(), before);

    backend.set_per_process_memory_fraction(0.0, DEVICE).unwrap();
    let error = alloc(40 * MIB).unwrap_err();
    assert_eq!(error.kind(), "OutOfMemoryError");
    assert!(
        error.to_string().starts_with("CUDA out of memory. Tried to allocate 40.00 MiB on GPU 0;"),
        "{error}"
    );

    // The recording contains the backend's blocks.
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let live = snapshot.blocks.iter().filter(|block| block.device == DEVICE);
    assert_eq!(
        live.map(|block| (block.address, block.size_bytes)).collect::<Vec<_>>(),
        [(kept, 3 * MIB as u64)]
    );
    let of_freed = snapshot.events.iter().filter(|event| event.device == DEVICE && event.address == freed);
    let actions: Vec<Action> = of_freed.map(|event| event.action).collect();
    // The driver hook adds the segments that the library allocates.
    use Action::{Alloc, FreeCompleted, FreeRequested, SegmentAlloc, SegmentFree};
    assert_eq!(actions, [SegmentAlloc, Alloc, FreeRequested, FreeCompleted, SegmentFree]);
    // Dropping the backend frees live blocks.
    drop(backend);
    assert_eq!(client.number("allocation.all.current"), 0);
}

#[test]
#[ignore = "is run by the test below"]
fn the_library_as_the_source_of_a_pool() {
    let client = Client::new();
    let source: Arc<dyn PoolAllocator> = Arc::new(foreign());
    let settings = Settings::parse("expandable_segments:True").unwrap();
    let allocator = CachingAllocator::simulated(1, 100 * MIB as u64, &settings).unwrap();
    let pool = allocator.mem_pool_from(Arc::clone(&source), DEVICE, MemPoolOptions::default()).unwrap();
    let route = pool.use_mem_pool().unwrap();
    let alloc = |size: usize| allocator.caching_allocator_alloc(size as u64, DEVICE, STREAM);
    let [first, second] = [3 * MIB, MIB + 1].map(|size| alloc(size).unwrap());
    assert_eq!(client.number("requested_bytes.all.current"), 20 * MIB as u64, "one segment for both");
    // SAFETY: the mock's device memory is host memory, and the block has this size.
    unsafe { ptr::write_bytes(first as *mut u8, 1, 3 * MIB) };
    // A failed allocation in the library is reported as out of memory.
    let full = alloc(20 << 30).unwrap_err();
    assert!(matches!(full, AllocatorError::OutOfMemory(_)), "{full}");
    drop(route);
    let outside = alloc(MIB).unwrap();
    let segments = allocator.memory_snapshot();
    let of = |address| segments.iter().find(|segment| segment.address == address).unwrap();
    assert_eq!((of(first).pool, of(first).is_expandable), (pool.id(), false));
    assert_eq!((of(outside).pool, of(outside).is_expandable), ((0, 0), true));
    // memtrack's allocator caches the blocks; the segment is freed when the pool is dropped.
    [first, second, outside].into_iter().for_each(|block| allocator.caching_allocator_delete(block).unwrap());
    assert_eq!(client.number("allocation.all.current"), 1);
    drop(pool);
    assert_eq!(client.number("allocation.all.current"), 0);
    assert_eq!(allocator.memory_allocated(DEVICE), Ok(0));
}

#[test]
fn a_library_is_the_source_of_a_pool() {
    mock_cuda::run_ignored_test(the_library_as_the_source_of_a_pool, &[]);
}

#[test]
fn a_library_is_a_backend() {
    mock_cuda::run_ignored_test(the_library_as_a_backend, &[]);
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn python_calls_the_functions_with_ctypes() {
    let script = r#"
import ctypes, json, sys
lib = ctypes.CDLL(sys.argv[1])
lib.memtrack_malloc.restype = ctypes.c_void_p
lib.memtrack_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
lib.memtrack_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
lib.memtrack_memory_stats.restype = ctypes.c_size_t
p = lib.memtrack_malloc(5000, 0, None)
text = ctypes.create_string_buffer(20000)
lib.memtrack_memory_stats(0, text, 20000)
stats = json.loads(text.value)
assert p and stats["requested_bytes.all.current"] == 5000 and stats["max_split_size"] == 64 << 20, stats
lib.memtrack_free(p, 5000, 0, None)
print("fine")
"#;
    let drivers = mock_cuda::driver_dir();
    let output = mock_cuda::with_driver("python3", drivers.path())
        .args(["-c", script])
        .arg(mock_cuda::beside_the_test(LIBRARY))
        .env("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "fine\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

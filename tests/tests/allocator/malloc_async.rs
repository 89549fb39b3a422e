//! The `cudaMallocAsync` backend: the statistics of the driver's pool under PyTorch's names, and PyTorch's errors. No memory is
//! leaked. The tests run on the mock driver, each in its own process.

use memtrack_core::allocator::{
    AllocatorBackend, AllocatorError, Backend, CachingAllocator, CudaMallocAsync, CudaMemory, Settings,
    cuda_backend,
};
use memtrack_core::cuda::pool_statistics;
use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_tests::mock_cuda;

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 512 * MIB;
/// The granularity in which the mock's pools grow.
const CHUNK: u64 = 32 * MIB;
const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);

fn backend() -> Box<dyn Backend> {
    let settings = Settings::parse("backend:cudaMallocAsync,max_split_size_mb:64").unwrap();
    assert_eq!(settings.backend(), AllocatorBackend::CudaMallocAsync);
    cuda_backend(&settings).unwrap()
}

/// Blocks that are live when the backend is dropped may belong to streams that have already been destroyed.
#[test]
#[ignore = "is run by the test below"]
fn handles_of_destroyed_streams() {
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let backend = backend();
    let (stream, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let [owner, user] = [&stream, &other].map(|stream| StreamId(stream.cu_stream() as u64));
    let alloc = || backend.caching_allocator_alloc(3 * MIB, DEVICE, owner).unwrap();
    let (freed, shared, kept) = (alloc(), alloc(), alloc());
    backend.record_stream(shared, user).unwrap();
    drop((stream, other));
    backend.caching_allocator_delete(freed).unwrap();
    backend.caching_allocator_delete(shared).unwrap();
    assert_eq!(pool_statistics(0).unwrap().used_bytes, 3 * MIB);
    let _ = kept;
    drop(backend);
    assert_eq!(pool_statistics(0).unwrap().used_bytes, 0);
}

#[test]
fn memory_of_destroyed_streams_is_released() {
    mock_cuda::run_ignored_test(handles_of_destroyed_streams, &[]);
}

#[test]
#[ignore = "is run by the test below"]
fn statistics() {
    let backend = backend();
    assert_eq!(backend.get_allocator_backend(), "cudaMallocAsync");
    assert_eq!(backend.memory_reserved(DEVICE), Ok(0));
    let threshold = || pool_statistics(0).unwrap().release_threshold_bytes;
    assert_eq!(threshold(), 0, "nothing is touched before the first request");
    let alloc = |size| backend.caching_allocator_alloc(size, DEVICE, STREAM).unwrap();
    let (kept, freed) = (alloc(3 * MIB), alloc(40 * MIB));
    assert_eq!(threshold(), u64::MAX, "the pool retains freed memory");
    assert_eq!(backend.memory_allocated(DEVICE), Ok(43 * MIB));
    backend.caching_allocator_delete(freed).unwrap();
    // A block that another stream uses is freed once the work of both streams is done.
    let shared = alloc(MIB);
    backend.record_stream(shared, STREAM).unwrap();
    backend.record_stream(shared, StreamId(2)).unwrap();
    backend.record_stream(0, StreamId(2)).unwrap();
    backend.caching_allocator_delete(shared).unwrap();

    let pool = pool_statistics(0).unwrap();
    let stats = backend.memory_stats(DEVICE).unwrap();
    assert_eq!(stats.len(), 123, "all keys are there");
    let nonzero: Vec<(&str, i64)> =
        stats.iter().filter(|(_, v)| **v != 0).map(|(k, v)| (k.as_str(), *v)).collect();
    assert_eq!(
        nonzero,
        [
            ("active_bytes.all.current", 3 * MIB as i64),
            ("active_bytes.all.peak", 43 * MIB as i64),
            ("allocated_bytes.all.current", 3 * MIB as i64),
            ("allocated_bytes.all.peak", 43 * MIB as i64),
            ("reserved_bytes.all.current", 2 * CHUNK as i64),
            ("reserved_bytes.all.peak", 2 * CHUNK as i64),
        ]
    );
    assert_eq!((pool.used_bytes, pool.used_peak_bytes), (3 * MIB, 43 * MIB));
    let summary = backend.memory_summary(DEVICE, true).unwrap();
    assert!(
        summary.contains("| Allocated memory      |   3072 KiB |  44032 KiB |      0 B   |      0 B   |"),
        "{summary}"
    );

    backend.reset_accumulated_memory_stats(DEVICE).unwrap();
    backend.reset_peak_memory_stats(DEVICE).unwrap();
    assert_eq!(backend.max_memory_allocated(DEVICE), Ok(3 * MIB));
    backend.empty_cache().unwrap();
    assert_eq!(backend.memory_reserved(DEVICE), Ok(CHUNK));
    assert_eq!(backend.mem_get_info(DEVICE).unwrap().free_bytes, TOTAL - CHUNK);
    let _ = kept;
    drop(backend);
    assert_eq!(pool_statistics(0).unwrap().used_bytes, 0, "dropping the backend frees live blocks");
}

#[test]
#[ignore = "is run by the test below"]
fn errors() {
    let backend = backend();
    let alloc = |size| backend.caching_allocator_alloc(size, DEVICE, STREAM);
    let block = alloc(10 * MIB).unwrap();
    let before = backend.memory_stats(DEVICE);
    let unknown =
        Err(AllocatorError::Unsupported("INTERNAL ASSERT FAILED: ptr not found in ptr_info".into()));
    assert_eq!(backend.caching_allocator_delete(block + 512), unknown);
    assert_eq!(backend.record_stream(block + 512, StreamId(2)), unknown);
    for size in [1 << 60, u64::MAX] {
        assert_eq!(alloc(size), Err(AllocatorError::TooLarge));
    }
    assert_eq!((alloc(0), backend.caching_allocator_delete(0)), (Ok(0), Ok(())));
    for fraction in [-0.1, 1.5, f64::NAN] {
        let error = backend.set_per_process_memory_fraction(fraction, DEVICE).unwrap_err();
        assert!(matches!(error, AllocatorError::InvalidFraction(_)), "{error}");
    }
    let nowhere = AllocatorError::InvalidDevice { device: 5, devices: 1 };
    assert_eq!(backend.caching_allocator_alloc(1, DeviceId(5), STREAM), Err(nowhere.clone()));
    assert_eq!(backend.memory_stats(DeviceId(5)), Err(nowhere));
    for (error, text) in [
        (
            backend.record_memory_history(None).unwrap_err(),
            "cudaMallocAsync does not yet support recordHistory. If you need it, please file an issue describing your use \
             case.",
        ),
        (
            backend.attach_out_of_memory_observer(Box::new(|_| {})).unwrap_err(),
            "cudaMallocAsync does not yet support attachOutOfMemoryObserver. If you need it, please file an issue \
             describing your use case.",
        ),
        (
            backend.snapshot().unwrap_err(),
            "Calling snapshot with backend:cudaMallocAsync is not meaningful. (For backend:native, snapshot returns a \
             detailed summary of all blocks tracked by the allocator, but the cudaMallocAsync backend does not track \
             individual blocks.)",
        ),
    ] {
        assert_eq!((error.kind(), error.to_string().as_str()), ("RuntimeError", text));
    }
    assert_eq!(backend.memory_stats(DEVICE), before);

    // First the device runs out of memory, then an allocation exceeds the limit.
    let error = alloc(600 * MIB).unwrap_err();
    assert_eq!(error.kind(), "OutOfMemoryError");
    assert_eq!(
        error.to_string(),
        "Allocation on device 0 would exceed allowed memory. (out of memory)\n\
         Currently allocated     : 10.00 MiB\n\
         Requested               : 600.00 MiB\n\
         Device limit            : 512.00 MiB\n\
         Free (according to CUDA): 480.00 MiB\n\
         PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB"
    );
    assert_eq!(backend.get_per_process_memory_fraction(DEVICE), Ok(1.0));
    backend.set_per_process_memory_fraction(0.5, DEVICE).unwrap();
    assert_eq!(backend.get_per_process_memory_fraction(DEVICE), Ok(0.5));
    let error = alloc(247 * MIB).unwrap_err();
    assert!(error.to_string().ends_with("                        : 256.00 MiB"), "{error}");
    assert!(alloc(246 * MIB).is_ok());
    backend.caching_allocator_delete(block).unwrap();
    assert_eq!(backend.caching_allocator_delete(block), unknown, "a second free is refused");
    assert!(alloc(10 * MIB).is_ok(), "freed memory no longer counts");

    // The native allocator refuses the settings of another backend.
    let settings = Settings::parse("backend:cudaMallocAsync").unwrap();
    let error = CachingAllocator::new(CudaMemory::all().unwrap(), &settings).unwrap_err();
    assert!(matches!(error, AllocatorError::Unsupported(_)), "{error}");
    let native = cuda_backend(&Settings::parse("backend:native").unwrap()).unwrap();
    assert_eq!(native.get_allocator_backend(), "native");
    assert!(native.snapshot().is_ok() && native.memory_stats(DEVICE).is_ok());
}

#[test]
#[ignore = "is run by the test below"]
fn recording() {
    let options = memtrack_core::recorder::Options::new().without_host_heap();
    memtrack_core::start_monitor_with(&options).unwrap();
    let backend = CudaMallocAsync::new().unwrap();
    let block = backend.caching_allocator_alloc(3 * MIB, DEVICE, STREAM).unwrap();
    backend.caching_allocator_delete(block).unwrap();
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let of_block = snapshot.events.iter().filter(|event| event.device == DEVICE && event.address == block);
    let actions: Vec<Action> = of_block.map(|event| event.action).collect();
    let count = |wanted: &[Action]| actions.iter().filter(|action| wanted.contains(action)).count();
    // Either the driver hook records the block or, without the hook, the backend does; never both.
    assert_eq!(count(&[Action::Alloc]), 1, "{actions:?}");
    assert_eq!(count(&[Action::Free, Action::FreeCompleted]), 1, "{actions:?}");
}

#[test]
fn statistics_come_from_the_drivers_pool() {
    run_on_the_mock(statistics);
}

#[test]
fn unsupported_operations_fail_as_in_pytorch() {
    run_on_the_mock(errors);
}

#[test]
fn memory_is_recorded_once() {
    run_on_the_mock(recording);
}

#[test]
fn the_backend_cannot_change_at_run_time() {
    let mut settings = Settings::parse("backend:cudaMallocAsync").unwrap();
    assert_eq!(settings.apply("backend:cudaMallocAsync,expandable_segments:True"), Ok(()));
    let error = settings.apply("backend:native").unwrap_err();
    assert_eq!(error.kind(), "RuntimeError");
    assert!(
        error.text().ends_with("Allocator backend parsed at runtime != allocator backend parsed at load time, native != cudaMallocAsync"),
        "{error}"
    );
    assert_eq!(settings.backend(), AllocatorBackend::CudaMallocAsync);
    let mut settings = Settings::parse("").unwrap();
    assert!(settings.apply("backend:cudaMallocAsync").is_err(), "the default is native");
    let error = Settings::parse("backend:fast").unwrap_err();
    assert_eq!(error.text(), "Unknown allocator backend, options are native and cudaMallocAsync");
}

fn run_on_the_mock(test: impl Fn()) {
    let [total, chunk] = [TOTAL, CHUNK].map(|bytes| bytes.to_string());
    let settings = [("MEMTRACK_MOCK_TOTAL", &*total), ("MEMTRACK_MOCK_POOL_CHUNK", &*chunk)];
    mock_cuda::run_ignored_test(test, &settings);
}

//! Requests that the caching allocator refuses, with PyTorch's error messages where PyTorch has them, and without side effects.

use memtrack_core::allocator::{
    AllocatorError, Backend, CachingAllocator, DeviceStats, MemPoolOptions, SegmentInfo, Settings,
    SimulatedMemory,
};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_tests::allocator::check_books;

const MIB: u64 = 1 << 20;
const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);

type Allocator = CachingAllocator<SimulatedMemory>;

/// Returns an allocator with live blocks, cached blocks and a block whose free waits for a stream, and the addresses of a live
/// and of a freed block.
fn busy(settings: &str) -> (Allocator, u64, u64) {
    let memory = SimulatedMemory::new(0, 100 * MIB);
    let allocator = CachingAllocator::new([memory.clone()], &Settings::parse(settings).unwrap()).unwrap();
    let [live, freed, waiting] =
        [1000, 3 * MIB, 2 * MIB].map(|size| allocator.caching_allocator_alloc(size, DEVICE, STREAM).unwrap());
    allocator.caching_allocator_delete(freed).unwrap();
    memory.set_events_ready(false);
    allocator.record_stream(waiting, StreamId(1));
    allocator.caching_allocator_delete(waiting).unwrap();
    (allocator, live, freed)
}

fn state(allocator: &Allocator) -> (DeviceStats, Vec<SegmentInfo>, f64, String) {
    check_books(allocator);
    (
        allocator.statistics(DEVICE).unwrap(),
        allocator.memory_snapshot(),
        allocator.get_per_process_memory_fraction(DEVICE).unwrap(),
        format!("{:?}", allocator.allocator_settings()),
    )
}

/// Runs an operation that must fail and must change nothing, and returns its error.
fn refused<T: std::fmt::Debug>(
    allocator: &Allocator,
    act: impl FnOnce(&Allocator) -> Result<T, AllocatorError>,
) -> AllocatorError {
    let before = state(allocator);
    let error = act(allocator).unwrap_err();
    assert_eq!(state(allocator), before, "after {error}");
    error
}

#[test]
fn a_second_free_is_refused() {
    for settings in ["", "expandable_segments:True"] {
        let (allocator, live, freed) = busy(settings);
        let error = refused(&allocator, |allocator| allocator.caching_allocator_delete(freed));
        assert_eq!(error, AllocatorError::InvalidPointer(freed));
        assert_eq!(error.kind(), "RuntimeError");
        assert!(error.to_string().starts_with(&format!("invalid device pointer: {freed:#x}")), "{error}");
        allocator.caching_allocator_delete(live).unwrap();
        refused(&allocator, |allocator| allocator.caching_allocator_delete(live));
    }
}

#[test]
fn a_foreign_pointer_is_refused() {
    let (allocator, live, _) = busy("");
    for address in [live + 512, live - 1, 1, 1 << 63, u64::MAX] {
        let error = refused(&allocator, |allocator| allocator.caching_allocator_delete(address));
        assert_eq!(error, AllocatorError::InvalidPointer(address));
        // Recording a stream's use of foreign memory does nothing, as in PyTorch.
        allocator.record_stream(address, StreamId(1));
        refused(&allocator, |allocator| allocator.base_allocation(address));
    }
}

#[test]
fn an_unknown_settings_key_is_refused() {
    let (allocator, _, _) = busy("");
    let before = state(&allocator);
    let error = allocator.set_allocator_settings("no_such_key:1").unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        ("ValueError", "Unrecognized key 'no_such_key' in Accelerator allocator config.")
    );
    let after = state(&allocator);
    // As in PyTorch, snapshots now contain the rejected settings text; nothing else has changed.
    assert_eq!((&after.0, &after.1, after.2), (&before.0, &before.1, before.2));
    assert_eq!(after.3, before.3.replace(r#"text: """#, r#"text: "no_such_key:1""#));
    let error = allocator.set_allocator_settings("max_split_size_mb:x").unwrap_err();
    assert_eq!(error.to_string(), "max_split_size_mb: stoull", "the key is named at run time too");
    let error = Settings::parse("max_split_size_mb:3").unwrap_err();
    assert_eq!(error.key(), "max_split_size_mb", "the key is named");
    assert!(error.to_string().starts_with("max_split_size_mb: "), "{error}");
}

#[test]
fn a_fraction_out_of_range_is_refused() {
    let (allocator, _, _) = busy("");
    allocator.set_per_process_memory_fraction(0.75, DEVICE).unwrap();
    for (fraction, text) in [
        (1.5, "1.5"),
        (-0.1, "-0.1"),
        (1.0 + f64::EPSILON, "1.0000000000000002"),
        (f64::NAN, "nan"),
        (f64::INFINITY, "inf"),
    ] {
        let error =
            refused(&allocator, |allocator| allocator.set_per_process_memory_fraction(fraction, DEVICE));
        assert_eq!(error.kind(), "ValueError");
        assert_eq!(error.to_string(), format!("Invalid fraction value: {text}. Allowed range: 0~1"));
    }
}

#[test]
fn sizes_above_one_exabyte_are_refused() {
    for settings in ["", "expandable_segments:True", "max_split_size_mb:40", "roundup_power2_divisions:8"] {
        let (allocator, _, _) = busy(settings);
        for size in [1 << 60, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX - 511, u64::MAX] {
            let error =
                refused(&allocator, |allocator| allocator.caching_allocator_alloc(size, DEVICE, STREAM));
            assert_eq!((error.clone(), error.kind()), (AllocatorError::TooLarge, "OutOfMemoryError"));
            assert_eq!(error.to_string(), "CUDA out of memory. Tried to allocate more than 1EB memory.");
        }
    }
}

/// The largest sizes that PyTorch still tries to allocate. Rounded up, they need one bit more than the size of any block that
/// can exist.
#[test]
fn sizes_too_large_for_the_device_run_out_of_memory() {
    for settings in [
        "",
        "expandable_segments:True",
        "max_split_size_mb:40",
        "max_split_size_mb:18446744073709551615",
        "roundup_power2_divisions:8",
        "garbage_collection_threshold:0.5",
    ] {
        let (allocator, live, _) = busy(settings);
        for size in [(1 << 60) - 1, (1 << 60) - 512, 1 << 59] {
            let error = allocator.caching_allocator_alloc(size, DEVICE, STREAM).unwrap_err();
            let text = error.to_string();
            let gib = if size == 1 << 59 { 536_870_912 } else { 1_073_741_824 };
            let start = format!("CUDA out of memory. Tried to allocate {gib}.00 GiB. GPU 0 has");
            assert!(text.starts_with(&start), "{settings}: {text}");
            check_books(&allocator);
        }
        assert_eq!(allocator.memory_allocated(DEVICE), Ok(1024));
        allocator.caching_allocator_delete(live).unwrap();
        assert!(allocator.caching_allocator_alloc(50 * MIB, DEVICE, STREAM).is_ok());
        check_books(&allocator);
    }
}

#[test]
fn an_invalid_device_is_refused() {
    let (allocator, _, _) = busy("");
    let nowhere = DeviceId(7);
    let wrong = AllocatorError::InvalidDevice { device: 7, devices: 1 };
    for error in [
        refused(&allocator, |allocator| allocator.caching_allocator_alloc(1, nowhere, STREAM)),
        refused(&allocator, |allocator| allocator.memory_stats(nowhere)),
        refused(&allocator, |allocator| allocator.set_per_process_memory_fraction(0.5, nowhere)),
        refused(&allocator, |allocator| allocator.mem_pool(nowhere, MemPoolOptions::default())),
        refused(&allocator, |allocator| allocator.begin_allocate_to_pool(nowhere, (1, 0), |_| true)),
    ] {
        assert_eq!((&error, error.kind()), (&wrong, "AcceleratorError"));
        assert!(error.to_string().starts_with("invalid device ordinal"), "{error}");
    }
}

#[test]
fn zero_bytes_and_null_pointers_are_no_errors() {
    let (allocator, _, _) = busy("");
    let before = state(&allocator);
    assert_eq!(allocator.caching_allocator_alloc(0, DEVICE, STREAM), Ok(0));
    assert_eq!(allocator.caching_allocator_delete(0), Ok(()));
    allocator.record_stream(0, StreamId(3));
    assert_eq!(state(&allocator), before);
}

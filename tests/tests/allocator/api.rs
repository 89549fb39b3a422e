//! The functions of `torch.cuda.memory` on memtrack's allocator: results, errors, and the state that errors leave unchanged.

use memtrack_core::allocator::{
    AllocatorError, Backend, CachingAllocator, Context, HistoryOptions, MemPoolOptions, OomRejection,
    Settings, SimulatedMemory,
};
use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_tests::allocator::check_books;
use memtrack_tests::alone;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;
const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);

fn allocator(total: u64, settings: &str) -> CachingAllocator<SimulatedMemory> {
    CachingAllocator::simulated(1, total, &Settings::parse(settings).unwrap()).unwrap()
}

#[test]
fn statistics_follow_an_allocation_and_its_free() {
    let allocator = allocator(100 * MIB, "");
    let block = allocator.caching_allocator_alloc(3 * MIB, DEVICE, STREAM).unwrap();
    assert_eq!(allocator.memory_allocated(DEVICE), Ok(3 * MIB));
    assert_eq!(allocator.memory_reserved(DEVICE), Ok(20 * MIB));
    assert_eq!(allocator.mem_get_info(DEVICE).unwrap().free_bytes, 80 * MIB);
    allocator.caching_allocator_delete(block).unwrap();
    assert_eq!(allocator.memory_allocated(DEVICE), Ok(0));
    assert_eq!(allocator.max_memory_allocated(DEVICE), Ok(3 * MIB));
    allocator.empty_cache().unwrap();
    assert_eq!(
        (allocator.memory_reserved(DEVICE), allocator.max_memory_reserved(DEVICE)),
        (Ok(0), Ok(20 * MIB))
    );
    allocator.reset_peak_memory_stats(DEVICE).unwrap();
    assert_eq!(allocator.max_memory_allocated(DEVICE), Ok(0));
    let stats = allocator.memory_stats(DEVICE).unwrap();
    assert_eq!(stats.len(), 123);
    assert_eq!(stats["allocated_bytes.large_pool.freed"], 3 * MIB as i64);
    let nested = allocator.memory_stats_as_nested_dict(DEVICE).unwrap();
    assert_eq!(nested["allocated_bytes"]["large_pool"]["freed"], 3 * MIB);
    allocator.reset_accumulated_memory_stats(DEVICE).unwrap();
    assert_eq!(allocator.memory_stats(DEVICE).unwrap()["allocated_bytes.large_pool.freed"], 0);
    assert_eq!(allocator.get_allocator_backend(), "native");
    assert_eq!(allocator.list_gpu_processes(DEVICE).unwrap(), "GPU:0\nno processes are running");
}

/// Inserts every number of nested dictionaries into one map. A number's key there is the path of keys to it, joined by dots.
fn flatten(into: &mut BTreeMap<String, i64>, prefix: &str, value: &serde_json::Value) {
    match value.as_object() {
        Some(entries) => {
            for (key, value) in entries {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(into, &key, value);
            }
        }
        None => assert_eq!(into.insert(prefix.to_owned(), value.as_i64().unwrap()), None),
    }
}

#[test]
fn nested_statistics_equal_the_flat_ones() {
    let allocator = allocator(100 * MIB, "max_split_size_mb:20");
    let pools = [(); 2].map(|()| allocator.mem_pool(DEVICE, MemPoolOptions::default()).unwrap());
    let mut blocks = vec![allocator.caching_allocator_alloc(30 * MIB, DEVICE, STREAM).unwrap()];
    for (pool, size) in pools.iter().zip([1000, 3 * MIB]) {
        let _route = pool.use_mem_pool().unwrap();
        blocks.extend((0..2).map(|_| allocator.caching_allocator_alloc(size, DEVICE, STREAM).unwrap()));
    }
    allocator.caching_allocator_delete(blocks[0]).unwrap();
    allocator.caching_allocator_alloc(200 * MIB, DEVICE, STREAM).unwrap_err();
    let mut flattened = BTreeMap::new();
    flatten(&mut flattened, "", &allocator.memory_stats_as_nested_dict(DEVICE).unwrap());
    let flat = allocator.memory_stats(DEVICE).unwrap();
    assert_eq!(flattened, flat);
    // Twelve numbers for each pool, in addition to the 123 that are always present.
    assert_eq!(flat.len(), 123 + 2 * 12);
    let reserved = |pool: usize| {
        let (first, second) = pools[pool].id();
        flat[&format!("reserved_bytes_by_private_pools.{first}_{second}.all.current")]
    };
    assert_eq!((reserved(0), reserved(1)), (2 * MIB as i64, 20 * MIB as i64));
}

#[test]
fn out_of_memory_observers_run_without_a_lock() {
    let allocator = allocator(40 * MIB, "");
    let seen: Arc<Mutex<Vec<(u64, u64, usize)>>> = Arc::default();
    let (log, inner) = (Arc::clone(&seen), allocator.clone());
    allocator.attach_out_of_memory_observer(move |error| {
        // PyTorch's observers take snapshots here.
        let segments = inner.memory_snapshot().len();
        log.lock().unwrap().push((error.segment_bytes, error.facts.device_free_bytes, segments));
    });
    let _kept = allocator.caching_allocator_alloc(30 * MIB, DEVICE, STREAM).unwrap();
    let error = allocator.caching_allocator_alloc(21 * MIB, DEVICE, STREAM).unwrap_err();
    assert!(error.to_string().starts_with(
        "CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 40.00 MiB of which 10.00 MiB \
         is free. Of the allocated memory 30.00 MiB is allocated by PyTorch, and 0 bytes is reserved"
    ));
    assert_eq!(*seen.lock().unwrap(), [(22 * MIB, 10 * MIB, 1)]);
    assert_eq!(allocator.statistics(DEVICE).unwrap().num_ooms, 1);
}

#[test]
fn rejection_observers_see_requests_that_never_reach_the_device() {
    let allocator = allocator(40 * MIB, "throw_on_cudamalloc_oom:True");
    let seen: Arc<Mutex<Vec<OomRejection>>> = Arc::default();
    let (log, inner) = (Arc::clone(&seen), allocator.clone());
    allocator.attach_oom_rejection_observer(move |rejection| {
        assert_eq!(inner.memory_snapshot().len(), 1);
        log.lock().unwrap().push(*rejection);
    });
    allocator.attach_out_of_memory_observer(|error| panic!("{}", error.message));
    let cached = allocator.caching_allocator_alloc(30 * MIB, DEVICE, STREAM).unwrap();
    allocator.caching_allocator_delete(cached).unwrap();
    // Without the setting, the cached segment would be released to make room.
    let error = allocator.caching_allocator_alloc(31 * MIB, DEVICE, STREAM).unwrap_err();
    assert!(error.is_out_of_memory());
    assert_eq!(error.kind(), "OutOfMemoryError");
    let seen = seen.lock().unwrap();
    let [rejection] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((rejection.device, rejection.stream), (DEVICE, STREAM));
    let bytes = (rejection.requested_bytes, rejection.reserved_bytes, rejection.device_total_bytes);
    assert_eq!(bytes, (31 * MIB, 30 * MIB, 40 * MIB));
    let stats = allocator.statistics(DEVICE).unwrap();
    assert_eq!((stats.num_oom_rejections, stats.num_ooms, stats.num_device_free), (1, 0, 0));
}

/// The client's cache keeps a block until the callback frees that block.
#[test]
fn memory_freed_by_a_callback_is_used_before_new_device_memory() {
    let allocator = allocator(100 * MIB, "");
    let kept = allocator.caching_allocator_alloc(30 * MIB, DEVICE, STREAM).unwrap();
    let (client_cache, inner) = (Arc::new(Mutex::new(vec![kept])), allocator.clone());
    let called: Arc<Mutex<Vec<&str>>> = Arc::default();
    let (log, other) = (Arc::clone(&called), Arc::clone(&called));
    allocator.add_free_memory_callback(move || {
        log.lock().unwrap().push("cache");
        // Allocations within a callback call no callbacks: otherwise this would recurse forever.
        let room = inner.caching_allocator_alloc(MIB, DEVICE, STREAM).unwrap();
        inner.caching_allocator_delete(room).unwrap();
        let freed = client_cache.lock().unwrap().pop();
        freed.inspect(|&block| inner.caching_allocator_delete(block).unwrap()).is_some()
    });
    allocator.add_free_memory_callback(move || {
        other.lock().unwrap().push("other");
        false
    });
    // The callback frees the kept block, and the allocator returns that block again.
    let again = allocator.caching_allocator_alloc(30 * MIB, DEVICE, STREAM).unwrap();
    assert_eq!(again, kept);
    assert_eq!(*called.lock().unwrap(), ["cache", "other"]);
    // A request that the cache can serve calls no callback. If the callbacks free nothing, the device allocates.
    let segments = allocator.statistics(DEVICE).unwrap().num_device_alloc;
    let small = allocator.caching_allocator_alloc(MIB, DEVICE, STREAM).unwrap();
    assert_eq!(called.lock().unwrap().len(), 2);
    let more = allocator.caching_allocator_alloc(40 * MIB, DEVICE, STREAM).unwrap();
    assert_eq!(called.lock().unwrap().len(), 4);
    assert_eq!(allocator.statistics(DEVICE).unwrap().num_device_alloc, segments + 1);
    // Neither callbacks nor the device can serve a request that is too large.
    let error = allocator.caching_allocator_alloc(80 * MIB, DEVICE, STREAM).unwrap_err();
    assert!(matches!(error, AllocatorError::OutOfMemory(_)), "{error}");
    for block in [again, small, more] {
        allocator.caching_allocator_delete(block).unwrap();
    }
    check_books(&allocator);
}

/// As in PyTorch, a segment's release has the stack of the release itself, or else the stack of the segment's
/// allocation.
#[test]
fn released_segments_have_a_stack_where_stacks_are_recorded() {
    for (settings, released) in
        [("", Action::SegmentFree), ("expandable_segments:True", Action::SegmentUnmap)]
    {
        for (stacks, recorded) in
            [(Context::None, false), (Context::State, false), (Context::Alloc, true), (Context::All, true)]
        {
            let allocator = allocator(1 << 30, settings);
            allocator.record_memory_history(Some(&HistoryOptions::new().context(stacks)));
            // The block fills its segment: a segment that is split into blocks loses the stack of its allocation.
            let block = allocator.caching_allocator_alloc(20 * MIB, DEVICE, STREAM).unwrap();
            allocator.caching_allocator_delete(block).unwrap();
            allocator.empty_cache().unwrap();
            let history = allocator.history(DEVICE).unwrap();
            let last = history.last().unwrap();
            assert_eq!((last.action, !last.stack.is_none()), (released, recorded), "{settings:?} {stacks:?}");
        }
    }
}

#[test]
fn a_pool_lists_its_own_segments() {
    let allocator = allocator(100 * MIB, "");
    let pool = allocator.mem_pool(DEVICE, MemPoolOptions::default()).unwrap();
    let outside = allocator.caching_allocator_alloc(MIB, DEVICE, STREAM).unwrap();
    let inside = {
        let _route = pool.use_mem_pool().unwrap();
        allocator.caching_allocator_alloc(3 * MIB, DEVICE, STREAM).unwrap()
    };
    let segments = pool.snapshot();
    assert_eq!(segments.iter().map(|segment| segment.pool).collect::<Vec<_>>(), [pool.id()]);
    assert_eq!(segments[0].blocks[0].address, inside);
    assert_eq!(allocator.memory_snapshot().len(), 2);
    for block in [outside, inside] {
        allocator.caching_allocator_delete(block).unwrap();
    }
}

#[test]
fn a_device_without_memory_maps_nothing() {
    let allocator = allocator(0, "expandable_segments:True");
    allocator.record_memory_history(Some(&HistoryOptions::default()));
    assert!(allocator.caching_allocator_alloc(1000, DEVICE, STREAM).is_err());
    let actions: Vec<Action> = allocator.history(DEVICE).unwrap().iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [Action::Oom]);
    assert_eq!(allocator.statistics(DEVICE).unwrap().num_device_alloc, 0);
}

#[test]
fn requests_above_the_memory_fraction_fail() {
    let allocator = allocator(100 * MIB, "");
    allocator.set_per_process_memory_fraction(0.25, DEVICE).unwrap();
    assert_eq!(allocator.get_per_process_memory_fraction(DEVICE), Ok(0.25));
    let error = allocator.caching_allocator_alloc(30 * MIB, DEVICE, STREAM).unwrap_err();
    assert!(error.to_string().contains("25.00 MiB allowed; "), "{error}");
    allocator.set_per_process_memory_fraction(1.0, DEVICE).unwrap();
    assert!(allocator.caching_allocator_alloc(30 * MIB, DEVICE, STREAM).is_ok());
}

#[test]
fn history_keeps_the_newest_events_with_their_stacks() {
    let allocator = allocator(100 * MIB, "");
    let options = HistoryOptions::new().max_entries(4);
    allocator.record_memory_history(Some(&options));
    for _ in 0..3 {
        let block = allocator.caching_allocator_alloc(1000, DEVICE, STREAM).unwrap();
        allocator.caching_allocator_delete(block).unwrap();
    }
    let history = allocator.history(DEVICE).unwrap();
    let actions: Vec<Action> = history.iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [Action::FreeCompleted, Action::Alloc, Action::FreeRequested, Action::FreeCompleted]);
    assert!(history.iter().all(|entry| !entry.stack.is_none()));
    assert!(history.is_sorted_by_key(|entry| entry.time_ns));
    let snapshot = allocator.snapshot();
    let stack = snapshot.named.get(snapshot.events.stack[1]).to_vec();
    let names: Vec<_> =
        stack.iter().map(|frame| snapshot.strings.get(snapshot.frames.name(*frame)).into_owned()).collect();
    let here = "history_keeps_the_newest_events_with_their_stacks";
    assert!(names.iter().any(|name| name.contains(here)), "{names:?}");

    // The snapshot above added an event. Without events, a history keeps only the newest event; disabling the history clears it.
    assert_eq!(allocator.history(DEVICE).unwrap().last().unwrap().action, Action::Snapshot);
    allocator.record_memory_history(Some(&HistoryOptions::new().events(false)));
    let _block = allocator.caching_allocator_alloc(1000, DEVICE, STREAM).unwrap();
    let actions: Vec<Action> = allocator.history(DEVICE).unwrap().iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [Action::Alloc]);
    allocator.record_memory_history(None);
    let _block = allocator.caching_allocator_alloc(1000, DEVICE, STREAM).unwrap();
    assert_eq!(allocator.history(DEVICE), Ok(Vec::new()));
    // A new history starts empty if `clear` is set.
    let options =
        HistoryOptions::new().clear(true).context(Context::None).skip_actions([Action::FreeRequested]);
    allocator.record_memory_history(Some(&options));
    let block = allocator.caching_allocator_alloc(1000, DEVICE, STREAM).unwrap();
    allocator.caching_allocator_delete(block).unwrap();
    let actions: Vec<Action> = allocator.history(DEVICE).unwrap().iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [Action::Alloc, Action::FreeCompleted]);
}

#[test]
fn a_pool_keeps_its_memory_apart() {
    let allocator = allocator(100 * MIB, "");
    let pool = allocator.mem_pool(DEVICE, MemPoolOptions::default()).unwrap();
    let route = pool.use_mem_pool().unwrap();
    assert!(matches!(pool.use_mem_pool(), Err(AllocatorError::AlreadyRouted(_))));
    assert_eq!(pool.use_count(), 2);
    let inside = allocator.caching_allocator_alloc(2 * MIB, DEVICE, STREAM).unwrap();
    // Requests of other threads are not routed to the pool.
    let outside = std::thread::scope(|scope| {
        let alloc = || allocator.caching_allocator_alloc(2 * MIB, DEVICE, STREAM).unwrap();
        scope.spawn(alloc).join().unwrap()
    });
    drop(route);
    let of = |address| {
        let segments = allocator.memory_snapshot();
        segments.iter().find(|segment| segment.address == address).unwrap().pool
    };
    assert_eq!((of(inside), of(outside)), (pool.id(), (0, 0)));
    allocator.caching_allocator_delete(inside).unwrap();
    assert_eq!(allocator.memory_reserved(DEVICE), Ok(40 * MIB));
    drop(pool);
    assert_eq!(allocator.memory_reserved(DEVICE), Ok(20 * MIB));
    check_books(&allocator);
}

#[test]
fn memtracks_recorder_records_every_event() {
    alone!();
    let device = DeviceId(30);
    memtrack_core::start_monitor();
    let allocator = CachingAllocator::simulated(31, 100 * MIB, &Settings::default()).unwrap();
    let kept = allocator.caching_allocator_alloc(3 * MIB, device, STREAM).unwrap();
    let freed = allocator.caching_allocator_alloc(5 * MIB, device, STREAM).unwrap();
    allocator.caching_allocator_delete(freed).unwrap();
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let live = snapshot.blocks.iter().filter(|block| block.device == device && block.address == kept);
    assert_eq!(live.map(|block| block.size_bytes).collect::<Vec<_>>(), [3 * MIB]);
    let of_freed: Vec<Action> = snapshot
        .events
        .iter()
        .filter(|event| event.device == device && event.address == freed)
        .map(|event| event.action)
        .collect();
    assert_eq!(of_freed, [Action::Alloc, Action::FreeRequested, Action::FreeCompleted]);
}

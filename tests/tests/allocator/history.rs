//! The stacks that a history records in each mode, as in PyTorch: the stacks of blocks, of allocations and of frees.

use memtrack_core::allocator::{
    Backend, CachingAllocator, Context, HistoryOptions, Settings, SimulatedMemory,
};
use memtrack_core::event::{Action, DeviceId, StackId, StreamId};
use memtrack_core::snapshot::Snapshot;
use std::hint::black_box;

const MIB: u64 = 1 << 20;
const DEVICE: DeviceId = DeviceId(0);
type Allocator = CachingAllocator<SimulatedMemory>;

// The functions that appear on the recorded stacks.

#[inline(never)]
fn allocates(allocator: &Allocator, size: u64) -> u64 {
    black_box(allocator.caching_allocator_alloc(black_box(size), DEVICE, StreamId(0)).unwrap())
}

#[inline(never)]
fn frees(allocator: &Allocator, block: u64) {
    allocator.caching_allocator_delete(black_box(block)).unwrap();
    black_box(allocator);
}

#[inline(never)]
fn allocates_again(allocator: &Allocator, size: u64) -> u64 {
    black_box(allocator.caching_allocator_alloc(black_box(size), DEVICE, StreamId(0)).unwrap())
}

#[inline(never)]
fn empties(allocator: &Allocator) {
    allocator.empty_cache().unwrap();
    black_box(allocator);
}

#[inline(never)]
fn fails(allocator: &Allocator, size: u64) {
    black_box(allocator.caching_allocator_alloc(black_box(size), DEVICE, StreamId(0)).unwrap_err());
}

/// Returns the name of this file's function that is on a stack; `None` if there is none.
fn caller(snapshot: &Snapshot, stack: StackId) -> Option<&'static str> {
    let frames = snapshot.named.get(stack);
    if frames.is_empty() {
        return None;
    }
    let names: Vec<_> =
        frames.iter().map(|frame| snapshot.strings.get(snapshot.frames.name(*frame)).into_owned()).collect();
    let all = ["allocates", "frees", "allocates_again", "empties", "fails"];
    let found =
        names.iter().find_map(|name| all.into_iter().find(|known| name.ends_with(&format!("::{known}"))));
    Some(found.unwrap_or_else(|| panic!("a stack of another function: {names:?}")))
}

type Caller = Option<&'static str>;

/// Events, live or pending blocks, and segments that one block fills, each with the function on its stack.
struct Recorded {
    events: Vec<(Action, Caller)>,
    blocks: Vec<(u64, Caller)>,
    segments: Vec<(u64, Caller)>,
}

/// Allocates and frees while a history in this mode is recorded, and returns the history.
fn record(stacks: Context) -> Recorded {
    let memory = SimulatedMemory::new(0, 100 * MIB);
    let allocator = CachingAllocator::new([memory.clone()], &Settings::default()).unwrap();
    allocator.record_memory_history(Some(&HistoryOptions::new().context(stacks)));
    let first = allocates(&allocator, 1000);
    frees(&allocator, first);
    // A free that waits for another stream completes only at the next request, or when the cache is emptied.
    for empty in [false, true] {
        memory.set_events_ready(false);
        let shared = allocates(&allocator, 2000);
        allocator.record_stream(shared, StreamId(1));
        frees(&allocator, shared);
        memory.set_events_ready(true);
        if empty {
            empties(&allocator);
        } else {
            let block = allocates_again(&allocator, 3000);
            frees(&allocator, block);
        }
    }
    fails(&allocator, 500 * MIB);
    let _whole = allocates(&allocator, 12 * MIB);
    memory.set_events_ready(false);
    let pending = allocates(&allocator, 4000);
    allocator.record_stream(pending, StreamId(1));
    frees(&allocator, pending);
    let snapshot = allocator.snapshot();
    let of_blocks = |action: Action| !matches!(action, Action::SegmentFree | Action::SegmentUnmap);
    let events = snapshot.events.iter().filter(|event| of_blocks(event.action));
    let whole = |address: u64| {
        snapshot.blocks.iter().any(|block| block.address == address && block.size_bytes == 12 * MIB)
    };
    let segments = snapshot.segments.iter().filter(|segment| whole(segment.address));
    Recorded {
        events: events.map(|event| (event.action, caller(&snapshot, event.stack))).collect(),
        blocks: snapshot
            .blocks
            .iter()
            .map(|block| (block.size_bytes, caller(&snapshot, block.stack)))
            .collect(),
        segments: segments.map(|segment| (segment.size_bytes, caller(&snapshot, segment.stack))).collect(),
    }
}

/// Returns the expected events with their functions. The function of a free depends on the mode: `freed` for an immediate free,
/// `requested` or `emptied` for a deferred free that a request or `empty_cache` completed.
fn expected(alloc: bool, freed: Caller, requested: Caller, emptied: Caller) -> Vec<(Action, Caller)> {
    use Action::{Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc};
    let kept = |function| if alloc { Some(function) } else { None };
    vec![
        (SegmentAlloc, kept("allocates")),
        (Alloc, kept("allocates")),
        (FreeRequested, freed),
        (FreeCompleted, freed),
        (Alloc, kept("allocates")),
        (FreeRequested, freed),
        (FreeCompleted, requested),
        (Alloc, kept("allocates_again")),
        // This block was allocated by `allocates_again`.
        (FreeRequested, if freed == Some("allocates") { kept("allocates_again") } else { freed }),
        (FreeCompleted, if freed == Some("allocates") { kept("allocates_again") } else { freed }),
        (Alloc, kept("allocates")),
        (FreeRequested, freed),
        (FreeCompleted, emptied),
        (Oom, kept("fails")),
        (SegmentAlloc, kept("allocates")),
        (Alloc, kept("allocates")),
        (SegmentAlloc, kept("allocates")),
        (Alloc, kept("allocates")),
        (FreeRequested, freed),
    ]
}

#[test]
fn mode_none_records_no_stacks() {
    let recorded = record(Context::None);
    assert_eq!(recorded.events, expected(false, None, None, None));
    assert_eq!(recorded.blocks, [(12 * MIB, None), (4000, None)]);
    assert_eq!(recorded.segments, [(12 * MIB, None)]);
}

#[test]
fn mode_state_records_stacks_of_blocks_only() {
    let recorded = record(Context::State);
    assert_eq!(recorded.events, expected(false, None, None, None));
    assert_eq!(recorded.blocks, [(12 * MIB, Some("allocates")), (4000, Some("allocates"))]);
    assert_eq!(recorded.segments, [(12 * MIB, Some("allocates"))]);
}

/// An immediate free has the stack of its allocation; a deferred free has the stack of the request that completed it.
#[test]
fn mode_alloc_records_stacks_of_allocations() {
    let recorded = record(Context::Alloc);
    let allocates = Some("allocates");
    assert_eq!(recorded.events, expected(true, allocates, Some("allocates_again"), allocates));
    assert_eq!(recorded.blocks, [(12 * MIB, allocates), (4000, allocates)]);
    assert_eq!(recorded.segments, [(12 * MIB, allocates)]);
}

#[test]
fn mode_all_records_stacks_of_frees_too() {
    let recorded = record(Context::All);
    assert_eq!(recorded.events, expected(true, Some("frees"), Some("allocates_again"), Some("empties")));
    assert_eq!(recorded.blocks, [(12 * MIB, Some("allocates")), (4000, Some("allocates"))]);
    assert_eq!(recorded.segments, [(12 * MIB, Some("allocates"))]);
}

/// A segment's release has the stack of the function that released the segment, or else of the function that allocated
/// it.
#[test]
fn released_segments_have_a_stack() {
    for (stacks, emptied, making_room) in [
        (Context::State, None, None),
        (Context::Alloc, Some("allocates"), Some("allocates_again")),
        (Context::All, Some("empties"), Some("allocates_again")),
    ] {
        let allocator = Allocator::simulated(1, 100 * MIB, &Settings::default()).unwrap();
        allocator.record_memory_history(Some(&HistoryOptions::new().context(stacks)));
        for _ in 0..2 {
            let block = allocates(&allocator, 12 * MIB);
            frees(&allocator, block);
            empties(&allocator);
        }
        let block = allocates(&allocator, 12 * MIB);
        frees(&allocator, block);
        allocates_again(&allocator, 90 * MIB);
        let snapshot = allocator.snapshot();
        let released = snapshot.events.iter().filter(|event| event.action == Action::SegmentFree);
        let released: Vec<Caller> = released.map(|event| caller(&snapshot, event.stack)).collect();
        assert_eq!(released, [emptied, emptied, making_room], "{stacks:?}");
    }
}

//! Whose stacks a history keeps, mode by mode, as PyTorch's does: those of blocks, of allocations, of frees.

use memtrack_core::allocator::{
    Backend, CachingAllocator, Context, HistoryOptions, Settings, SimulatedMemory,
};
use memtrack_core::event::{Action, DeviceId, StackId, StreamId};
use memtrack_core::snapshot::Snapshot;
use std::hint::black_box;

const MIB: u64 = 1 << 20;
const DEVICE: DeviceId = DeviceId(0);
type Allocator = CachingAllocator<SimulatedMemory>;

// Whoever does something, by name.

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
fn asks_again(allocator: &Allocator, size: u64) -> u64 {
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

/// Which of them a stack is of.
fn who(snapshot: &Snapshot, stack: StackId) -> Option<&'static str> {
    let frames = snapshot.named.get(stack);
    if frames.is_empty() {
        return None;
    }
    let names: Vec<_> =
        frames.iter().map(|frame| snapshot.strings.get(snapshot.frames.name(*frame)).into_owned()).collect();
    let all = ["allocates", "frees", "asks_again", "empties", "fails"];
    let found = names.iter().find_map(|name| all.into_iter().find(|who| name.ends_with(&format!("::{who}"))));
    Some(found.unwrap_or_else(|| panic!("a stack of nobody: {names:?}")))
}

type Who = Option<&'static str>;

/// What was done, and who it is put down to: the events, then the blocks that are live or pending, then segments of one
/// block.
struct Told {
    events: Vec<(Action, Who)>,
    blocks: Vec<(u64, Who)>,
    segments: Vec<(u64, Who)>,
}

fn tell(stacks: Context) -> Told {
    let memory = SimulatedMemory::new(0, 100 * MIB);
    let allocator = CachingAllocator::new([memory.clone()], &Settings::default()).unwrap();
    allocator.record_memory_history(Some(&HistoryOptions::new().context(stacks)));
    let first = allocates(&allocator, 1000);
    frees(&allocator, first);
    // Another stream is done only when somebody asks for memory again, or empties the cache.
    for empty in [false, true] {
        memory.set_events_ready(false);
        let shared = allocates(&allocator, 2000);
        allocator.record_stream(shared, StreamId(1));
        frees(&allocator, shared);
        memory.set_events_ready(true);
        if empty {
            empties(&allocator);
        } else {
            let block = asks_again(&allocator, 3000);
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
    Told {
        events: events.map(|event| (event.action, who(&snapshot, event.stack))).collect(),
        blocks: snapshot.blocks.iter().map(|block| (block.size_bytes, who(&snapshot, block.stack))).collect(),
        segments: segments.map(|segment| (segment.size_bytes, who(&snapshot, segment.stack))).collect(),
    }
}

/// What happens, with those who did it: of a free, and of one that waited, as the mode puts it.
fn expected(alloc: bool, freed: Who, asked: Who, emptied: Who) -> Vec<(Action, Who)> {
    use Action::{Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc};
    let kept = |who| if alloc { Some(who) } else { None };
    vec![
        (SegmentAlloc, kept("allocates")),
        (Alloc, kept("allocates")),
        (FreeRequested, freed),
        (FreeCompleted, freed),
        (Alloc, kept("allocates")),
        (FreeRequested, freed),
        (FreeCompleted, asked),
        (Alloc, kept("asks_again")),
        // Of a block that `asks_again` allocated.
        (FreeRequested, if freed == Some("allocates") { kept("asks_again") } else { freed }),
        (FreeCompleted, if freed == Some("allocates") { kept("asks_again") } else { freed }),
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
fn without_stacks_nothing_has_one() {
    let told = tell(Context::None);
    assert_eq!(told.events, expected(false, None, None, None));
    assert_eq!(told.blocks, [(12 * MIB, None), (4000, None)]);
    assert_eq!(told.segments, [(12 * MIB, None)]);
}

#[test]
fn state_keeps_those_of_blocks_only() {
    let told = tell(Context::State);
    assert_eq!(told.events, expected(false, None, None, None));
    assert_eq!(told.blocks, [(12 * MIB, Some("allocates")), (4000, Some("allocates"))]);
    assert_eq!(told.segments, [(12 * MIB, Some("allocates"))]);
}

/// A free has the stack of its allocation; one that waited has that of the request that asked whether it could end.
#[test]
fn alloc_keeps_those_of_allocations() {
    let told = tell(Context::Alloc);
    let allocates = Some("allocates");
    assert_eq!(told.events, expected(true, allocates, Some("asks_again"), allocates));
    assert_eq!(told.blocks, [(12 * MIB, allocates), (4000, allocates)]);
    assert_eq!(told.segments, [(12 * MIB, allocates)]);
}

#[test]
fn all_keeps_those_of_frees_too() {
    let told = tell(Context::All);
    assert_eq!(told.events, expected(true, Some("frees"), Some("asks_again"), Some("empties")));
    assert_eq!(told.blocks, [(12 * MIB, Some("allocates")), (4000, Some("allocates"))]);
    assert_eq!(told.segments, [(12 * MIB, Some("allocates"))]);
}

/// Of a segment that is given back: who did it, or else who caused it.
#[test]
fn segments_are_released_by_somebody() {
    for (stacks, emptied, in_the_way) in [
        (Context::State, None, None),
        (Context::Alloc, Some("allocates"), Some("asks_again")),
        (Context::All, Some("empties"), Some("asks_again")),
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
        asks_again(&allocator, 90 * MIB);
        let snapshot = allocator.snapshot();
        let released = snapshot.events.iter().filter(|event| event.action == Action::SegmentFree);
        let released: Vec<Who> = released.map(|event| who(&snapshot, event.stack)).collect();
        assert_eq!(released, [emptied, emptied, in_the_way], "{stacks:?}");
    }
}

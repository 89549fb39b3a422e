//! Which events and blocks have a stack, and which stack a free has: PyTorch's `context` matrix.

use memtrack_core::event::{Action, DeviceId, StackId, StreamId};
use memtrack_core::recorder::{
    Context, Options, record_alloc, record_free, record_oom, record_segment_alloc,
};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::alone;

const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);

#[inline(never)]
fn place_that_allocates(address: u64) {
    record_alloc(DEVICE, STREAM, address, 64);
}

#[inline(never)]
fn place_that_frees(address: u64) {
    record_free(DEVICE, STREAM, address, 64);
}

#[inline(never)]
fn place_that_grows() {
    record_segment_alloc(DEVICE, STREAM, 0x1000, 4096);
    record_oom(DEVICE, STREAM, 1 << 40, 77, 1 << 30);
}

fn recorded(context: Context) -> Snapshot {
    memtrack_core::start_monitor_with(&Options::new().without_host_heap().context(context)).unwrap();
    place_that_grows();
    for address in [1, 2, 3] {
        place_that_allocates(address);
    }
    for address in [1, 2] {
        place_that_frees(address);
    }
    memtrack_core::stop().snapshot().clone()
}

/// Returns the function of this test that is on a stack, or `None` for an empty stack.
fn function_of(snapshot: &Snapshot, stack: StackId, symbolizer: &mut Symbolizer) -> Option<&'static str> {
    let names: Vec<String> = snapshot
        .stacks
        .get(stack)
        .iter()
        .flat_map(|&address| {
            symbolizer.frames(address).iter().map(|frame| frame.function.clone()).collect::<Vec<_>>()
        })
        .collect();
    if names.is_empty() {
        return None;
    }
    let functions = ["place_that_allocates", "place_that_frees", "place_that_grows"];
    let found = functions.into_iter().find(|function| names.iter().any(|name| name.contains(function)));
    Some(found.unwrap_or_else(|| panic!("no function of this test: {names:?}")))
}

#[test]
fn the_context_selects_the_recorded_stacks() {
    alone!();
    let (allocates, frees, grows) =
        (Some("place_that_allocates"), Some("place_that_frees"), Some("place_that_grows"));
    for (context, of_blocks, of_allocs, of_frees, of_others) in [
        (Context::None, None, None, None, None),
        (Context::State, allocates, None, None, None),
        (Context::Alloc, allocates, allocates, allocates, grows),
        (Context::All, allocates, allocates, frees, grows),
    ] {
        let snapshot = recorded(context);
        // All events share one symbolizer: reading the binary takes most of the time.
        let symbolizer = &mut Symbolizer::new(&snapshot.modules);
        assert_eq!((snapshot.events.len(), snapshot.blocks.len()), (7, 1));
        for event in snapshot.events.iter() {
            let expected = match event.action {
                Action::Alloc => of_allocs,
                Action::Free => of_frees,
                _ => of_others,
            };
            assert_eq!(
                function_of(&snapshot, event.stack, symbolizer),
                expected,
                "{context:?}: {:?}",
                event.action
            );
        }
        assert_eq!(function_of(&snapshot, snapshot.blocks[0].stack, symbolizer), of_blocks, "{context:?}");
    }
}

#[test]
fn an_oom_event_contains_the_size_and_the_devices_free_bytes() {
    alone!();
    let snapshot = recorded(Context::Alloc);
    let oom = snapshot.events.iter().find(|event| event.action == Action::Oom).unwrap();
    assert_eq!((oom.size_bytes, oom.address), (1 << 40, 77));
}

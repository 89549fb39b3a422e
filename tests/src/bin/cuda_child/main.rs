//! Programs that link memtrack's CUDA hook and record themselves: `cuda_child SCENARIO`, run by the tests `cuda_*` with
//! the mock driver. Each compares what was recorded with the mock's own books, and ends with 0 when they agree.
#![allow(unsafe_code)]

#[path = "../../cuda/client.rs"]
mod client;
mod failures;
mod forks;
mod lookups;
mod many;
mod pools;
mod put_back;
mod readings;
mod soak;
mod steps;

use memtrack_core::event::{Action, DeviceId};
use memtrack_core::recorder::Options;
use memtrack_core::snapshot::Snapshot;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert!(memtrack_core::cuda::hook_is_in_place(), "the hook is in place");
    match arguments[..] {
        ["every_kind"] => steps::every_kind(),
        ["by_procedure"] => lookups::by_procedure(),
        ["nested"] => lookups::nested(),
        ["stacks"] => steps::stacks(),
        ["teardown"] => steps::teardown(),
        ["unmapping"] => steps::unmapping(),
        ["late"] => lookups::late(),
        ["own_output", file] => own_output(file),
        ["failed_free", name] => put_back::failed_free(name),
        ["out_of_memory"] => failures::out_of_memory(),
        ["unknown_free"] => failures::unknown_free(),
        ["pool_blocks"] => pools::blocks(),
        ["pool_segments"] => pools::segments(),
        ["readings"] => readings::every_part(),
        ["readings_at_oom"] => readings::at_out_of_memory(),
        ["readings_are_few"] => readings::are_few(),
        ["opened"] => readings::opened(),
        ["several_devices"] => many::several_devices(),
        ["soak", count, file] => soak::from_two_threads(count.parse().expect("a count"), file),
        ["fork", file] => forks::beside_busy_threads(file),
        ["cost"] => many::cost(),
        ["says_its_rights"] => says_its_rights(),
        _ => panic!("no such scenario: {arguments:?}"),
    }
}

/// Starts recording everything but the host heap.
fn start() {
    let options = Options::new().without_host_heap();
    memtrack_core::start_monitor_with(&options).expect("nothing can fail without a file");
}

/// Records a block, of no driver, and says whether it has more rights than who started it.
fn says_its_rights() {
    start();
    memtrack_core::recorder::record_segment_alloc(DeviceId(0), Default::default(), 1 << 30, 2 << 20);
    memtrack_core::stop();
    // SAFETY: reads what the kernel said.
    println!("{}", unsafe { libc::getauxval(libc::AT_SECURE) });
}

/// Records into a file of its own, or would.
fn own_output(file: &str) {
    client::begin(0);
    let options = Options::new().without_host_heap().output(file);
    memtrack_core::start_monitor_with(&options).expect("the file is written at the end");
    client::alloc(1 << 20).expect("memory");
    memtrack_core::stop();
}

fn snapshot() -> Snapshot {
    memtrack_core::snapshot().expect("something is monitored")
}

/// Bytes of a device's live blocks, and of its segments.
fn held(snapshot: &Snapshot, device: DeviceId) -> (u64, u64) {
    let blocks = snapshot.blocks.iter().filter(|block| block.device == device);
    let segments = snapshot.segments.iter().filter(|segment| segment.device == device);
    (blocks.map(|block| block.size_bytes).sum(), segments.map(|segment| segment.size_bytes).sum())
}

/// What is recorded of a device is what the mock's books say, by blocks, by segments, and by the sums.
#[track_caller]
fn agree(device: i32) {
    let snapshot = snapshot();
    let id = if device == -2 { DeviceId::PINNED } else { DeviceId(device as u16) };
    let live = client::live_bytes(device);
    assert_eq!(held(&snapshot, id), (live, live));
    let counts = snapshot.devices.iter().find(|counts| counts.device == id);
    let (allocated, reserved) =
        counts.map_or((0, 0), |counts| (counts.allocated_bytes - counts.freed_bytes, counts.reserved_bytes));
    assert_eq!((allocated, reserved), (live, live));
}

/// How many events of an action a device has.
fn events(snapshot: &Snapshot, device: DeviceId, action: Action) -> usize {
    snapshot.events.rows_of(device).filter(|&row| snapshot.events.action[row] == action).count()
}

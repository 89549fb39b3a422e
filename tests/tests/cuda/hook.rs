//! The CUDA hook in a program that links memtrack, on the mock driver: the recording says what the mock's books say.

use memtrack_core::event::Action;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::child::ends_well;
use memtrack_tests::mock_cuda;
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::process::Output;

fn child(arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let driver = mock_cuda::driver_dir();
    let output = mock_cuda::with_driver(env!("CARGO_BIN_EXE_cuda_child"), driver.path())
        .args(arguments)
        .envs(settings.iter().copied())
        .output()
        .expect("it can be started");
    assert!(
        output.status.success(),
        "{arguments:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[test]
fn every_kind_of_memory_is_seen_at_every_step() {
    child(&["every_kind"], &[]);
    child(&["every_kind"], &[("MEMTRACK_MOCK_POOL_CHUNK", "1000000")]);
}

#[test]
fn functions_found_by_the_drivers_own_look_up_are_hooked() {
    child(&["by_procedure"], &[]);
}

#[test]
fn what_the_driver_calls_itself_is_part_of_the_call() {
    child(&["nested"], &[("MEMTRACK_MOCK_NESTED", "1"), ("MEMTRACK_MOCK_TOTAL", "1048576")]);
}

#[test]
fn stacks_and_scopes_name_who_asked() {
    child(&["stacks"], &[]);
}

#[test]
fn a_context_takes_its_memory_with_it() {
    child(&["teardown"], &[]);
}

#[test]
fn mapped_memory_counts_while_it_is_mapped() {
    child(&["unmapping"], &[]);
}

#[test]
fn a_driver_loaded_late_is_hooked_and_older_memory_is_not_guessed() {
    child(&["late"], &[]);
}

/// Everything that ends something, and the calls of it before the one that fails.
const ENDS: [(&str, u32); 15] = [
    ("cuMemFree_v2", 1),
    ("cuMemFreeAsync", 0),
    ("cuMemFreeAsync_ptsz", 0),
    ("cuMemFreeHost", 0),
    ("cuMemHostUnregister", 0),
    ("cuArrayDestroy", 0),
    ("cuMipmappedArrayDestroy", 0),
    ("cuMemUnmap", 1),
    ("cuMemRelease", 0),
    ("cuMemAddressFree", 0),
    ("cuIpcCloseMemHandle", 0),
    ("cuMemPoolDestroy", 0),
    ("cuCtxDestroy_v2", 0),
    ("cuDevicePrimaryCtxRelease_v2", 0),
    ("cuDevicePrimaryCtxReset_v2", 0),
];

#[test]
fn what_fails_to_end_is_put_back() {
    for (name, before) in ENDS {
        let failure = format!("{name}:700:{before}:1");
        child(&["failed_free", name], &[("MEMTRACK_MOCK_FAIL", &failure), ("MEMTRACK_MOCK_DEVICES", "2")]);
    }
    child(&["failed_free", "of a pool"], &[("MEMTRACK_MOCK_FAIL", "cuMemFree_v2:700:0:1")]);
}

#[test]
fn out_of_memory_is_an_event_and_told() {
    child(&["out_of_memory"], &[("MEMTRACK_MOCK_TOTAL", "1048576")]);
}

#[test]
fn an_unknown_free_is_counted_and_not_recorded() {
    child(&["unknown_free"], &[]);
}

#[test]
fn the_blocks_of_a_pool_replace_its_segments_own() {
    child(&["pool_blocks"], &[]);
}

#[test]
fn a_pools_segment_counts_once() {
    child(&["pool_segments"], &[]);
}

/// What others and each context hold of the device.
const NOT_OURS: [(&str, &str); 2] =
    [("MEMTRACK_MOCK_OTHER_BYTES", "1073741824"), ("MEMTRACK_MOCK_CONTEXT_BYTES", "314572800")];

#[test]
fn what_is_cached_and_what_is_not_ours_is_in_the_recording() {
    child(&["readings"], &NOT_OURS);
    let [others, contexts] = NOT_OURS;
    child(&["readings_at_oom"], &[others, contexts, ("MEMTRACK_MOCK_TOTAL", "1610612736")]);
}

#[test]
fn the_driver_is_asked_seldom() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace");
    child(&["readings_are_few"], &[("MEMTRACK_MOCK_TRACE", trace.to_str().expect("a path"))]);
    let trace = std::fs::read_to_string(trace).expect("it was traced");
    let count = |name: &str| trace.lines().filter(|line| *line == format!("{name} 0")).count();
    let (allocations, readings) = (count("cuMemAlloc_v2"), count("cuMemGetInfo_v2"));
    assert_eq!(allocations, 100_000);
    assert!(readings > 1 && readings * 50 < allocations, "{readings} readings");
    assert_eq!(count("cuThreadExchangeStreamCaptureMode"), 2 * readings);
}

#[test]
fn memory_of_other_processes_counts_there() {
    child(&["opened"], &[]);
}

#[test]
fn threads_streams_and_devices_are_told_apart() {
    child(&["several_devices"], &[("MEMTRACK_MOCK_DEVICES", "2")]);
}

#[test]
fn forked_children_record_their_own_beside_busy_threads() {
    let (driver, folder) = (mock_cuda::driver_dir(), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("a.memtrack");
    let mut command = mock_cuda::with_driver(env!("CARGO_BIN_EXE_cuda_child"), driver.path());
    let output = ends_well(command.arg("fork").arg(&file));
    let children = String::from_utf8(output.stdout).expect("text");
    assert_eq!(children.lines().count(), 10);
    let sizes = |snapshot: &Snapshot, action| -> Vec<u64> {
        let events = snapshot.events.iter().filter(|event| event.action == action);
        events.map(|event| event.size_bytes).collect()
    };
    for pid in children.lines() {
        let (child, report) = Snapshot::load(format!("{}.{pid}", file.display())).expect("it recorded");
        assert!(report.complete && child.meta.pid.to_string() == pid);
        assert_eq!(sizes(&child, Action::Alloc), [222_222, 2 << 20, 123_456, 2 << 20]);
        assert_eq!(sizes(&child, Action::Free), [2 << 20, 222_222, 2 << 20]);
        assert_eq!(child.blocks.iter().map(|block| block.size_bytes).collect::<Vec<_>>(), [123_456]);
    }
    let (parent, report) = Snapshot::load(&file).expect("it recorded");
    assert!(report.complete && parent.events.iter().all(|event| event.size_bytes != 222_222));
    assert_eq!(parent.blocks.iter().map(|block| block.size_bytes).collect::<Vec<_>>(), [1000]);
}

/// The functions that the hook wraps: a program that links it has them under the driver's names.
fn wrapped() -> BTreeSet<String> {
    let program = std::fs::read(env!("CARGO_BIN_EXE_cuda_child")).expect("it can be read");
    let program = object::File::parse(&*program).expect("an executable");
    let functions = program.symbols().filter(|symbol| symbol.is_definition());
    let names = functions.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
    names
        .filter(|name| name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase)))
        .collect()
}

#[test]
fn every_wrapped_function_is_called_by_some_test() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace");
    for scenario in ["every_kind", "by_procedure", "teardown", "unmapping", "opened"] {
        child(&[scenario], &[("MEMTRACK_MOCK_TRACE", trace.to_str().expect("a path"))]);
    }
    let trace = std::fs::read_to_string(trace).expect("it was traced");
    let called: BTreeSet<&str> = trace.lines().filter_map(|line| line.strip_suffix(" 0")).collect();
    let wrapped = wrapped();
    assert!(wrapped.contains("cuMemAlloc_v2") && wrapped.len() > 30, "{wrapped:?}");
    let missing: Vec<_> = wrapped.iter().filter(|name| !called.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// `MEMTRACK_SOAK=10000000` makes it ten million, which a release build does in a minute.
#[test]
fn a_soak_from_two_threads_loses_nothing() {
    let count = std::env::var("MEMTRACK_SOAK").unwrap_or_else(|_| "1000000".to_owned());
    let per_thread = (count.parse::<u64>().expect("a number") / 2).to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("soak.memtrack");
    let output = child(&["soak", &per_thread, file.to_str().expect("a path")], &[]);
    println!("{}", String::from_utf8_lossy(&output.stdout).trim_end());
}

/// In a release build alone do the numbers mean anything.
#[cfg(not(debug_assertions))]
#[test]
fn the_hook_costs_half_a_microsecond_and_a_tenth_of_backtraces() {
    let output = child(&["cost"], &[]);
    let text = String::from_utf8(output.stdout).expect("text");
    let numbers: Vec<f64> = text.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    println!("added per call: {} ns with stacks, {} ns for backtrace's stacks alone", numbers[0], numbers[1]);
    assert!(numbers[0] <= 500.0 && numbers[0] * 10.0 <= numbers[1], "{text}");
}

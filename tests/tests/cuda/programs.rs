//! Programs on the mock driver with the hook linked in. After every step, they assert that memtrack's totals equal the driver's.
//! These tests vary how the programs are built and how they find the driver, and check the recordings.

use memtrack_core::By;
use memtrack_core::analysis::top::top;
use memtrack_core::event::{Action, DeviceId};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::{child, mock_cuda, nested};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Builds `cudarc_loaded` with one of its cargo profiles, and returns the executable.
fn loaded(profile: &str) -> PathBuf {
    nested::cargo("cudarc_loaded", &["build", "--profile", profile], &[]);
    nested::target_folder("cudarc_loaded").join(profile).join("cudarc_loaded")
}

/// Runs a program on the mock, and returns its recording. The driver's summary must contain no live memory.
fn run(program: &Path, environment: &[(&str, &str)]) -> (Snapshot, TempDir) {
    let (snapshot, summary, folder) = run_any(program, environment);
    for totals in summary["devices"].as_array().unwrap().iter().chain([&summary["host"]]) {
        assert_eq!(
            (&totals["live_bytes"], &totals["allocations"]),
            (&Value::from(0), &totals["frees"]),
            "{summary}"
        );
    }
    (snapshot, folder)
}

/// Runs a program on the mock, and returns its recording and the driver's summary.
fn run_any(program: &Path, environment: &[(&str, &str)]) -> (Snapshot, Value, TempDir) {
    let drivers = mock_cuda::driver_dir();
    let folder = tempfile::tempdir().unwrap();
    let (recording, summary) = (folder.path().join("run.memtrack"), folder.path().join("summary.json"));
    let mut command = mock_cuda::with_driver(program, drivers.path());
    command.arg(&recording).env("MEMTRACK_MOCK_DEVICES", "2").env("MEMTRACK_MOCK_SUMMARY", &summary);
    child::ends_well(command.envs(environment.iter().copied()));

    let summary: Value = serde_json::from_slice(&fs::read(&summary).unwrap()).unwrap();
    let (snapshot, report) = Snapshot::load(&recording).expect("the recording can be read");
    assert!(report.complete);
    (snapshot, summary, folder)
}

/// Asserts that every allocation of this size has the function on its stack, and has this operator name.
fn assert_made_by(snapshot: &Snapshot, size: u64, function: &str, operator: Option<&str>) {
    let mut symbols = Symbolizer::of(snapshot);
    let mut found = 0;
    for event in
        snapshot.events.iter().filter(|event| event.action == Action::Alloc && event.size_bytes == size)
    {
        let stack = symbols.stack(snapshot.stacks.get(event.stack));
        assert!(
            stack.iter().any(|frame| frame.function.contains(function)),
            "{size}: {function} in {stack:#?}"
        );
        assert_eq!(snapshot.scopes.place(event.scope).operator_name().as_deref(), operator, "{size}");
        found += 1;
    }
    assert!(found > 0, "something allocated {size} bytes");
}

fn assert_named(snapshot: &Snapshot, program: &str) {
    let name = |function: &str| format!("{program}::steps::{function}");
    assert_made_by(snapshot, 40_000, &name("Layer::new"), None);
    assert_made_by(snapshot, 40_400, &name("scores"), Some("layer.forward.scores"));
    assert_made_by(snapshot, 80_400, &name("scores"), Some("layer.forward.scores"));
    assert_made_by(snapshot, 80_404, &name("gradient_of"), None);
}

#[test]
fn a_program_whose_driver_cudarc_loads_is_recorded() {
    let program = Path::new(env!("CARGO_BIN_EXE_cudarc_loaded"));
    let (snapshot, _folder) = run(program, &[]);
    assert_named(&snapshot, "cudarc_loaded");
    // Without scopes, operators are named after the program's functions, not cudarc's.
    let rows = top(&snapshot, By::Operator, DeviceId(0), &Default::default()).rows;
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert!(names.contains(&"cudarc_loaded.Layer.new"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("cudarc.")), "{names:?}");
    let second = snapshot.events.iter().filter(|event| event.device == DeviceId(1)).count();
    assert!(second > 2_000, "two threads worked there: {second}");

    let (snapshot, _folder) = run(program, &[("MEMTRACK_MOCK_POOLS", "0")]);
    assert_named(&snapshot, "cudarc_loaded");
}

/// With the features that candle enables, cudarc links the driver and other libraries; the other libraries are empty here.
#[test]
fn a_program_linked_as_by_candle_is_recorded() {
    let folder = mock_cuda::driver_dir();
    for name in ["cublas", "cublasLt", "curand", "nvrtc"] {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(folder.path().join(format!("lib{name}.so")));
        child::ends_well(&mut cc);
    }
    // The linker reads this variable and cargo does not, so that a different folder causes no rebuild.
    let program =
        nested::member("cudarc_linked", "link", &[("LIBRARY_PATH", folder.path().to_str().unwrap())]);
    let (snapshot, _folder) = run(&program, &[]);
    assert_named(&snapshot, "cudarc_linked");
}

/// Asserts operator names from scopes only: functions have no names without symbols, and may be inlined.
fn assert_scoped(snapshot: &Snapshot) {
    let of_scores = snapshot
        .events
        .iter()
        .filter(|event| event.action == Action::Alloc && [40_400, 80_400].contains(&event.size_bytes));
    let names: Vec<_> = of_scores
        .map(|event| snapshot.scopes.place(event.scope).operator_name().unwrap_or_default())
        .collect();
    assert_eq!(names, ["layer.forward.scores"; 2]);
    assert!(
        snapshot
            .events
            .iter()
            .filter(|event| event.action == Action::Alloc)
            .all(|event| !event.stack.is_none())
    );
}

#[test]
#[ignore = "an optimised build of everything: minutes"]
fn a_program_optimised_at_link_time_is_recorded() {
    let (snapshot, _folder) = run(&loaded("optimised_at_link"), &[]);
    assert_scoped(&snapshot);
}

#[test]
#[ignore = "an optimised build of everything: minutes"]
fn a_program_without_symbols_is_recorded() {
    let (snapshot, _folder) = run(&loaded("stripped"), &[]);
    assert_scoped(&snapshot);
}

#[test]
#[ignore = "an optimised build of everything: minutes"]
fn a_program_that_does_not_unwind_is_recorded() {
    let (snapshot, _folder) = run(&loaded("aborting"), &[]);
    assert_scoped(&snapshot);
    assert_named(&snapshot, "cudarc_loaded");
}

/// Link-time optimisation, no symbols, no unwinding: the totals still agree.
#[test]
#[ignore = "an optimised build of everything: minutes"]
fn a_program_built_for_shipping_is_recorded() {
    let (snapshot, _folder) = run(&loaded("shipped"), &[]);
    assert!(snapshot.events.iter().any(|event| event.size_bytes == 80_404));
    assert_scoped(&snapshot);
}

/// Burn's runtime obtains pages from the driver and allocates buffers in them: the pages are segments. The runtime's client is
/// never dropped, so the pages are live at the end, both in the driver and in the recording.
#[test]
#[ignore = "builds cubecl: minutes"]
fn cubecl_pages_are_segments() {
    nested::cargo("cubecl", &["build"], &[]);
    let (snapshot, summary, _folder) = run_any(&nested::target_folder("cubecl").join("debug/cubecl"), &[]);
    let live = |device: DeviceId| -> u64 {
        snapshot
            .segments
            .iter()
            .filter(|segment| segment.device == device)
            .map(|segment| segment.size_bytes)
            .sum()
    };
    let driver = [&summary["devices"][0]["live_bytes"], &summary["host"]["live_bytes"]];
    assert_eq!([live(DeviceId(0)), live(DeviceId::PINNED)], driver.map(|bytes| bytes.as_u64().unwrap()));
    assert!(live(DeviceId(0)) > 600_000_000);

    // Each stack contains functions of cubecl, whether on cubecl's thread or on the caller's.
    let mut symbols = Symbolizer::of(&snapshot);
    let pages = snapshot.segments.iter().filter(|segment| segment.device == DeviceId(0));
    for page in pages {
        let stack = symbols.stack(snapshot.stacks.get(page.stack));
        assert!(stack.iter().any(|frame| frame.function.contains("cubecl_cuda::")), "{stack:#?}");
    }
}

/// The program of `tests/gpu/check.sh`. Its results on a GPU cannot be tested here; but this test checks that it runs, and that
/// memtrack's totals are correct.
#[test]
fn the_gpu_check_runs_on_the_mock() {
    let drivers = mock_cuda::driver_dir();
    for pools in ["1", "0"] {
        let mut check = mock_cuda::with_driver(env!("CARGO_BIN_EXE_gpu_check"), drivers.path());
        let output = child::ends_well(check.env("MEMTRACK_MOCK_POOLS", pools));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.trim_end().ends_with("\nfine"), "{text}");
        assert_eq!(text.contains("cuMemAllocAsync"), pools == "1", "{text}");
    }
}

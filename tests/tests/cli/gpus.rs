//! `memtrack gpus` as a user runs it, and the library's statistics, on the mock driver and without any driver.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use memtrack_core::allocator::{CachingAllocator, CudaMemory, Settings};
use memtrack_core::cuda::list_gpu_processes;
use memtrack_core::event::DeviceId;
use memtrack_tests::{child, memtrack, mock_cuda};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// Runs `memtrack gpus` with the drivers in a folder.
fn gpus(drivers: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    mock_cuda::with_driver(memtrack(), drivers)
        .arg("gpus")
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .expect("memtrack can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn devices_memory_and_processes_are_printed() {
    let drivers = mock_cuda::driver_dir();
    let environment = [
        ("MEMTRACK_MOCK_DEVICES", "2"),
        ("MEMTRACK_MOCK_TOTAL", "1073741824"),
        ("MEMTRACK_MOCK_OTHER_BYTES", "1048576"),
        ("MEMTRACK_MOCK_PROCESSES", "0:77:104857600,0:12345:-"),
    ];
    let output = gpus(drivers.path(), &[], &environment);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "\
driver 0.0-memtrack-mock, CUDA 12.8

GPU 0: memtrack mock device
  memory     101.0 MiB used, 923.0 MiB free, 1.00 GiB in all
  pools      yes, releasing above 0 B
  processes          77   100.0 MiB
                  12345     unknown

GPU 1: memtrack mock device
  memory     1.0 MiB used, 1023.0 MiB free, 1.00 GiB in all
  pools      yes, releasing above 0 B
  processes  none
"
    );
    assert_eq!(text(&output.stderr), "");

    let output = gpus(drivers.path(), &["--json"], &environment);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = &value["gpus"][0];
    assert_eq!(first["used_bytes"], 101 * MIB);
    assert_eq!(first["device"]["number"], 0);
    assert_eq!(first["pool"]["used_peak_bytes"], 0);
    assert_eq!(first["processes"][0]["used_bytes"], 100 * MIB);
    assert_eq!(first["processes"][1]["used_bytes"], Value::Null);
    assert_eq!(value["missing"], Value::Null);
}

#[test]
fn a_device_without_pools_is_marked() {
    let drivers = mock_cuda::driver_dir();
    let output = gpus(drivers.path(), &[], &[("MEMTRACK_MOCK_POOLS", "0")]);
    assert!(text(&output.stdout).contains("  pools      no\n"), "{}", text(&output.stdout));
}

#[test]
fn without_nvml_the_driver_answers() {
    let drivers = mock_cuda::driver_dir();
    let environment = [("MEMTRACK_MOCK_NVML_ERROR", "9"), ("MEMTRACK_MOCK_OTHER_BYTES", "1048576")];
    let output = gpus(drivers.path(), &[], &environment);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("CUDA device 0: memtrack mock device\n  memory     1.0 MiB used"));
    assert!(
        text(&output.stderr).starts_with("memtrack: NVML cannot be loaded: "),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(text(&output.stderr).lines().count(), 1);
}

#[test]
fn without_the_driver_nvml_answers() {
    let drivers = mock_cuda::driver_dir();
    let output = gpus(drivers.path(), &[], &[("MEMTRACK_MOCK_INIT_ERROR", "803")]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("GPU 0: memtrack mock device (not visible to CUDA programs)\n"));
    let expected =
        "memtrack: the CUDA driver does not answer: cuInit gives CUDA_ERROR_SYSTEM_DRIVER_MISMATCH\n";
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn a_failing_driver_without_nvml_is_reported_on_one_line() {
    let drivers = mock_cuda::driver_dir();
    let environment = [("MEMTRACK_MOCK_INIT_ERROR", "100"), ("MEMTRACK_MOCK_NVML_ERROR", "9")];
    let output = gpus(drivers.path(), &[], &environment);
    assert_eq!(output.status.code(), Some(3));
    let expected = "memtrack: the CUDA driver does not answer: cuInit gives CUDA_ERROR_NO_DEVICE\n";
    assert_eq!(text(&output.stderr), expected);
    assert_eq!(text(&output.stdout), "");
}

/// If any driver call fails, the command ends with a one-line error.
#[test]
fn a_failing_call_is_reported_on_one_line() {
    let drivers = mock_cuda::driver_dir();
    for (call, expected) in [
        ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain gives CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuMemGetInfo_v2", "cuMemGetInfo gives CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuMemPoolGetAttribute", "cuMemPoolGetAttribute gives CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuDeviceGetName", "cuDeviceGetName gives CUDA_ERROR_OUT_OF_MEMORY"),
    ] {
        let failure = format!("{call}:2");
        let environment = [("MEMTRACK_MOCK_NVML_ERROR", "9"), ("MEMTRACK_MOCK_FAIL", failure.as_str())];
        let output = gpus(drivers.path(), &[], &environment);
        assert_eq!(output.status.code(), Some(3), "{call}");
        assert_eq!(text(&output.stderr), format!("memtrack: the CUDA driver does not answer: {expected}\n"));
    }
}

/// The files in the folder are found before the machine's driver, but are not libraries.
#[test]
fn a_missing_driver_is_reported_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ml.so"] {
        fs::write(folder.path().join(name), "long enough for the header of a library, but none. ".repeat(4))
            .unwrap();
    }
    let output = gpus(folder.path(), &[], &[]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));
    let stderr = text(&output.stderr);
    assert!(
        stderr.starts_with("memtrack: no CUDA driver: ") && stderr.contains("libcuda.so.1: "),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1);
    // With `--json`, the output is still JSON, and contains the reason.
    let output = gpus(folder.path(), &["--json"], &[]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(format!("memtrack: {}\n", value["missing"].as_str().unwrap()), text(&output.stderr));
    assert_eq!(value["gpus"], serde_json::json!([]));
}

/// A function that the hook of memtrack's `cuda` feature calls. The command contains the hook only in these tests, because cargo
/// unifies features. A driver may lack the function.
const CALLED_BY_THE_HOOK: &str = "cuDevicePrimaryCtxGetState";

/// Returns the names of the driver functions that the command calls when NVML fails, as recorded by the mock driver.
fn called() -> BTreeSet<String> {
    let drivers = mock_cuda::driver_dir();
    let trace = drivers.path().join("trace");
    let environment = [("MEMTRACK_MOCK_NVML_ERROR", "9"), ("MEMTRACK_MOCK_TRACE", trace.to_str().unwrap())];
    gpus(drivers.path(), &[], &environment);
    fs::read_to_string(trace)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_suffix(" 0"))
        .filter(|&name| name != CALLED_BY_THE_HOOK)
        .map(String::from)
        .collect()
}

/// Builds a driver that lacks one function; all others do nothing and return 0.
fn build_driver_without(missing: &str, path: &Path) {
    let source = path.with_extension("c");
    let known = include_str!("../../mock_cuda/names.txt").lines().filter(|&name| name != missing);
    let code: String = known.map(|name| format!("int {name}(void) {{ return 0; }}\n")).collect();
    fs::write(&source, code).unwrap();
    let mut cc = Command::new("cc");
    child::ends_well(cc.args(["-shared", "-fPIC", "-x", "c"]).arg(&source).arg("-o").arg(path));
}

fn assert_lacks(drivers: &Path, name: &str) {
    let output = gpus(drivers, &[], &[("MEMTRACK_MOCK_NVML_ERROR", "9")]);
    let expected = format!("memtrack: the CUDA driver has no {name}: CUDA 11.4 or newer is required\n");
    assert_eq!(text(&output.stderr), expected);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), String::new()), "{name}");
}

/// An older driver may lack any function that the command calls.
#[test]
fn a_driver_that_lacks_a_function_is_reported_on_one_line() {
    let called = called();
    assert!(
        called.contains("cuInit") && called.contains("cuMemGetInfo_v2") && called.len() > 10,
        "{called:?}"
    );
    let drivers = mock_cuda::driver_dir();
    let names = ["libcuda.so.1", "libcuda.so"].map(|name| drivers.path().join(name));
    for missing in &called {
        for name in &names {
            fs::remove_file(name).unwrap();
        }
        build_driver_without(missing, &names[0]);
        std::os::unix::fs::symlink(&names[0], &names[1]).unwrap();
        assert_lacks(drivers.path(), missing);
    }
}

/// The CUDA toolkit contains a stub `libcuda.so` to link against, which cudarc prefers to the driver.
#[test]
fn a_stub_beside_the_driver_is_reported_on_one_line() {
    let drivers = mock_cuda::driver_dir();
    let stub = drivers.path().join("libcuda.so");
    fs::remove_file(&stub).unwrap();
    build_driver_without("cuDeviceGetCount", &stub);
    assert_lacks(drivers.path(), "cuDeviceGetCount");
}

/// The message quotes the dynamic loader's error, without the name of the Rust crate that calls it.
#[test]
fn nvml_that_is_no_library_is_reported_without_jargon() {
    let drivers = mock_cuda::driver_dir();
    for name in ["libnvidia-ml.so.1", "libnvidia-ml.so"] {
        let path = drivers.path().join(name);
        let _ = fs::remove_file(&path);
        fs::write(path, "long enough for the header of a library, but none. ".repeat(4)).unwrap();
    }
    let stderr = text(&gpus(drivers.path(), &[], &[]).stderr);
    assert!(
        stderr.starts_with("memtrack: NVML cannot be loaded: ") && stderr.contains("libnvidia-ml.so"),
        "{stderr}"
    );
    assert!(!stderr.contains("libloading"), "{stderr}");
}

/// Prints the lists of processes on devices 0 and 1, as PyTorch formats them. The test below runs this in a separate
/// process, whose library path has the mock driver.
#[test]
#[ignore = "is run by the test below"]
fn prints_lists_of_processes() {
    for device in 0..2 {
        println!("<{}>", list_gpu_processes(device).unwrap());
    }
    let allocator = CachingAllocator::new(
        [CudaMemory::new(0).unwrap(), CudaMemory::new(1).unwrap()],
        &Settings::default(),
    );
    let allocator = allocator.unwrap();
    for device in 0..2 {
        println!("<{}>", allocator.list_gpu_processes(DeviceId(device)).unwrap());
    }
}

#[test]
fn processes_are_listed_as_pytorch_does() {
    let drivers = mock_cuda::driver_dir();
    let output = mock_cuda::find_driver(&mut child::this_program(prints_lists_of_processes), drivers.path())
        .env("MEMTRACK_MOCK_DEVICES", "2")
        .env("MEMTRACK_MOCK_TOTAL", (20 << 30).to_string())
        .env("MEMTRACK_MOCK_PROCESSES", "0:77:104857600,0:1234567:16911433728,0:8:1")
        .output()
        .unwrap();
    let stdout = child::assert_passed(&output).text;
    let expected = "\
<GPU:0
process         77 uses      100.000 MB GPU memory
process    1234567 uses    16128.000 MB GPU memory
process          8 uses        0.000 MB GPU memory>
<GPU:1
no processes are running>
";
    // The function and the allocator's method return the same text.
    assert!(stdout.contains(&expected.repeat(2)), "{stdout}");
}

#[test]
fn without_nvml_the_list_is_pytorchs_message() {
    let drivers = mock_cuda::driver_dir();
    let output = mock_cuda::find_driver(&mut child::this_program(the_text_without_nvml), drivers.path())
        .env("MEMTRACK_MOCK_NVML_ERROR", "9")
        .output()
        .unwrap();
    child::assert_passed(&output);
}

/// Runs in a separate process, in which NVML finds no driver.
#[test]
#[ignore = "is run by the test above"]
fn the_text_without_nvml() {
    let text = "cuda driver can't be loaded, is cuda enabled?";
    assert_eq!(list_gpu_processes(0).unwrap(), text);
    let allocator = CachingAllocator::new([CudaMemory::new(0).unwrap()], &Settings::default()).unwrap();
    assert_eq!(allocator.list_gpu_processes(DeviceId(0)).unwrap(), text);
}

//! The processes in PyTorch's out-of-memory message, with NVML queried as on a real device.

use memtrack_core::allocator::{AllocatorError, CachingAllocator, CudaMemory, Settings};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_tests::{child, mock_cuda};

const TOTAL: u64 = 512 << 20;

/// Runs in its own process; the environment contains the expected sentences about processes.
#[test]
#[ignore = "is run by the tests below"]
fn memory_runs_out() {
    let allocator = CachingAllocator::new(CudaMemory::all().unwrap(), &Settings::default()).unwrap();
    let _kept = allocator.allocate(100 << 20, DeviceId(0), StreamId(0)).unwrap();
    let error = allocator.allocate(600 << 20, DeviceId(0), StreamId(0)).unwrap_err();
    let AllocatorError::OutOfMemory(error_of) = &error else { panic!("{error}") };
    let expected = std::env::var("EXPECTED").unwrap();
    let start = format!(
        "CUDA out of memory. Tried to allocate 600.00 MiB. GPU 0 has a total capacity of 512.00 MiB of which 412.00 MiB \
         is free. {expected}Of the allocated memory 100.00 MiB is allocated by PyTorch, and 0 bytes is reserved"
    );
    assert!(error.to_string().starts_with(&start), "{error}\n{start}");
    assert_eq!((error_of.facts.device_free_bytes, error_of.facts.device_total_bytes), (412 << 20, TOTAL));
}

/// Checks the message for these `processes`, in which `$$` stands for the process that runs out of memory.
fn check(processes: &str, settings: &[(&str, &str)], expected: &str) {
    let drivers = mock_cuda::driver_dir();
    let program = child::this_program(memory_runs_out);
    // The shell `exec`s the program, so that `$$` is the program's process id.
    let script = format!("MEMTRACK_MOCK_PROCESSES={processes} exec \"$0\" \"$@\"");
    let output = mock_cuda::with_driver("sh", drivers.path())
        .args(["-c", &script])
        .arg(program.get_program())
        .args(program.get_args())
        .envs([("MEMTRACK_MOCK_TOTAL", TOTAL.to_string()), ("MEMTRACK_MOCK_DEVICES", "2".into())])
        .envs(settings.iter().copied())
        .env("EXPECTED", expected)
        .output()
        .unwrap();
    child::assert_passed(&output);
}

#[test]
fn this_process_and_others_are_named() {
    let this = "Including non-PyTorch memory, this process has 300.00 MiB memory in use. ";
    let other = "Process 4242 has 1.50 GiB memory in use. ";
    check("0:$$:314572800", &[], this);
    check("0:4242:1610612736", &[], other);
    // Processes are named in NVML's order; those on another device or with an unknown amount of memory are omitted.
    check("0:4242:1610612736,1:7:1024,0:8:-,0:$$:314572800", &[], &format!("{other}{this}"));
}

#[test]
fn without_nvml_no_process_is_named() {
    check("0:$$:314572800", &[("MEMTRACK_MOCK_NVML_ERROR", "9")], "");
    check("", &[], "");
}

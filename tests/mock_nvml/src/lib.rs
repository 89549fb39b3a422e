//! A `libnvidia-ml.so.1` for tests: the devices of the mock CUDA driver, seen from outside, and the processes that the
//! environment lists.
//!
//! - `MEMTRACK_MOCK_DEVICES`, `MEMTRACK_MOCK_TOTAL`, `MEMTRACK_MOCK_OTHER_BYTES`: as for the mock driver. The used bytes
//!   are the sum of these other bytes and the processes' bytes.
//! - `MEMTRACK_MOCK_PROCESSES=DEVICE:PID:BYTES,…`: the compute processes; `-` for bytes that NVML cannot determine.
//! - `MEMTRACK_MOCK_NVML_ERROR`: the code that `nvmlInit_v2` returns, 9 for "driver not loaded".
#![allow(unsafe_code, non_snake_case)]

use std::env;
use std::ffi::{CStr, c_char, c_void};

const INVALID_ARGUMENT: i32 = 2;
const NOT_FOUND: i32 = 6;
const INSUFFICIENT_SIZE: i32 = 7;
/// NVML's value for a process whose memory it cannot determine.
const NOT_AVAILABLE: u64 = u64::MAX;

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub(crate) struct Memory {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlProcessInfo_t` of the `_v3` functions.
#[repr(C)]
pub(crate) struct Process {
    pid: u32,
    used: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

fn number(name: &str, default: u64) -> u64 {
    let text = env::var(format!("MEMTRACK_MOCK_{name}")).ok().filter(|text| !text.is_empty());
    text.map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("MEMTRACK_MOCK_{name}={text} is no number"))
    })
}

fn devices() -> u64 {
    number("DEVICES", 1)
}

/// Returns the pid and the bytes of the compute processes on a device.
fn processes(device: u64) -> Vec<(u32, u64)> {
    let text = env::var("MEMTRACK_MOCK_PROCESSES").unwrap_or_default();
    let parsed = text.split(',').filter(|part| !part.is_empty()).map(|part| {
        let parse =
            |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{part} is not DEVICE:PID:BYTES"));
        match part.split(':').collect::<Vec<_>>()[..] {
            [device, pid, "-"] => (parse(device), parse(pid) as u32, NOT_AVAILABLE),
            [device, pid, bytes] => (parse(device), parse(pid) as u32, parse(bytes)),
            _ => panic!("{part} is not DEVICE:PID:BYTES"),
        }
    });
    parsed.filter(|&(on, ..)| on == device).map(|(_, pid, bytes)| (pid, bytes)).collect()
}

fn put<T>(place: *mut T, value: T) -> i32 {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller promises that its out-parameters can be written.
    unsafe { place.write(value) };
    0
}

fn put_text(place: *mut c_char, length: u32, text: &str) -> i32 {
    if place.is_null() || length as usize <= text.len() {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller promises room for `length` bytes, enough for the text and its terminator.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, text.len());
        place.add(text.len()).write(0);
    }
    0
}

/// Returns the device of a handle; a handle is a device's number plus one.
fn device_of(handle: *mut c_void) -> Option<u64> {
    (handle.addr() as u64).checked_sub(1).filter(|&device| device < devices())
}

fn put_handle(place: *mut *mut c_void, device: u64) -> i32 {
    if device >= devices() {
        return INVALID_ARGUMENT;
    }
    put(place, std::ptr::without_provenance_mut(device as usize + 1))
}

/// Returns the UUID that the mock driver reports, in NVML's spelling.
fn uuid(device: u64) -> String {
    let mut bytes = *b"memtrack-mock--\0";
    bytes[15] = device as u8;
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    format!("GPU-{}-{}-{}-{}-{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..16))
}

/// Initializes NVML.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlInit_v2() -> i32 {
    number("NVML_ERROR", 0) as i32
}

/// Shuts NVML down.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlShutdown() -> i32 {
    0
}

/// Describes a code.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlErrorString(code: i32) -> *const c_char {
    match code {
        0 => c"Success",
        9 => c"Driver Not Loaded",
        _ => c"Unknown Error",
    }
    .as_ptr()
}

/// Writes the driver's version.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlSystemGetDriverVersion(text: *mut c_char, length: u32) -> i32 {
    put_text(text, length, "0.0-memtrack-mock")
}

/// Writes the newest CUDA version that the driver supports.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut i32) -> i32 {
    put(version, number("DRIVER_VERSION", 12_080) as i32)
}

/// Writes the number of devices.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetCount_v2(count: *mut u32) -> i32 {
    put(count, devices() as u32)
}

/// Writes the handle of a device, by its number.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: u32, handle: *mut *mut c_void) -> i32 {
    put_handle(handle, u64::from(index))
}

/// Writes the handle of a device, by its UUID.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetHandleByUUID(text: *const c_char, handle: *mut *mut c_void) -> i32 {
    if text.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller promises a null-terminated string.
    let wanted = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    match (0..devices()).find(|&device| uuid(device) == wanted) {
        Some(device) => put_handle(handle, device),
        None => NOT_FOUND,
    }
}

/// Writes a device's number.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetIndex(handle: *mut c_void, index: *mut u32) -> i32 {
    device_of(handle).map_or(INVALID_ARGUMENT, |device| put(index, device as u32))
}

/// Writes a device's name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetName(handle: *mut c_void, text: *mut c_char, length: u32) -> i32 {
    device_of(handle).map_or(INVALID_ARGUMENT, |_| put_text(text, length, "memtrack mock device"))
}

/// Writes a device's UUID.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetUUID(handle: *mut c_void, text: *mut c_char, length: u32) -> i32 {
    device_of(handle).map_or(INVALID_ARGUMENT, |device| put_text(text, length, &uuid(device)))
}

/// Writes a device's total, free and used memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: *mut c_void, memory: *mut Memory) -> i32 {
    let Some(device) = device_of(handle) else { return INVALID_ARGUMENT };
    let known = processes(device).into_iter().map(|(_, bytes)| bytes).filter(|&bytes| bytes != NOT_AVAILABLE);
    let (total, used) = (number("TOTAL", 16 << 30), number("OTHER_BYTES", 0) + known.sum::<u64>());
    put(memory, Memory { version: 0, total, reserved: 0, free: total.saturating_sub(used), used })
}

/// Writes the compute processes of a device.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    handle: *mut c_void,
    count: *mut u32,
    list: *mut Process,
) -> i32 {
    let Some(device) = device_of(handle) else { return INVALID_ARGUMENT };
    write_processes(&processes(device), count, list)
}

/// Writes the graphics processes of a device: none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    handle: *mut c_void,
    count: *mut u32,
    list: *mut Process,
) -> i32 {
    device_of(handle).map_or(INVALID_ARGUMENT, |_| write_processes(&[], count, list))
}

/// Writes all processes, if there is room for them.
fn write_processes(processes: &[(u32, u64)], count: *mut u32, list: *mut Process) -> i32 {
    if count.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller promises that `count` can be read.
    let room = unsafe { count.read() } as usize;
    put(count, processes.len() as u32);
    if processes.is_empty() {
        return 0;
    }
    if room < processes.len() || list.is_null() {
        return INSUFFICIENT_SIZE;
    }
    for (index, &(pid, used)) in processes.iter().enumerate() {
        let process = Process { pid, used, gpu_instance: u32::MAX, compute_instance: u32::MAX };
        // SAFETY: the caller promises room for `room` processes.
        unsafe { list.add(index).write(process) };
    }
    0
}

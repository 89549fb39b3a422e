//! Devices: numbers, names, attributes, memory.

use std::ffi::c_char;

use crate::call::{entries, put};
use crate::machine::machine;
use crate::settings::settings;
use crate::status::{CuResult, Status};

/// The name of every device, which distinguishes measurements on the mock from those on a GPU.
const NAME: &[u8] = b"memtrack mock device\0";

entries! {
    fn cuDeviceGetCount(count: *mut i32) {
        put(count, machine()?.devices() as i32)
    }

    fn cuDeviceGet(device: *mut i32, ordinal: i32) {
        check(ordinal)?;
        put(device, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) {
        check(device)?;
        put_text(name, length, NAME)
    }

    fn cuDeviceGetPCIBusId(text: *mut c_char, length: i32, device: i32) {
        check(device)?;
        put_text(text, length, format!("0000:{:02X}:00.0\0", device + 1).as_bytes())
    }

    fn cuDeviceGetByPCIBusId(device: *mut i32, text: *const c_char) {
        if text.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the caller promises a null-terminated string.
        let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_str().map_err(|_| Status::INVALID_VALUE)?;
        let bus = text.split(':').rev().nth(1).and_then(|bus| i32::from_str_radix(bus, 16).ok());
        let number = bus.map(|bus| bus - 1).ok_or(Status::INVALID_VALUE)?;
        check(number)?;
        put(device, number)
    }

    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32) {
        check(device)?;
        put(uuid, uuid_of(device))
    }

    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) {
        check(device)?;
        put(uuid, uuid_of(device))
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) {
        check(device)?;
        put(bytes, settings().total as usize)
    }

    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) {
        check(device)?;
        put(value, attribute_of(attribute, device))
    }

    fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: i32) {
        check(device)?;
        put(major, 9)?;
        put(minor, 0)
    }

    fn cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) {
        check(device)?;
        check(peer)?;
        put(can, i32::from(device != peer))
    }
}

fn check(device: i32) -> CuResult {
    machine()?.index(device).map(drop)
}

fn uuid_of(device: i32) -> [u8; 16] {
    let mut uuid = *b"memtrack-mock--\0";
    uuid[15] = device as u8;
    uuid
}

/// Writes a null-terminated string, truncated to the caller's length.
fn put_text(place: *mut c_char, length: i32, text: &[u8]) -> CuResult {
    let length = usize::try_from(length).ok().filter(|&length| length > 0).ok_or(Status::INVALID_VALUE)?;
    if place.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let copied = length.min(text.len()) - 1;
    // SAFETY: the caller promises room for `length` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, copied);
        place.add(copied).write(0);
    }
    Ok(())
}

/// Returns an attribute, by its number in `CUdevice_attribute`, with the values of a large present-day device.
fn attribute_of(attribute: i32, device: i32) -> i32 {
    match attribute {
        1..=3 => 1024,      // threads per block; block x, y
        4 => 64,            // block z
        5 | 11 => i32::MAX, // grid x; pitch
        6 | 7 => 65_535,    // grid y, z
        8 => 49_152,        // shared memory per block
        9 => 65_536,        // constant memory
        10 => 32,           // warp size
        12 | 82 => 65_536,  // registers per block, per multiprocessor
        13 => 1_980_000,    // clock, kHz
        14 => 512,          // texture alignment
        16 => 132,          // multiprocessors
        33 => device + 1,   // PCI bus
        36 => 2_619_000,    // memory clock, kHz
        37 => 5_120,        // memory bus width, bits
        38 => 50 << 20,     // L2 cache
        39 => 2_048,        // threads per multiprocessor
        40 => 3,            // copy engines
        75 => 9,            // compute capability, major
        81 => 233_472,      // shared memory per multiprocessor
        97 => 232_448,      // shared memory per block, opt-in
        106 => 32,          // blocks per multiprocessor
        // Overlap, mapped host memory, concurrent kernels, unified addresses, priorities, managed memory (three),
        // cooperative launch, virtual memory.
        15 | 19 | 31 | 41 | 78 | 83 | 89 | 90 | 95 | 102 => 1,
        115 => i32::from(settings().pools), // memory pools
        _ => 0,
    }
}

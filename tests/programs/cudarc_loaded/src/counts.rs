//! The mock driver's counts and memtrack's, which must be equal after each step.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::DeviceStatistics;
use std::ffi::CStr;

/// Allocations, frees, live bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub allocations: i64,
    pub frees: i64,
    pub live_bytes: i64,
}

/// Returns the mock driver's counts of a device; -2 is the host.
pub fn of_driver(device: i32) -> Counts {
    let count = count_function();
    let all_kinds = -1;
    Counts {
        allocations: count(device, all_kinds, 0),
        frees: count(device, all_kinds, 1),
        live_bytes: count(device, all_kinds, 2),
    }
}

type Count = extern "C" fn(i32, i32, i32) -> i64;

fn count_function() -> Count {
    // SAFETY: the driver is already open, so `dlopen` returns the same library; the type is the mock's declaration.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        let name: &CStr = c"memtrack_mock_count";
        let function = libc::dlsym(library, name.as_ptr());
        assert!(!function.is_null(), "this is not the mock driver");
        std::mem::transmute::<*mut libc::c_void, Count>(function)
    }
}

/// Returns memtrack's counts of a device.
pub fn of_memtrack(device: DeviceId) -> Counts {
    let snapshot = memtrack_core::snapshot().expect("memory is monitored");
    let of_device = snapshot.devices.iter().find(|statistics| statistics.device == device);
    let DeviceStatistics { allocations, frees, allocated_bytes, freed_bytes, .. } =
        of_device.copied().unwrap_or(DeviceStatistics::of(device));
    let blocks = snapshot.blocks.iter().filter(|block| block.device == device);
    let live: u64 = blocks.map(|block| block.size_bytes).sum();
    assert_eq!(
        live,
        allocated_bytes - freed_bytes,
        "{device}: the live blocks are the difference of the sums"
    );
    Counts { allocations: allocations as i64, frees: frees as i64, live_bytes: live as i64 }
}

/// Asserts that the driver's and memtrack's counts are equal for two devices and pinned memory.
pub fn compare(step: &str) {
    for device in 0..2 {
        assert_eq!(
            of_memtrack(DeviceId(device)),
            of_driver(i32::from(device)),
            "after {step}, device {device}"
        );
    }
    assert_eq!(of_memtrack(DeviceId::PINNED), of_driver(-2), "after {step}, pinned memory");
    println!("{step}: {} bytes", of_driver(0).live_bytes);
}

//! Failing calls leave the recording unchanged.

use crate::books::{assert_agrees_with_mock, events, snapshot, start};
use crate::client::{self, OUT_OF_MEMORY, call};
use memtrack_core::event::{Action, DeviceId};
use memtrack_tests::mock_cuda::run_ignored_test;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

/// The device has 1 MiB of memory.
#[test]
#[ignore = "is run by the test below"]
fn out_of_memory() {
    static REQUESTED: AtomicU64 = AtomicU64::new(0);
    client::begin(0);
    start();
    memtrack_core::attach_out_of_memory_observer(|oom| {
        assert_eq!((oom.device, oom.device_total_bytes), (DeviceId(0), 1 << 20));
        REQUESTED.store(oom.requested_bytes, Ordering::Relaxed);
    });
    client::alloc(1 << 18).expect("memory");
    assert_eq!(client::alloc(1 << 20), Err(OUT_OF_MEMORY));
    assert_eq!(REQUESTED.load(Ordering::Relaxed), 1 << 20);
    assert_agrees_with_mock(0);
    // An invalid call is not recorded as out of memory, and its out-parameter is not read.
    let failed = call!(cuMemAlloc_v2(null_mut() => *mut u64, 8 => usize));
    assert!(failed.is_err_and(|code| code != OUT_OF_MEMORY));
    let mut garbage = 0xdead_beef_u64;
    assert!(call!(cuMemAlloc_v2(&mut garbage => *mut u64, 0 => usize)).is_err());
    assert_agrees_with_mock(0);
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    assert_eq!(events(snapshot, DeviceId(0), Action::Oom), 1);
    let row = snapshot.events.action.iter().position(|&action| action == Action::Oom).expect("there is one");
    assert_eq!(snapshot.events.size_bytes[row], 1 << 20);
    assert_eq!(snapshot.events.address[row], (1 << 20) - (1 << 18));
}

/// Frees of null and frees that the driver refuses are not recorded.
#[test]
#[ignore = "is run by the test below"]
fn unknown_free() {
    client::begin(0);
    start();
    client::alloc(100).expect("memory");
    assert!(client::free(0x1234_5600).is_err());
    let _ = client::free(0);
    assert_agrees_with_mock(0);
    assert_eq!(events(&snapshot(), DeviceId(0), Action::Free), 0);
    assert_eq!(memtrack_core::cuda::unknown_frees(), 1);
    memtrack_core::stop();
}

#[test]
fn out_of_memory_is_recorded_and_observed() {
    run_ignored_test(out_of_memory, &[("MEMTRACK_MOCK_TOTAL", "1048576")]);
}

#[test]
fn an_unknown_free_is_counted_and_not_recorded() {
    run_ignored_test(unknown_free, &[]);
}

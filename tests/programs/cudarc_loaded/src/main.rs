//! Allocates and frees memory of the mock driver in every possible way, and asserts after each step that memtrack's counts
//! equal the driver's. Argument: the path for the recording.
#![allow(unsafe_code)]

mod counts;
mod raw;
mod steps;
mod virtual_memory;

use counts::{Counts, compare, of_driver};
use cudarc::driver::CudaContext;
use memtrack_core::recorder::Options;
use std::io;

fn main() -> io::Result<()> {
    let file = std::env::args_os().nth(1).expect("usage: PROGRAM FILE.memtrack");
    // Host memory is not the subject, and would fill the ring.
    memtrack_core::start_monitor_with(&Options::new())?;
    assert!(memtrack_core::cuda::hook_is_in_place(), "the hook is linked in");

    steps::one_buffer();
    steps::a_model();
    steps::kinds_of_memory();
    steps::streams();
    steps::devices();
    steps::threads();
    virtual_memory::mapped();
    raw::arrays();
    if CudaContext::new(0).expect("a device").has_async_alloc() {
        steps::statistics();
        raw::created_pool();
    }
    raw::failures();
    raw::contexts();
    for device in [0, 1, -2] {
        let Counts { allocations, frees, live_bytes } = of_driver(device);
        assert!(
            allocations > 0 && allocations == frees && live_bytes == 0,
            "device {device}: {:?}",
            of_driver(device)
        );
    }
    compare("the end");
    // `raw::failures` frees an unknown address on purpose.
    assert_eq!(memtrack_core::cuda::unknown_frees(), 1);

    let recording = memtrack_core::stop();
    recording.save(file)
}

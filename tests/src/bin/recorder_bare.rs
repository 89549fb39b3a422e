//! A program that monitors and has no event source: `recorder_bare [without_host_heap]`.

use memtrack_core::recorder::Options;

fn main() {
    let options = match std::env::args().nth(1).as_deref() {
        Some("without_host_heap") => Options::new().without_host_heap(),
        _ => Options::new(),
    };
    for _ in 0..3 {
        memtrack_core::start_monitor_with(&options).expect("nothing is streamed");
        drop(memtrack_core::stop());
    }
}

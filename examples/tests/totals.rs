//! The candle training run with every block recorded: memtrack's sums equal those of an independent counting allocator.
//!
//! The sums cover the whole process and are read one after another, so no other thread may allocate or free in between: the
//! test runs on the program's main thread, after candle's threads have ended.

use memtrack_core::event::{Action, DeviceId, EventFlags};
use memtrack_core::host::internal_heap_bytes;
use memtrack_core::recorder::Options;
use memtrack_core::{TrackingAllocator, start_monitor_with, stop};
use memtrack_examples::config::Config;
use memtrack_examples::training;
use memtrack_tests::counting::{Counting, live_bytes};
use memtrack_tests::lone;
use rayon::ThreadPoolBuilder;
use std::alloc::System;
use std::process::ExitCode;
use std::thread;

#[global_allocator]
static ALLOCATOR: Counting<TrackingAllocator<System>> = Counting::new(TrackingAllocator::system());

fn main() -> ExitCode {
    lone::run(
        "live_bytes_of_a_training_run_equal_those_of_a_counting_allocator",
        live_bytes_of_a_training_run_equal_those_of_a_counting_allocator,
    )
}

/// Runs `work` on a rayon pool, and returns after the pool's threads have ended. The threads of rayon's default pool
/// never end.
fn on_threads_that_end<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let mut threads = Vec::new();
    let spawn = |thread: rayon::ThreadBuilder| {
        threads.push(thread::Builder::new().spawn(|| thread.run())?);
        Ok(())
    };
    let pool = ThreadPoolBuilder::new().num_threads(3).spawn_handler(spawn).build().unwrap();
    let outcome = pool.install(work);
    drop(pool);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    outcome
}

fn live_bytes_of_a_training_run_equal_those_of_a_counting_allocator() {
    start_monitor_with(&Options::new().exact().max_entries(u64::MAX)).unwrap();
    let (counted, own) = (live_bytes(), internal_heap_bytes());
    let config = Config { steps: 3, ..Config::tiny() };
    let outcome = on_threads_that_end(|| training::train(&config, |_, _| ()).unwrap());
    let (counted, own) = (live_bytes() - counted, internal_heap_bytes() - own);
    let recording = stop();

    let snapshot = recording.snapshot();
    let host = snapshot.devices.iter().find(|device| device.device == DeviceId::HOST).unwrap();
    let live = host.allocated_bytes as i64 - host.freed_bytes as i64;
    assert_eq!(live + own, counted, "live bytes by memtrack, and memtrack's own memory");
    assert!(host.allocations > 10_000 && host.dropped == 0, "{host:?}");
    assert!(snapshot.threads.len() > 3, "candle's threads are among them");

    // The events add up to the same sums, and so do the live blocks.
    let mut by_events = 0;
    let mut from_before = 0;
    for event in snapshot.events.iter() {
        match event.action {
            Action::Alloc => by_events += event.size_bytes as i64,
            _ => by_events -= event.size_bytes as i64,
        }
        if event.flags.contains(EventFlags::UNKNOWN_BLOCK) {
            from_before += event.size_bytes as i64;
        }
    }
    assert_eq!(by_events, live);
    let blocks: i64 = snapshot.blocks.iter().map(|block| block.size_bytes as i64).sum();
    assert_eq!(blocks - from_before, live);
    drop(outcome);
}

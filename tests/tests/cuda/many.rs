//! Several threads, streams and devices, and very many calls.

use crate::books::{assert_agrees_with_mock, events, start};
use crate::client;
use memtrack_core::event::{Action, DeviceId};
use memtrack_core::recorder::Options;
use memtrack_tests::mock_cuda::run_ignored_test;
use memtrack_tests::time;
use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Duration;

/// The mock has two devices: each thread uses one of them, with a separate stream.
#[test]
#[ignore = "is run by the test below"]
fn several_devices() {
    start();
    let together = Barrier::new(4);
    std::thread::scope(|threads| {
        for number in 0..4 {
            let together = &together;
            threads.spawn(move || {
                client::begin(number % 2);
                let stream = client::stream();
                let mut kept = Vec::new();
                for round in 0..200 {
                    let bytes = 512 * (1 + round % 7);
                    kept.push(client::alloc_async(bytes, stream).expect("memory"));
                    kept.push(client::alloc(bytes).expect("memory"));
                    if round % 3 == 0 {
                        client::free(kept.pop().expect("there are two")).expect("it succeeds");
                    }
                }
                together.wait();
                if number == 0 {
                    assert_agrees_with_mock(0);
                    assert_agrees_with_mock(1);
                }
                together.wait();
                for address in kept {
                    client::free(address).expect("it succeeds");
                }
            });
        }
    });
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    assert!(snapshot.blocks.is_empty() && snapshot.segments.is_empty());
    for device in [DeviceId(0), DeviceId(1)] {
        assert_eq!(events(snapshot, device, Action::Alloc), 800);
        assert_eq!(events(snapshot, device, Action::Free), 800);
        let rows = snapshot.events.rows_of(device);
        let streams: HashSet<_> = rows.map(|row| snapshot.events.stream[row]).collect();
        // The streams of the device's two threads, and the default stream.
        assert_eq!(streams.len(), 3);
    }
}

/// Calls `act` under `depth` more stack frames, as a framework would.
#[inline(never)]
fn deep(depth: u32, act: &mut dyn FnMut()) {
    if depth == 0 {
        act()
    } else {
        deep(black_box(depth - 1), act)
    }
    black_box(depth);
}

/// Prints two medians of processor time per driver call, in nanoseconds, with stacks of 40 frames: the time that the hook adds,
/// and the time that capturing the stacks with `backtrace` adds.
#[test]
#[ignore = "is run by the test below"]
fn cost() {
    const CALLS: u32 = 2_000;
    client::begin(0);
    let alloc = client::symbol("cuMemAlloc_v2");
    let free = client::symbol("cuMemFree_v2");
    // A pair of driver calls: an allocation and a free.
    let pair = |with_backtrace: bool| {
        for _ in 0..2 * u32::from(with_backtrace) {
            let mut frames = [0_u64; 256];
            let mut count = 0;
            // SAFETY: only this thread's stack is walked, and no symbols are resolved.
            unsafe {
                backtrace::trace_unsynchronized(|frame| {
                    if count < frames.len() {
                        frames[count] = frame.ip() as u64;
                        count += 1;
                    }
                    true
                });
            }
            black_box(&frames[..count]);
        }
        let mut address = 0_u64;
        client::call_at!(alloc, &mut address => *mut u64, 512 => usize).expect("memory");
        client::call_at!(free, address => u64).expect("it succeeds");
    };
    let measure = |with_backtrace: bool| {
        let mut spent = Duration::ZERO;
        deep(30, &mut || {
            let start = time::of_thread();
            (0..CALLS).for_each(|_| pair(with_backtrace));
            spent = time::of_thread() - start;
        });
        spent.as_nanos() as f64 / f64::from(2 * CALLS)
    };
    let (mut off, mut on, mut slow) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..15 {
        off.push(measure(false));
        slow.push(measure(true));
        memtrack_core::start_monitor_with(&Options::new().without_host_heap()).expect("no file");
        measure(false);
        on.push(measure(false));
        memtrack_core::stop();
    }
    let [off, on, slow] = [off, on, slow].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!("{:.0} {:.0}", on - off, slow - off);
}

#[test]
fn threads_streams_and_devices_are_distinguished() {
    run_ignored_test(several_devices, &[("MEMTRACK_MOCK_DEVICES", "2")]);
}

/// The numbers are meaningful only in a release build.
#[cfg(not(debug_assertions))]
#[test]
#[ignore = "measures time, on a machine that does nothing else: a bench"]
fn the_hook_costs_at_most_half_a_microsecond_and_a_tenth_of_backtrace() {
    let text = run_ignored_test(cost, &[]).text;
    let numbers: Vec<f64> = text.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    println!("added per call: {} ns with stacks, {} ns for backtrace's stacks alone", numbers[0], numbers[1]);
    assert!(numbers[0] <= 500.0 && numbers[0] * 10.0 <= numbers[1], "{text}");
}

//! The cost of each primitive of the hot path, on one pinned thread, on two, and on one per processor (at most 64), as
//! ratios within one run.
//!
//! Run `cargo bench -p memtrack-core --features bench-internals --bench primitives`, and again with
//! `RUSTFLAGS="-C force-frame-pointers=yes"`. Prints medians over batches of alternating primitives, so that noise on
//! the machine affects all primitives equally; asserts nothing.

mod frames;

use memtrack_core::bench_internals::{CaptureMethod, Captures, thread_number};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{self, Context as StackContext, Options};
use memtrack_core::{TrackingAllocator, scope, tasks};
use std::alloc::{Layout, System};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();

const BATCHES: usize = 41;
const CALLS: usize = 3_000;

/// The name of the row for the calls that build the stack. Their cost is subtracted from all other rows.
const CALLS_ALONE: &str = "the calls alone";

const FRAME_POINTERS: &str = "frame pointers";
const EVENT: &str = "whole event, each with a different stack";
const EVENT_ONE_REGION: &str = "… all threads' blocks in 2 MiB";
const EVENT_FREED_ELSEWHERE: &str = "… blocks freed by another thread";

/// A primitive: its name, and a function that runs one batch of it and returns the time per call in ns.
type Primitive = (&'static str, fn(&mut Captures) -> f64);

const CAPTURES: &[Primitive] = &[
    ("backtrace::trace_unsynchronized", |captures| measure_capture(captures, CaptureMethod::Backtrace)),
    ("framehop, 16 caches, previous stack reused", |captures| {
        measure_capture(captures, CaptureMethod::Unwinder)
    }),
    (FRAME_POINTERS, |captures| measure_capture(captures, CaptureMethod::FramePointers)),
    ("capture as the recorder chooses", |captures| {
        time_over_stacks(|_| {
            black_box(captures.take());
        })
    }),
    (CALLS_ALONE, |_| {
        time_over_stacks(|i| {
            black_box(i);
        })
    }),
];

/// Primitives that are measured while memtrack is recording.
const EVENTS: &[Primitive] = &[
    (EVENT, |_| measure_events()),
    (EVENT_ONE_REGION, |_| measure_events_in_one_region()),
    (EVENT_FREED_ELSEWHERE, |_| measure_events_freed_elsewhere()),
];

/// The maximum number of threads.
const MAX_THREADS: usize = 64;
/// The number of threads in the current run.
static THREADS: AtomicUsize = AtomicUsize::new(1);

fn main() {
    println!("capture method of this build: {:?}", Captures::chosen());
    // `-- calls` or `-- events` runs only that part.
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("events") {
        print_events_on_threads();
    }
    if wanted("calls") {
        print_small_calls();
    }
}

fn print_events_on_threads() {
    let all = std::thread::available_parallelism().map_or(2, |all| all.get().clamp(2, MAX_THREADS));
    let counts: BTreeSet<usize> = [1, 2, all].into();
    for threads in counts {
        let mut rows = run(threads, CAPTURES);
        let options = Options::new().context(StackContext::All).max_entries(100_000);
        memtrack_core::start_monitor_with(&options).expect("no file is written");
        rows.extend(run(threads, EVENTS));
        drop(memtrack_core::stop());
        print(threads, &rows);
    }
}

fn time_per_call(calls: usize, mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    for i in 0..calls {
        call(i);
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

fn time_over_stacks(mut leaf: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    let mut calls = 0;
    while calls < CALLS {
        calls += frames::call_under_varying_stacks(&mut leaf);
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

fn measure_capture(captures: &mut Captures, method: CaptureMethod) -> f64 {
    time_over_stacks(|_| {
        black_box(captures.take_by(method).map(<[u64]>::len));
    })
}

/// Measures the allocation and free of blocks that live for 64 allocations, in ns per event.
fn measure_events() -> f64 {
    let mut address = (thread_number() + 1) << 40;
    let (device, stream) = (DeviceId(0), StreamId(0));
    time_over_stacks(|_| {
        address += 512;
        recorder::record_alloc(device, stream, address, 512);
        recorder::record_free(device, stream, address.wrapping_sub(512 * 64), 512);
    }) / 2.0
}

/// Measures the same as [`measure_events`], but with the blocks of all threads interleaved in one range of 2 MiB, as in
/// a shared pool.
fn measure_events_in_one_region() -> f64 {
    const REGION: u64 = 2 << 20;
    let mut number = 0;
    let address = |number: u64, thread: usize| {
        ((MAX_THREADS as u64 + 1) << 40) + (number * MAX_THREADS as u64 + thread as u64) * 512 % REGION
    };
    let (device, stream, thread) = (DeviceId(0), StreamId(0), frames::pinned_processor());
    time_over_stacks(|_| {
        number += 1;
        recorder::record_alloc(device, stream, address(number, thread), 512);
        recorder::record_free(device, stream, address(number.wrapping_sub(32), thread), 512);
    }) / 2.0
}

/// Measures the same as [`measure_events`], but with each thread freeing the blocks of the next thread.
fn measure_events_freed_elsewhere() -> f64 {
    #[repr(align(128))]
    struct Count(AtomicU64);
    static ALLOCATED: [Count; MAX_THREADS] = [const { Count(AtomicU64::new(0)) }; MAX_THREADS];
    static FREED: [Count; MAX_THREADS] = [const { Count(AtomicU64::new(0)) }; MAX_THREADS];
    let address = |number: u64, thread: usize| ((thread as u64 + 1000) << 40) + number * 512;
    let (device, stream, current) = (DeviceId(0), StreamId(0), frames::pinned_processor());
    let next = (current + 1) % THREADS.load(Ordering::Relaxed);
    let mut events = 0;
    let per_pair = time_over_stacks(|_| {
        let number = ALLOCATED[current].0.load(Ordering::Relaxed);
        recorder::record_alloc(device, stream, address(number, current), 512);
        ALLOCATED[current].0.store(number + 1, Ordering::Release);
        events += 1;
        let free = FREED[next].0.load(Ordering::Relaxed);
        if free + 64 < ALLOCATED[next].0.load(Ordering::Acquire) {
            recorder::record_free(device, stream, address(free, next), 512);
            FREED[next].0.store(free + 1, Ordering::Relaxed);
            events += 1;
        }
    });
    per_pair * CALLS as f64 / f64::from(events.max(1))
}

/// Runs the primitives alternately on `threads` pinned threads and returns the median time of each primitive over all
/// threads, in ns.
fn run(threads: usize, primitives: &'static [Primitive]) -> Vec<(&'static str, f64)> {
    THREADS.store(threads, Ordering::Relaxed);
    let barrier = Barrier::new(threads);
    let work = |thread: usize| {
        frames::pin(thread);
        let mut captures = Captures::new();
        let mut samples = vec![Vec::new(); primitives.len()];
        for _ in 0..BATCHES {
            for ((_, batch), samples) in primitives.iter().zip(&mut samples) {
                barrier.wait();
                samples.push(batch(&mut captures));
            }
        }
        samples
    };
    let samples: Vec<Vec<Vec<f64>>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a benchmark thread")).collect()
    });
    let median_of =
        |index: usize| median(samples.iter().flat_map(|thread| thread[index].iter().copied()).collect());
    primitives.iter().enumerate().map(|(index, (name, _))| (*name, median_of(index))).collect()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn print(threads: usize, rows: &[(&str, f64)]) {
    let calls = rows.iter().find(|(name, _)| *name == CALLS_ALONE).map_or(0.0, |(_, ns)| *ns);
    let reference = rows[0].1 - calls;
    println!(
        "\n{threads} thread(s), {:.1} frames on average              ns  times cheaper",
        frames::average_frames()
    );
    // Without frame pointers in the build, there is no chain to walk, so the cost has no meaning.
    let has_frame_pointers = Captures::chosen() == CaptureMethod::FramePointers;
    let is_printed = |name: &str| name != CALLS_ALONE && (has_frame_pointers || name != FRAME_POINTERS);
    for (name, ns) in rows.iter().filter(|(name, _)| is_printed(name)) {
        // The calls that build a stack lead to two events, so each event bears half of their cost.
        let net = if EVENTS.iter().any(|(event, _)| event == name) { ns - calls / 2.0 } else { ns - calls };
        println!("  {name:<46} {net:>9.1} {:>12.1}", reference / net);
    }
}

/// A single call: its name, and a function that runs one batch of it and returns the time per call in ns.
type Call = (&'static str, Box<dyn FnMut() -> f64>);

/// Prints the cost of memtrack's calls while it is off, and the cost of the cheap calls while it is on.
fn print_small_calls() {
    const CALLS: usize = 200_000;
    let layout = Layout::from_size_align(64, 8).expect("a valid layout");
    let tracked = move || time_per_call(CALLS, |_| frames::alloc_free(&ALLOCATOR, layout));
    let attribute = || {
        time_per_call(CALLS, |i| {
            frames::operator(i);
        })
    };
    let rows: &mut [Call] = &mut [
        (
            "alloc+free 64 B, bare",
            Box::new(move || time_per_call(CALLS, |_| frames::alloc_free(&System, layout))),
        ),
        ("alloc+free 64 B, tracked, off", Box::new(tracked)),
        ("alloc+free 64 B, tracked, only counted", Box::new(move || run_counted(tracked))),
        ("alloc+free 64 B, tracked, default sampling", Box::new(move || run_monitored(tracked))),
        (
            "an empty call",
            Box::new(|| {
                time_per_call(CALLS, |i| {
                    black_box(i);
                })
            }),
        ),
        (
            "scope by guard, off",
            Box::new(|| {
                time_per_call(CALLS, |i| {
                    let _scope = scope::operator("matmul");
                    black_box(i);
                })
            }),
        ),
        ("scope by attribute, off", Box::new(attribute)),
        (
            "a function of four tensors, not annotated",
            Box::new(|| measure_four_tensors_by(frames::plain_tensors)),
        ),
        ("… annotated, off", Box::new(measure_four_tensors)),
        ("scope by attribute, on, with the tracker", Box::new(move || run_monitored(attribute))),
        ("scope by guard, on, with the tracker", Box::new(|| run_monitored(measure_guard))),
        ("scope by guard, which allocates, on", Box::new(move || run_monitored(measure_allocating_guard))),
        ("four tensors, on, without operators", Box::new(|| run_monitored(measure_four_tensors))),
        ("four tensors, on, operators recorded", Box::new(measure_recorded_operators)),
        ("a span of `tracing` with its registry", Box::new(measure_span)),
        ("a poll of a future", Box::new(|| measure_polls(Box::pin(std::future::pending())))),
        ("… of a tracked one, off", Box::new(|| measure_polls(tracked_pending()))),
        ("… of a tracked one, on", Box::new(|| run_monitored(|| measure_polls(tracked_pending())))),
        ("a future made, polled and dropped", Box::new(|| measure_short(|| std::future::ready(())))),
        ("… a tracked one, off", Box::new(|| measure_short(tracked_ready))),
        ("… a tracked one, on", Box::new(|| run_monitored(|| measure_short(tracked_ready)))),
    ];
    frames::pin(0);
    let mut samples = vec![Vec::new(); rows.len()];
    for _ in 0..BATCHES {
        for ((_, batch), samples) in rows.iter_mut().zip(&mut samples) {
            samples.push(batch());
        }
    }
    println!("\n1 thread, single calls                             ns/call");
    for ((name, _), samples) in rows.iter().zip(samples) {
        println!("  {name:<46} {:>9.2}", median(samples));
    }
}

fn measure_guard() -> f64 {
    time_per_call(200_000, |i| {
        let _scope = scope::operator("matmul");
        black_box(i);
    })
}

fn measure_allocating_guard() -> f64 {
    let layout = Layout::from_size_align(64, 8).expect("a valid layout");
    time_per_call(200_000, |_| {
        let _scope = scope::operator("matmul");
        frames::alloc_free(&ALLOCATOR, layout);
    })
}

/// Measures a call with three input tensors and one output tensor. The operator log stays below its limit.
fn measure_four_tensors() -> f64 {
    measure_four_tensors_by(frames::tensors)
}

#[inline(always)]
fn measure_four_tensors_by(
    call: impl Fn(&frames::Tensor, &frames::Tensor, &frames::Tensor) -> frames::Tensor,
) -> f64 {
    let tensors: [frames::Tensor; 3] = std::array::from_fn(frames::Tensor::new);
    time_per_call(100_000, |_| {
        black_box(call(&tensors[0], &tensors[1], &tensors[2]));
    })
}

fn measure_recorded_operators() -> f64 {
    memtrack_core::start_monitor_with(&Options::new().operators()).expect("no file is written");
    let result = measure_four_tensors();
    let recording = memtrack_core::stop();
    assert_eq!(recording.snapshot().operators.left_out, 0, "all operators were recorded");
    result
}

/// Measures a `tracing` span with only a registry, for comparison with scopes.
fn measure_span() -> f64 {
    tracing::subscriber::with_default(tracing_subscriber::registry(), || {
        time_per_call(200_000, |i| {
            let _span = tracing::info_span!("matmul").entered();
            black_box(i);
        })
    })
}

fn tracked_pending() -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(tasks::named("waits", std::future::pending()))
}

fn tracked_ready() -> impl Future<Output = ()> {
    tasks::named("request", std::future::ready(()))
}

/// Measures polls of a future that is never ready. It is boxed, so that the compiler does not know it.
fn measure_polls(future: Pin<Box<dyn Future<Output = ()>>>) -> f64 {
    let (mut future, mut context) = (black_box(future), Context::from_waker(Waker::noop()));
    time_per_call(200_000, |_| {
        black_box(future.as_mut().poll(&mut context).is_pending());
    })
}

/// Measures futures that are ready at the first poll.
fn measure_short<F: Future<Output = ()>>(make: impl Fn() -> F) -> f64 {
    let mut context = Context::from_waker(Waker::noop());
    time_per_call(50_000, |_| {
        let future = pin!(black_box(make()));
        black_box(future.poll(&mut context).is_ready());
    })
}

/// Runs a batch with a sampling interval so large that hardly any block is sampled.
fn run_counted(batch: impl FnOnce() -> f64) -> f64 {
    let options = Options::new().sample(64 << 10, 1 << 20);
    memtrack_core::start_monitor_with(&options).expect("no file is written");
    let result = batch();
    drop(memtrack_core::stop());
    result
}

fn run_monitored(batch: impl FnOnce() -> f64) -> f64 {
    memtrack_core::start_monitor();
    let result = batch();
    drop(memtrack_core::stop());
    result
}

//! The cost of the caching allocator on a simulated device. The device's own calls cost next to nothing. The benchmark
//! measures alloc/free pairs that are served from the cache, with and without history, and how the cost grows with the
//! number of cached blocks.
//!
//! Run `cargo bench -p memtrack-core --bench allocator`, and again with `RUSTFLAGS="-C force-frame-pointers=yes"`.
//! Prints medians of batches in processor time; asserts nothing.

use memtrack_core::allocator::replay::{Requests, replay};
use memtrack_core::allocator::workload::{Operation, Workload, record};
use memtrack_core::allocator::{
    Backend, CachingAllocator, Context, HistoryOptions, Settings, SimulatedMemory,
};
use memtrack_core::event::{DeviceId, StreamId};
use serde_json::Value;
use std::hint::black_box;
use std::time::Duration;

const BATCHES: usize = 31;
const CALLS: usize = 20_000;
const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);
/// The number of nested calls around a measured event. With this number, stacks are as deep as in PyTorch's measurement:
/// they have 21 return addresses, and the innermost one or two are in the allocator.
const DEPTH: usize = 11;

/// The processor time of this thread, which is hardly affected by other work on the machine.
struct CpuTime(Duration);

impl CpuTime {
    #[allow(unsafe_code)]
    fn now() -> Self {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the out-pointer is a local variable; the clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
        Self(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

fn main() {
    println!("a pair of alloc and free from the cache, one thread                     ns/pair");
    for (name, size) in [("512 B, split and merged", 512), ("30 MiB, a whole segment", 30 << 20)] {
        let allocator = new_allocator();
        warm_up(&allocator, size);
        println!("  {name:<66} {:>9.1}", median(|| measure_pairs(&allocator, size)));
    }
    let allocator = new_allocator();
    println!("  {:<66} {:>9.1}", "1 to 512 KiB, 64 blocks live", median(|| measure_mixed(&allocator)));

    println!("\nthe same with history, per event (a pair is three)                      ns/event");
    for (name, context) in
        [("without stacks", Context::None), ("with stacks of allocations and frees", Context::All)]
    {
        let allocator = new_allocator();
        warm_up(&allocator, 512);
        allocator.record_memory_history(Some(&HistoryOptions::new().context(context).max_entries(100_000)));
        let cost = median(|| call_at_depth(DEPTH, &mut || measure_pairs(&allocator, 512)) / 3.0);
        let name = if context == Context::All {
            let caller = call_at_depth(DEPTH, &mut || count_return_addresses() as f64);
            format!("{name}, {} frames of {caller} calls", count_frames(&allocator))
        } else {
            name.to_owned()
        };
        println!("  {name:<66} {cost:>9.1}");
    }

    replay_million_events();

    println!("\na pair with many blocks cached                                           ns/pair");
    for exponent in 2..=6 {
        let blocks = 10usize.pow(exponent);
        let allocator = fragmented_allocator(blocks);
        println!("  {blocks:>9} cached blocks {:>53.1}", median(|| measure_spread(&allocator)));
    }
}

/// Replays the steps of a training loop as 1 M events: activations that live for a while, and short-lived temporaries.
fn replay_million_events() {
    let mut workload =
        Workload::read(&br#"{"op":"config","total_bytes":1099511627776}"#[..], u64::MAX).expect("a workload");
    let mut state = 1u64;
    let mut live = std::collections::VecDeque::new();
    for number in 0..340_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let size = if state >> 62 == 0 { (state >> 20) % (48 << 20) } else { (state >> 20) % (2 << 20) };
        let id: Value = number.into();
        workload.operations.push(Operation::Alloc {
            id: id.clone(),
            size: (size + 1).into(),
            stream: 0,
            device: 0,
        });
        live.push_back(id);
        while live.len() as u64 > 20 + (number / 300) % 400 {
            let id = if state & 3 == 0 { live.pop_front() } else { live.pop_back() };
            workload.operations.push(Operation::Free { id: id.expect("a live block") });
        }
    }
    let (snapshot, _) = record(&workload).expect("a simulated device");
    println!(
        "\na trace of {} events                                                        s",
        snapshot.events.len()
    );
    let start = CpuTime::now();
    let requests = Requests::of(&snapshot, DEVICE, None);
    println!("  {:<66} {:>9.3}", "requests out of the trace", start.elapsed().as_secs_f64());
    for text in ["", "expandable_segments:True", "max_split_size_mb:64"] {
        let settings = Settings::parse(text).expect("good settings");
        let start = CpuTime::now();
        black_box(replay(&requests, &settings, None).expect("room enough"));
        println!("  replay, {:<58} {:>9.3}", format!("settings \"{text}\""), start.elapsed().as_secs_f64());
    }
}

/// Returns the number of frames in the newest event's stack, including inlined ones.
fn count_frames(allocator: &CachingAllocator<SimulatedMemory>) -> usize {
    let snapshot = allocator.snapshot();
    let newest = snapshot.events.stack.last().expect("an event");
    snapshot.named.get(*newest).len()
}

/// Returns the number of return addresses on the caller's stack, not counting inlined frames.
#[inline(never)]
fn count_return_addresses() -> usize {
    let mut count = 0;
    backtrace::trace(|_| {
        count += 1;
        true
    });
    // Exclude the frames of `backtrace` and of this function.
    count - 3
}

fn new_allocator() -> CachingAllocator<SimulatedMemory> {
    CachingAllocator::simulated(1, 1 << 50, &Settings::default()).expect("a simulated device")
}

fn alloc(allocator: &CachingAllocator<SimulatedMemory>, size: u64) -> u64 {
    allocator.caching_allocator_alloc(size, DEVICE, STREAM).expect("enough memory")
}

fn free(allocator: &CachingAllocator<SimulatedMemory>, address: u64) {
    allocator.caching_allocator_delete(address).expect("a live block");
}

fn warm_up(allocator: &CachingAllocator<SimulatedMemory>, size: u64) {
    let block = alloc(allocator, size);
    free(allocator, block);
}

fn measure_pairs(allocator: &CachingAllocator<SimulatedMemory>, size: u64) -> f64 {
    let start = CpuTime::now();
    for _ in 0..CALLS {
        free(allocator, black_box(alloc(allocator, size)));
    }
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

/// Measures alloc/free pairs with random sizes and lifetimes.
fn measure_mixed(allocator: &CachingAllocator<SimulatedMemory>) -> f64 {
    let mut live = [0; 64];
    let mut state = 1u64;
    let start = CpuTime::now();
    for _ in 0..CALLS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let slot = &mut live[(state >> 58) as usize];
        free(allocator, std::mem::replace(slot, alloc(allocator, 1024 + (state >> 20) % (512 << 10))));
    }
    let elapsed = start.elapsed();
    live.into_iter().for_each(|block| free(allocator, block));
    elapsed.as_nanos() as f64 / CALLS as f64
}

/// Creates an allocator with `blocks` free blocks of different sizes, each between two live blocks.
fn fragmented_allocator(blocks: usize) -> CachingAllocator<SimulatedMemory> {
    let allocator = new_allocator();
    let sizes = (0..blocks as u64).map(|i| 512 * (1 + i * 7919 % 1800));
    let holes: Vec<u64> = sizes
        .map(|size| {
            let hole = alloc(&allocator, size);
            alloc(&allocator, 512);
            hole
        })
        .collect();
    holes.into_iter().for_each(|hole| free(&allocator, hole));
    allocator
}

/// Measures alloc/free pairs that cover all cached sizes.
fn measure_spread(allocator: &CachingAllocator<SimulatedMemory>) -> f64 {
    let mut state = 1u64;
    let start = CpuTime::now();
    for _ in 0..CALLS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        free(allocator, black_box(alloc(allocator, 512 * (1 + (state >> 33) % 1800))));
    }
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

#[inline(never)]
fn call_at_depth(depth: usize, leaf: &mut dyn FnMut() -> f64) -> f64 {
    if depth == 0 {
        return leaf();
    }
    black_box(call_at_depth(depth - 1, leaf))
}

fn median(mut batch: impl FnMut() -> f64) -> f64 {
    let mut samples: Vec<f64> = (0..BATCHES).map(|_| batch()).collect();
    samples.sort_by(f64::total_cmp);
    samples[BATCHES / 2]
}

//! A program whose allocator waits for another thread, like an allocator with a lock. If memtrack called such an
//! allocator while holding a lock that events need, both threads would wait forever.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{Options, record_alloc, record_free};
use memtrack_core::scope;
use memtrack_tests::time::HANG;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

/// An allocator that waits before it forwards each call to another allocator.
pub struct Waiting<A>(pub A);

/// The number of waits that have begun, and the number of waits that the other thread has ended.
static WAITED: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
static IS_OVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether the thread waits when it allocates or frees.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

fn wait() {
    // An ending thread still frees memory after its thread-locals are destroyed.
    if !WAITS.try_with(Cell::get).unwrap_or(false) || IS_OVER.load(Ordering::Acquire) {
        return;
    }
    let number = WAITED.fetch_add(1, Ordering::AcqRel) + 1;
    let begun = Instant::now();
    while DONE.load(Ordering::Acquire) < number {
        thread::yield_now();
        if begun.elapsed() > HANG {
            // Aborts, so that a core dump shows the stack of the wait.
            std::process::abort();
        }
    }
}

// SAFETY: every call is forwarded to the inner allocator unchanged.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Waiting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        wait();
        // SAFETY: upheld by the caller.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        wait();
        // SAFETY: upheld by the caller.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        wait();
        // SAFETY: upheld by the caller.
        unsafe { self.0.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        wait();
        // SAFETY: upheld by the caller.
        unsafe { self.0.realloc(block, layout, new_size) }
    }
}

/// The devices of the two threads.
const WAITING: DeviceId = DeviceId(0);
const OTHER: DeviceId = DeviceId(1);
const STREAM: StreamId = StreamId(0);
/// Blocks spaced this far apart fall into many different shards.
const REGION_BYTES: u64 = 2 << 20;
const BASE: u64 = 0x10_0000_0000;

/// Calls `act` on a different call path for each number.
#[inline(never)]
fn call(number: u64, act: &dyn Fn()) {
    match number {
        0 => act(),
        _ if number.is_multiple_of(2) => call(number / 2, act),
        _ => call_otherwise(number / 2, act),
    }
    black_box(number);
}

#[inline(never)]
fn call_otherwise(number: u64, act: &dyn Fn()) {
    call(number, act);
    black_box(number);
}

/// Runs the other thread until the end: blocks in all shards, new stacks, and short-lived threads.
fn help() {
    let mut rounds = 0;
    while !IS_OVER.load(Ordering::Acquire) {
        let waits = WAITED.load(Ordering::Acquire);
        if DONE.load(Ordering::Acquire) >= waits {
            thread::yield_now();
            continue;
        }
        rounds += 1;
        let addresses = || (0..64).map(|number| BASE + (64 * rounds + number) % 2048 * REGION_BYTES);
        addresses().for_each(|address| record_alloc(OTHER, STREAM, address, 1));
        addresses().for_each(|address| record_free(OTHER, STREAM, address, 1));
        // These blocks stay live, so a thread that counts the live blocks and then copies them can find more than it counted.
        addresses().step_by(16).for_each(|address| record_alloc(OTHER, STREAM, address + 8 * rounds, 1));
        call(1 << 20 | rounds, &|| {
            let _module = scope::module("helper");
            let _operator = scope::operator("help");
            memtrack_core::mark("helped");
            drop(black_box(vec![0_u8; 70_000]));
        });
        if u64::is_multiple_of(rounds, 64) {
            thread::spawn(|| drop(black_box(vec![0_u8; 70_000]))).join().unwrap();
        }
        DONE.store(waits, Ordering::Release);
    }
}

/// Waits at every allocation and free on this thread, including memtrack's, while everything is recorded; with a stream
/// of several parts unless `path` is empty.
pub fn for_another_thread(path: &str) {
    const BLOCKS: u64 = 40_000;
    let options = Options::new().exact().max_entries(20_000).operators();
    let options = if path.is_empty() { options } else { options.stream_to(path).max_bytes(16 << 20) };
    memtrack_core::start_monitor_with(&options).unwrap();
    let helper = thread::spawn(help);
    WAITS.set(true);
    for number in 0..BLOCKS {
        record_alloc(WAITING, STREAM, BASE + number % 2048 * REGION_BYTES + number, 100);
    }
    for number in 0..2000 {
        call(number, &|| record_alloc(WAITING, STREAM, number + 1, 1));
        let _module = scope::module(&format!("module{}", number % 50));
        let _operator = scope::operator(&format!("operator{number}"));
        memtrack_core::mark("waited");
    }
    let waiters = (0..20).map(|_| {
        thread::spawn(|| {
            WAITS.set(true);
            drop(black_box(vec![0_u8; 70_000]));
        })
    });
    waiters.for_each(|waiter| waiter.join().unwrap());
    drop(memtrack_core::snapshot().expect("a session runs"));
    for number in 0..BLOCKS {
        record_free(WAITING, STREAM, BASE + number % 2048 * REGION_BYTES + number, 100);
    }
    WAITS.set(false);
    IS_OVER.store(true, Ordering::Release);
    helper.join().unwrap();
    let waited = WAITED.load(Ordering::Acquire);
    // The growth of the shards alone causes several thousand waits.
    assert!(waited > 4000, "{waited}");
    let recording = memtrack_core::stop();
    let blocks = recording.snapshot().blocks.iter().filter(|block| block.device == WAITING).count();
    assert_eq!(blocks, 2000);
}

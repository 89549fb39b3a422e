//! A program whose allocator waits for another thread: as one does that has a lock of its own. Were memtrack to ask it for
//! memory, or to give some back, while it holds a lock that blocks' events take, neither thread would ever go on.

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

/// Waits around another allocator.
pub struct Waiting<A>(pub A);

/// How many times threads have waited or do, and how often the other one has been through since.
static ASKED: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
static IS_OVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether the thread waits when it asks for memory.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

fn wait() {
    // A thread that ends has memory to give back, too.
    if !WAITS.try_with(Cell::get).unwrap_or(false) || IS_OVER.load(Ordering::Acquire) {
        return;
    }
    let mine = ASKED.fetch_add(1, Ordering::AcqRel) + 1;
    let begun = Instant::now();
    while DONE.load(Ordering::Acquire) < mine {
        thread::yield_now();
        if begun.elapsed() > HANG {
            // Ends at once, and says where.
            std::process::abort();
        }
    }
}

// SAFETY: every call goes to the inner allocator unchanged.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Waiting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        wait();
        // SAFETY: the caller's promise.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        wait();
        // SAFETY: the caller's promise.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        wait();
        // SAFETY: the caller's promise.
        unsafe { self.0.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        wait();
        // SAFETY: the caller's promise.
        unsafe { self.0.realloc(block, layout, new_size) }
    }
}

/// Of the two threads' devices.
const WAITING: DeviceId = DeviceId(0);
const OTHER: DeviceId = DeviceId(1);
const STREAM: StreamId = StreamId(0);
/// Blocks so far apart lie in shards of all kinds.
const REGION_BYTES: u64 = 2 << 20;
const BASE: u64 = 0x10_0000_0000;

/// A call path for each number.
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

/// What the other thread does until all is over: blocks in all shards, stacks that are new, and threads that come and go.
fn help() {
    let mut rounds = 0;
    while !IS_OVER.load(Ordering::Acquire) {
        let asked = ASKED.load(Ordering::Acquire);
        if DONE.load(Ordering::Acquire) >= asked {
            thread::yield_now();
            continue;
        }
        rounds += 1;
        let addresses = || (0..64).map(|number| BASE + (64 * rounds + number) % 2048 * REGION_BYTES);
        addresses().for_each(|address| record_alloc(OTHER, STREAM, address, 1));
        addresses().for_each(|address| record_free(OTHER, STREAM, address, 1));
        // These stay: whoever has counted blocks finds more.
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
        DONE.store(asked, Ordering::Release);
    }
}

/// Waits whenever it asks for memory, and memtrack for it; with a tracker and all that it can record, and with a stream of
/// several parts where there is a `path`.
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
        memtrack_core::mark("asked");
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
    let waited = ASKED.load(Ordering::Acquire);
    // Shards alone have grown some thousand times.
    assert!(waited > 4000, "{waited}");
    let recording = memtrack_core::stop();
    let blocks = recording.snapshot().blocks.iter().filter(|block| block.device == WAITING).count();
    assert_eq!(blocks, 2000);
}

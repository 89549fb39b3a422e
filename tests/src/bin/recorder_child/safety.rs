//! Conditions that an allocator must survive: threads that end, panics, failures, signals.

use memtrack_core::event::{Action, DeviceId};
use memtrack_core::host::{internal_heap_bytes, own_bytes};
use memtrack_core::recorder::{Context, Options};
use memtrack_core::scope;
use memtrack_core::snapshot::Snapshot;
use memtrack_tests::counting::live_bytes;
use memtrack_tests::replay::{replay, statistics};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::cell::RefCell;
use std::hint::black_box;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier};
use std::thread;

const HOST: DeviceId = DeviceId::HOST;

fn exact() -> Options {
    Options::new().exact().max_entries(1 << 24)
}

/// Counts the events of blocks of one size: (allocations, frees).
fn events_of_size(snapshot: &Snapshot, size_bytes: u64) -> (usize, usize) {
    let of = |action| {
        let events = snapshot.events.iter();
        events.filter(|event| event.action == action && event.size_bytes == size_bytes).count()
    };
    (of(Action::Alloc), of(Action::Free))
}

/// Threads pass blocks to one another; the system's allocator reuses their addresses at once.
pub fn hand_over() {
    const THREADS: usize = 4;
    memtrack_core::start_monitor_with(&exact().context(Context::None)).unwrap();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel::<Vec<u8>>(64)).unzip();
    let threads: Vec<_> = receivers
        .into_iter()
        .enumerate()
        .map(|(number, receiver)| {
            let next = senders[(number + 1) % THREADS].clone();
            thread::spawn(move || {
                for round in 0..40_000_usize {
                    let block = vec![1_u8; 16 + (round * 7 + number) % 300];
                    if let Err(back) = next.try_send(block) {
                        drop(back);
                    }
                    receiver.try_iter().take(3).for_each(drop);
                }
            })
        })
        .collect();
    drop(senders);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let recording = memtrack_core::stop();
    let replayed = replay(recording.snapshot(), HOST);
    replayed.assert_blocks_of(recording.snapshot(), HOST);
    let counts = statistics(recording.snapshot(), HOST);
    assert_eq!(
        (replayed.allocated_bytes, replayed.freed_bytes),
        (counts.allocated_bytes, counts.freed_bytes)
    );
    assert!(replayed.allocations >= 160_000, "{}", replayed.allocations);
}

const IN_DESTRUCTOR: usize = 123_457;

struct AllocatesWhenDropped;

impl Drop for AllocatesWhenDropped {
    fn drop(&mut self) {
        drop(black_box(vec![1_u8; IN_DESTRUCTOR]));
    }
}

thread_local! {
    static EARLY: RefCell<Option<AllocatesWhenDropped>> = const { RefCell::new(None) };
    static LATE: RefCell<Option<AllocatesWhenDropped>> = const { RefCell::new(None) };
}

extern "C" fn destructor_of_key(_value: *mut libc::c_void) {
    drop(black_box(vec![1_u8; IN_DESTRUCTOR]));
}

/// Destructors of thread-locals allocate: before and after memtrack drops the thread's state, and in destructors of
/// `pthread_key_create`, which run last.
pub fn thread_local_destructors() {
    const THREADS: usize = 40;
    let mut key = 0;
    // SAFETY: the out-pointer refers to a local variable and the destructor is a plain function.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(destructor_of_key)) }, 0);
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || {
                // Before monitoring: this destructor is registered before memtrack's and runs after it.
                EARLY.set(Some(AllocatesWhenDropped));
                // SAFETY: the key was created above; its destructor is called for any value that is not null.
                unsafe { libc::pthread_setspecific(key, std::ptr::dangling::<u8>().cast()) };
                barrier.wait();
                barrier.wait();
                drop(black_box(vec![1_u8; 100]));
                LATE.set(Some(AllocatesWhenDropped));
            })
        })
        .collect();
    barrier.wait();
    memtrack_core::start_monitor_with(&exact()).unwrap();
    barrier.wait();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let recording = memtrack_core::stop();
    let size = IN_DESTRUCTOR as u64;
    assert_eq!(events_of_size(recording.snapshot(), size), (3 * THREADS, 3 * THREADS));
    replay(recording.snapshot(), HOST).assert_blocks_of(recording.snapshot(), HOST);
    let events = recording.snapshot().events.iter();
    assert!(events.filter(|event| event.size_bytes == size).all(|event| !event.stack.is_none()));
}

/// Starts thousands of short-lived threads: memtrack's memory does not grow with their number, except for their names.
pub fn thread_churn() {
    memtrack_core::start_monitor_with(&exact().max_entries(4096)).unwrap();
    let run = |threads: usize| {
        for _ in 0..threads / 8 {
            let threads: Vec<_> =
                (0..8).map(|_| thread::spawn(|| drop(black_box(vec![1_u8; 200])))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    };
    // Runs until the chunks of eight threads have reached their full size.
    run(4000);
    let own = own_bytes();
    run(6000);
    let grown = own_bytes() - own;
    let recording = memtrack_core::stop();
    // Names, and states of the few threads that overlapped, may be added. A state for each thread would take gigabytes.
    assert!(grown < 6 << 20, "{grown} bytes");
    assert!(recording.snapshot().threads.len() > 10_000);
    let counts = statistics(recording.snapshot(), HOST);
    assert_eq!(counts.recorded, counts.allocations + counts.frees);
    assert_eq!(recording.snapshot().events.len(), 4096);
}

/// Panics unwind through scopes and out of threads; the totals stay correct.
pub fn panics() {
    std::panic::set_hook(Box::new(|_| {}));
    memtrack_core::start_monitor_with(&exact()).unwrap();
    let (counted, own) = (live_bytes(), internal_heap_bytes());
    for round in 0..200 {
        let caught = catch_unwind(|| {
            let _module = scope::module("layer");
            let kept = vec![1_u8; 1000 + round];
            let _operator = scope::operator("fails");
            let more = vec![2_u8; 77_777];
            assert!(black_box(more.len() + kept.len()) < 10, "always");
        });
        assert!(caught.is_err());
        assert_eq!(scope::current().place().prefix(), "");
    }
    let thread = thread::spawn(|| {
        let _operator = scope::operator("fails in a thread");
        let block = vec![3_u8; 88_888];
        assert!(black_box(block.len()) < 10, "always");
    });
    assert!(thread.join().is_err());
    let (counted, own) = (live_bytes() - counted, internal_heap_bytes() - own);
    let recording = memtrack_core::stop();
    let counts = statistics(recording.snapshot(), HOST);
    assert_eq!(counts.allocated_bytes as i64 - counts.freed_bytes as i64 + own, counted);
    assert_eq!(events_of_size(recording.snapshot(), 77_777), (200, 200));
    assert_eq!(events_of_size(recording.snapshot(), 88_888), (1, 1));
    replay(recording.snapshot(), HOST).assert_blocks_of(recording.snapshot(), HOST);
}

/// Reallocations that grow, shrink and fail, and zeroed and over-aligned blocks, recorded exactly and sampled.
pub fn reallocations() {
    const HUGE: usize = isize::MAX as usize / 2;
    // `black_box` is needed because the compiler may remove unused allocations.
    let run = || {
        let layout = Layout::from_size_align(1000, 8).unwrap();
        // SAFETY: sizes are not 0, and each block is freed with its current layout.
        unsafe {
            let block = black_box(alloc(layout));
            assert!(black_box(realloc(block, layout, HUGE)).is_null());
            let block = black_box(realloc(block, layout, 500_000));
            let layout = Layout::from_size_align(500_000, 8).unwrap();
            let block = black_box(realloc(block, layout, 3000));
            dealloc(block, Layout::from_size_align(3000, 8).unwrap());
            let zeroed = Layout::from_size_align(70_001, 1).unwrap();
            let block = black_box(alloc_zeroed(zeroed));
            assert!((0..70_001).all(|at| *block.add(at) == 0));
            dealloc(block, zeroed);
            let aligned = Layout::from_size_align(90_001, 4096).unwrap();
            let block = black_box(alloc(aligned));
            assert_eq!(block as usize % 4096, 0);
            let block = black_box(realloc(block, aligned, 190_001));
            assert_eq!(block as usize % 4096, 0);
            dealloc(block, Layout::from_size_align(190_001, 4096).unwrap());
        }
        let mut bytes: Vec<u8> = Vec::new();
        assert!(black_box(bytes.try_reserve(HUGE)).is_err());
    };
    memtrack_core::start_monitor_with(&exact()).unwrap();
    run();
    let exact = memtrack_core::stop();
    let snapshot = exact.snapshot();
    for size in [1000, 500_000, 3000, 70_001, 90_001, 190_001] {
        let (allocs, frees) = events_of_size(snapshot, size);
        assert!(allocs >= 1 && allocs == frees, "{size}: {allocs}, {frees}");
    }
    let failed: Vec<u64> =
        snapshot.events.iter().filter(|e| e.action == Action::Oom).map(|e| e.size_bytes).collect();
    assert_eq!(failed, [HUGE as u64; 2]);
    replay(snapshot, HOST).assert_blocks_of(snapshot, HOST);

    memtrack_core::start_monitor_with(&Options::new().sample(64 << 10, 1)).unwrap();
    run();
    let sampled = memtrack_core::stop();
    // With a mean of one byte between samples, every block is sampled.
    replay(sampled.snapshot(), HOST).assert_blocks_of(sampled.snapshot(), HOST);
    assert!(sampled.snapshot().blocks.is_empty(), "{:?}", sampled.snapshot().blocks);
    assert_eq!(events_of_size(sampled.snapshot(), 3000), (1, 1));
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_signal: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Signals interrupt threads at any point in hooks; a handler that does not allocate does no harm, and a snapshot does
/// not wait for long.
pub fn signals() {
    let handler: extern "C" fn(libc::c_int) = on_signal;
    // SAFETY: the handler only modifies an atomic.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
    memtrack_core::start_monitor_with(&exact().context(Context::All)).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let worker = thread::spawn({
        let done = Arc::clone(&done);
        move || {
            while !done.load(Ordering::Relaxed) {
                drop(black_box(vec![1_u8; 64]));
            }
        }
    });
    let thread = std::os::unix::thread::JoinHandleExt::as_pthread_t(&worker);
    for _ in 0..5000 {
        // SAFETY: the thread runs until `done`.
        unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
        thread::yield_now();
    }
    memtrack_core::start_monitor();
    let running = memtrack_core::stop();
    done.store(true, Ordering::Relaxed);
    worker.join().unwrap();
    let ended = memtrack_core::stop();
    assert!(SIGNALS.load(Ordering::Relaxed) > 0);
    for recording in [&running, &ended] {
        replay(recording.snapshot(), HOST).assert_blocks_of(recording.snapshot(), HOST);
    }
}

/// Threads with the smallest stack that the C library allows, which suffices without memtrack in any build.
pub fn small_stacks(monitored: bool, path: &str) {
    if monitored {
        let options = exact().context(Context::Alloc).stream_to(path);
        memtrack_core::start_monitor_with(&options).unwrap();
    }
    for _ in 0..8 {
        let work = || {
            for number in 0..5_000_usize {
                drop(black_box(vec![1_u8; 16 + number % 3000]));
            }
            drop(black_box(vec![1_u8; 100_000]));
        };
        let thread = thread::Builder::new().stack_size(16 << 10).spawn(work).unwrap();
        thread.join().unwrap();
    }
    if monitored {
        let recording = memtrack_core::stop();
        let snapshot = recording.snapshot();
        assert_eq!(events_of_size(snapshot, 100_000), (8, 8));
        let with_stack = snapshot.events.iter().filter(|event| event.size_bytes == 100_000);
        assert!(with_stack.into_iter().all(|event| snapshot.stacks.get(event.stack).len() > 3));
    }
}

/// Allocates blocks of `size` bytes until memory runs out, like a program that handles failed requests.
pub fn out_of_memory(size: usize, path: &str) {
    memtrack_core::start_monitor_with(&exact().output(path)).unwrap();
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(4_000_000);
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let most = pages * 4096 + (96 << 20);
    let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: sets a limit of this process from an initialized struct.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    loop {
        let mut block = Vec::new();
        if block.try_reserve_exact(size).is_err() {
            break;
        }
        blocks.push(black_box(block));
    }
    assert!(blocks.len() < blocks.capacity(), "memory runs out");
    // The program continues.
    let count = blocks.len();
    drop(blocks);
    println!("{count}");
}

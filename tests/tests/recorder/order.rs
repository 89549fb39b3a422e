//! The order of events, while threads pass memory to each other as fast as they can. In merge order, no free comes before its
//! allocation, no two live blocks share an address, and each thread's events keep their order. The same holds in snapshots that
//! are taken in the meantime.

use memtrack_core::event::{Action, DeviceId, StreamId};
use memtrack_core::recorder::{Context, Options, record_alloc, record_free};
use memtrack_core::snapshot::Snapshot;
use memtrack_tests::alone;
use memtrack_tests::replay::{replay, statistics};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);
const WORKERS: usize = 4;

/// The free addresses of an allocator. The last address freed is allocated first, so that addresses are reused at once.
struct Pool(Mutex<Vec<u64>>);

impl Pool {
    fn new(addresses: u64) -> Self {
        Self(Mutex::new((1..=addresses).map(|number| number * 512).collect()))
    }

    /// Allocates an address, and reports the allocation after the address was obtained, as `recorder` requires.
    fn alloc(&self, size_bytes: u64) -> Option<u64> {
        let address = self.0.lock().unwrap().pop()?;
        record_alloc(DEVICE, STREAM, address, size_bytes);
        Some(address)
    }

    /// Reports a free before the address becomes available again.
    fn free(&self, address: u64, size_bytes: u64) {
        record_free(DEVICE, STREAM, address, size_bytes);
        self.0.lock().unwrap().push(address);
    }
}

/// A thread's log of its operations: (whether it is an allocation, address, size).
type Log = Vec<(bool, u64, u64)>;

/// A worker that allocates `rounds` blocks, passes most of them to the next worker, and frees the blocks from the previous worker
/// until all workers are done.
struct Worker<'a> {
    pool: &'a Pool,
    number: u64,
    working: &'a AtomicUsize,
    next: Sender<(u64, u64)>,
    previous: Receiver<(u64, u64)>,
    log: Log,
}

impl Worker<'_> {
    fn work(mut self, rounds: u64) -> (Log, Receiver<(u64, u64)>) {
        let mut round = 0;
        while round < rounds {
            let size_bytes = round * WORKERS as u64 + self.number + 1;
            match self.pool.alloc(size_bytes) {
                Some(address) => {
                    round += 1;
                    self.log.push((true, address, size_bytes));
                    // Most blocks go to the next worker; the others are freed here.
                    if round % 8 == 0 {
                        self.free((address, size_bytes));
                    } else {
                        self.next.send((address, size_bytes)).unwrap();
                    }
                }
                None => thread::yield_now(),
            }
            self.free_received_blocks();
        }
        self.working.fetch_sub(1, Ordering::Relaxed);
        while self.working.load(Ordering::Relaxed) > 0 {
            self.free_received_blocks();
            thread::yield_now();
        }
        (self.log, self.previous)
    }

    fn free(&mut self, (address, size_bytes): (u64, u64)) {
        self.log.push((false, address, size_bytes));
        self.pool.free(address, size_bytes);
    }

    fn free_received_blocks(&mut self) {
        while let Ok(block) = self.previous.try_recv() {
            self.free(block);
        }
    }
}

/// Runs the workers, and calls `meanwhile` repeatedly until they have ended. Returns their logs by thread name.
fn pass_around(pool: &Pool, rounds: u64, mut meanwhile: impl FnMut()) -> HashMap<String, Log> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..WORKERS).map(|_| channel()).unzip();
    let working = AtomicUsize::new(WORKERS);
    thread::scope(|threads| {
        let mut handles = Vec::new();
        for (number, previous) in receivers.into_iter().enumerate() {
            let next = senders[(number + 1) % WORKERS].clone();
            let worker =
                Worker { pool, number: number as u64, working: &working, next, previous, log: Log::new() };
            let name = format!("worker {number}");
            let thread = thread::Builder::new().name(name.clone());
            handles.push((name, thread.spawn_scoped(threads, move || worker.work(rounds)).unwrap()));
        }
        // `meanwhile` is called at least once, however late this thread is scheduled.
        loop {
            meanwhile();
            if working.load(Ordering::Relaxed) == 0 {
                break;
            }
        }
        // Each receiver is kept until all workers have ended: the previous worker may still send to it.
        let ended: Vec<_> =
            handles.into_iter().map(|(name, handle)| (name, handle.join().unwrap())).collect();
        ended.into_iter().map(|(name, (log, _previous))| (name, log)).collect()
    })
}

/// Returns each thread's events in merge order, by the thread's name.
fn logs_of(snapshot: &Snapshot) -> HashMap<String, Log> {
    let mut logs: HashMap<String, Log> = HashMap::new();
    for event in snapshot.events.iter() {
        let name = &snapshot.threads[event.thread.index()].name;
        let is_alloc = event.action == Action::Alloc;
        logs.entry(name.clone()).or_default().push((is_alloc, event.address, event.size_bytes));
    }
    logs
}

#[test]
fn a_million_events_of_blocks_passed_around_replay_without_an_error() {
    alone!();
    let options = Options::new().without_host_heap().context(Context::None).max_entries(1 << 22);
    memtrack_core::start_monitor_with(&options).unwrap();
    let logs = pass_around(&Pool::new(64), 130_000, thread::yield_now);
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let replayed = replay(snapshot, DEVICE);
    let events: usize = logs.values().map(Vec::len).sum();
    assert!(events >= 1_000_000, "{events} events");
    assert_eq!(snapshot.events.len(), events);
    assert_eq!(logs_of(snapshot), logs, "each thread's events keep their order");
    let (allocs, frees): (Vec<_>, Vec<_>) = logs.values().flatten().partition(|(is_alloc, ..)| *is_alloc);
    let bytes = |rows: &[&(bool, u64, u64)]| rows.iter().map(|row| row.2).sum::<u64>();
    let counts = statistics(snapshot, DEVICE);
    assert_eq!((counts.allocations, counts.allocated_bytes), (allocs.len() as u64, bytes(&allocs)));
    assert_eq!((counts.frees, counts.freed_bytes), (frees.len() as u64, bytes(&frees)));
    assert_eq!(
        (replayed.allocations, replayed.allocated_bytes),
        (counts.allocations, counts.allocated_bytes)
    );
    assert_eq!((replayed.frees, replayed.freed_bytes), (counts.frees, counts.freed_bytes));
    assert_eq!((counts.recorded, counts.dropped, replayed.unknown_frees), (events as u64, 0, 0));
    replayed.assert_blocks_of(snapshot, DEVICE);
}

/// Records with stacks and many live blocks. Each snapshot must be consistent in itself: its blocks are exactly those that its
/// events leave live.
#[test]
fn a_snapshot_taken_while_threads_run_is_consistent() {
    alone!();
    let options = Options::new().without_host_heap().max_entries(1 << 22);
    memtrack_core::start_monitor_with(&options).unwrap();
    let mut events = 0;
    let mut taken = 0;
    pass_around(&Pool::new(2000), 20_000, || {
        memtrack_core::start_monitor();
        let recording = memtrack_core::stop();
        let snapshot = recording.snapshot();
        let replayed = replay(snapshot, DEVICE);
        replayed.assert_blocks_of(snapshot, DEVICE);
        assert_eq!(replayed.unknown_frees, 0);
        assert!(snapshot.events.len() >= events, "a later snapshot contains no fewer events");
        events = snapshot.events.len();
        taken += 1;
    });
    let recording = memtrack_core::stop();
    assert!(taken > 0 && recording.snapshot().events.len() >= events);
    replay(recording.snapshot(), DEVICE).assert_blocks_of(recording.snapshot(), DEVICE);
}

/// Records into a ring of bounded size. In every snapshot, the numbers of dropped and of kept events add up to the number of
/// events that were recorded when the snapshot was taken.
#[test]
fn a_bounded_snapshot_taken_while_threads_run_counts_dropped_events() {
    const BOUND: u64 = 1000;
    alone!();
    let options = Options::new().without_host_heap().context(Context::None).max_entries(BOUND);
    memtrack_core::start_monitor_with(&options).unwrap();
    let mut before = 0;
    pass_around(&Pool::new(64), 20_000, || {
        memtrack_core::start_monitor();
        let recording = memtrack_core::stop();
        let snapshot = recording.snapshot();
        let counts = statistics(snapshot, DEVICE);
        let kept = snapshot.events.len() as u64;
        assert_eq!(counts.recorded, kept + counts.dropped);
        assert_eq!(kept, BOUND.min(counts.recorded));
        assert!(counts.recorded >= before, "{} after {before}", counts.recorded);
        // Every recorded event is an allocation or a free.
        assert!(counts.recorded <= counts.allocations + counts.frees, "{counts:?}");
        before = counts.recorded;
    });
    let recording = memtrack_core::stop();
    let counts = statistics(recording.snapshot(), DEVICE);
    assert_eq!(counts.recorded, counts.allocations + counts.frees);
    assert_eq!(counts.dropped, counts.recorded - BOUND);
}

//! Very many calls from two threads: no event is lost, none is out of order, and memtrack's memory is bounded.

use crate::client;
use memtrack_core::event::{Action, Event};
use memtrack_core::recorder::Options;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::mock_cuda::run_ignored_test;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The number of events in the ring, which take 5 MB.
const RING_EVENTS: u64 = 100_000;

/// The maximum growth of the resident set after the first tenth of the calls. With a million allocations, a leak of one event in
/// seven would exceed it.
const MOST_GROWTH_BYTES: u64 = 24 << 20;

/// Makes `count` allocations and as many frees on each of two threads, streamed to a file.
#[test]
#[ignore = "is run by the test below"]
fn from_two_threads() {
    let file = &std::env::var("SOAK_FILE").expect("the test names it");
    let count: u64 = std::env::var("SOAK_PAIRS").ok().and_then(|count| count.parse().ok()).expect("a number");
    client::begin(0);
    let options = Options::new().without_host_heap().max_entries(RING_EVENTS).stream_to(file);
    memtrack_core::start_monitor_with(&options).expect("the file can be made");
    let start = Instant::now();
    let calls = |count: u64| {
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(move || allocate_and_free(count));
            }
        });
    };
    calls(count / 10);
    let before = resident_bytes();
    let most = most_resident_bytes_while(|| calls(count - count / 10));
    let recording = memtrack_core::stop();
    let spent = start.elapsed();
    let growth = most.saturating_sub(before);
    println!(
        "{} pairs in {spent:.1?}, resident set {} KiB and {} KiB more",
        2 * count,
        before >> 10,
        growth >> 10
    );
    assert!(growth < MOST_GROWTH_BYTES, "{before} B, and then {growth} B more");

    let kept = recording.snapshot();
    let counts = kept.devices[0];
    assert_eq!((counts.allocations, counts.frees), (2 * count, 2 * count));
    assert_eq!(counts.allocated_bytes, counts.freed_bytes);
    assert_eq!(counts.recorded, 8 * count);
    assert_eq!(counts.dropped, (8 * count).saturating_sub(RING_EVENTS));
    assert_eq!(kept.events.len() as u64, RING_EVENTS.min(8 * count));
    assert!(kept.blocks.is_empty() && kept.segments.is_empty());
    assert_eq!(memtrack_core::cuda::unknown_frees(), 0);

    let (streamed, report) = Snapshot::load(file).expect("the stream can be read");
    assert!(report.complete);
    assert_eq!(streamed.events.len() as u64, 8 * count);
    assert_in_order(&streamed);
    // The ring holds the newest of the streamed events.
    let first = streamed.events.len() - kept.events.len();
    // The order of two threads' events at the same tick is unspecified.
    let newest = streamed.events.iter().skip(first);
    let (streamed, kept) = (sorted(newest.map(place_of)), sorted(kept.events.iter().map(place_of)));
    let different: Vec<_> = streamed.iter().zip(&kept).filter(|(streamed, kept)| streamed != kept).collect();
    assert!(different.is_empty(), "{} differ: {:?} …", different.len(), &different[..different.len().min(6)]);
}

fn sorted<T: Ord>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable();
    all
}

fn place_of(event: Event) -> (u64, u64, u16) {
    (event.ticks, event.address, event.action as u16)
}

fn allocate_and_free(count: u64) {
    client::begin(0);
    let alloc = client::symbol("cuMemAllocAsync");
    let free = client::symbol("cuMemFreeAsync");
    for round in 0..count {
        let mut address = 0_u64;
        client::call_at!(alloc, &mut address => *mut u64, 512 + (round % 4) as usize * 512 => usize, 0 => u64)
            .expect("memory");
        client::call_at!(free, address => u64, 0 => u64).expect("it succeeds");
    }
}

/// Asserts that each address has cycles of segment allocation, allocation, free and segment free, at increasing ticks.
fn assert_in_order(snapshot: &Snapshot) {
    const TURNS: [Action; 4] = [Action::SegmentAlloc, Action::Alloc, Action::Free, Action::SegmentFree];
    let mut addresses: HashMap<u64, (usize, u64)> = HashMap::new();
    let mut newest_of_thread = HashMap::new();
    for event in snapshot.events.iter() {
        let (turn, newest) = addresses.entry(event.address).or_default();
        assert!(event.action == TURNS[*turn % 4] && event.ticks > *newest, "{event:?}");
        (*turn, *newest) = (*turn + 1, event.ticks);
        let before = newest_of_thread.insert(event.thread, event.ticks).unwrap_or(0);
        assert!(event.ticks > before, "{event:?}");
    }
    assert!(addresses.values().all(|(turn, _)| turn % 4 == 0), "everything was freed");
}

/// Returns the largest resident set that is sampled while `act` runs.
fn most_resident_bytes_while(act: impl FnOnce() + Send) -> u64 {
    std::thread::scope(|threads| {
        let acting = threads.spawn(act);
        let mut most = resident_bytes();
        while !acting.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
            most = most.max(resident_bytes());
        }
        most
    })
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    // SAFETY: `sysconf` accepts any argument.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}

/// `MEMTRACK_SOAK=10000000` makes ten million allocations instead of one million, a minute's work for a release build.
#[test]
fn a_soak_from_two_threads_loses_nothing() {
    let count = std::env::var("MEMTRACK_SOAK").unwrap_or_else(|_| "1000000".to_owned());
    let per_thread = (count.parse::<u64>().expect("a number") / 2).to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("soak.memtrack");
    let file = file.to_str().expect("a path");
    let output = run_ignored_test(from_two_threads, &[("SOAK_PAIRS", &per_thread), ("SOAK_FILE", file)]);
    println!("{}", output.text.trim_end());
}

//! Totals against a counting allocator, and sampled ones against the truth.

use memtrack_core::event::{Action, DeviceId, EventFlags, StackId, sampling_weight};
use memtrack_core::host::own_heap_bytes;
use memtrack_core::recorder::Options;
use memtrack_tests::counting::live_bytes;
use memtrack_tests::replay::{replay, statistics};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::mpsc::channel;
use std::thread;

const HOST: DeviceId = DeviceId::HOST;

/// Strings, vectors that grow, maps, boxes: what programs do.
fn churn(seed: u64, keep: &mut Vec<Vec<u64>>) {
    let mut random = seed;
    for round in 0..3000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let len = (random >> 40) % 700;
        let grown: Vec<u64> = (0..len).filter(|_| true).collect();
        let map: HashMap<u64, String> = (0..len % 9).map(|key| (key, format!("{key}-{round}"))).collect();
        black_box(&map);
        match random >> 62 {
            0 => keep.push(grown),
            1 => drop(keep.pop()),
            _ => {}
        }
    }
}

/// Live bytes by memtrack and by the counter are the same to the byte.
pub fn exact() {
    let mut old = Vec::new();
    churn(1, &mut old);
    memtrack_core::start_monitor_with(&Options::new().exact().max_entries(1 << 24)).unwrap();
    let (counted, own) = (live_bytes(), own_heap_bytes());
    let mut kept = Vec::new();
    churn(2, &mut kept);
    // Memory from before the start is given back.
    let before: usize = old.drain(..old.len() / 2).map(|block| block.capacity() * 8).sum();
    let (sender, receiver) = channel();
    let threads: Vec<_> = (3..6)
        .map(|seed| {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut mine = Vec::new();
                churn(seed, &mut mine);
                sender.send(mine).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    kept.extend(receiver.try_iter().flatten().step_by(2));
    let (counted, own) = (live_bytes() - counted, own_heap_bytes() - own);
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let counts = statistics(snapshot, HOST);
    assert_eq!(counts.allocated_bytes as i64 - counts.freed_bytes as i64 + own, counted);
    let replayed = replay(snapshot, HOST);
    replayed.assert_blocks_of(snapshot, HOST);
    assert_eq!(
        (replayed.allocated_bytes, replayed.freed_bytes),
        (counts.allocated_bytes, counts.freed_bytes)
    );
    assert_eq!((replayed.allocations, replayed.frees), (counts.allocations, counts.frees));
    assert_eq!((counts.dropped, counts.recorded), (0, counts.allocations + counts.frees));
    let unknown: u64 = snapshot
        .events
        .iter()
        .filter(|event| event.flags.contains(EventFlags::UNKNOWN_BLOCK))
        .map(|event| event.size_bytes)
        .sum();
    assert!(unknown >= before as u64 && replayed.unknown_frees > 0, "{unknown} of {before}");
}

/// Allocates and frees a block of `size` bytes.
fn once(size: usize) {
    let layout = Layout::from_size_align(size, 8).unwrap();
    // SAFETY: the size is not 0, and the block is given back with its layout.
    unsafe { dealloc(black_box(alloc(layout)), layout) };
}

#[inline(never)]
fn many_small() -> u64 {
    (0..400_000_u64).map(|round| 16 + round % 240).inspect(|&size| once(size as usize)).sum()
}

#[inline(never)]
fn some_middling() -> u64 {
    (0..20_000_u64).map(|round| 1000 + round % 3000).inspect(|&size| once(size as usize)).sum()
}

#[inline(never)]
fn few_large() -> u64 {
    (0..2000_u64).map(|round| 30_000 + round * 17).inspect(|&size| once(size as usize)).sum()
}

/// Estimates from samples, in all and per stack, and the exact sums beside them.
pub fn sampled() {
    const THRESHOLD: u64 = 64 << 10;
    const MEAN: u64 = 8 << 10;
    memtrack_core::start_monitor_with(&Options::new().sample(THRESHOLD, MEAN).max_entries(1 << 24)).unwrap();
    let truth = [many_small(), some_middling(), few_large()];
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let counts = statistics(snapshot, HOST);
    assert_eq!((counts.allocated_bytes, counts.allocations), (truth.iter().sum(), 422_000));
    assert_eq!((counts.freed_bytes, counts.frees), (counts.allocated_bytes, counts.allocations));
    let mut estimates: HashMap<StackId, f64> = HashMap::new();
    for event in snapshot.events.iter().filter(|event| event.action == Action::Alloc) {
        assert!(event.flags.contains(EventFlags::SAMPLED) && event.size_bytes < THRESHOLD);
        let weight = sampling_weight(event.size_bytes, MEAN);
        *estimates.entry(event.stack).or_default() += weight * event.size_bytes as f64;
    }
    let mut estimates: Vec<f64> = estimates.into_values().collect();
    estimates.sort_by(f64::total_cmp);
    let mut expected: Vec<f64> = truth.iter().map(|&bytes| bytes as f64).collect();
    expected.sort_by(f64::total_cmp);
    assert_eq!(estimates.len(), 3, "one stack for each place");
    for (estimate, bytes) in estimates.iter().zip(&expected) {
        // Each has 2,500 samples and more: 5 % are 2.5 standard deviations and more … of one run in the worst place.
        assert!((estimate / bytes - 1.0).abs() < 0.08, "{estimate} of {bytes}");
    }
    let (estimate, bytes) = (estimates.iter().sum::<f64>(), expected.iter().sum::<f64>());
    assert!((estimate / bytes - 1.0).abs() < 0.05, "{estimate} of {bytes}");
    assert!(snapshot.blocks.is_empty() && replay(snapshot, HOST).unknown_frees == 0);
}

/// Threads that live for a few blocks are sampled like any other.
pub fn short_threads() {
    const MEAN: u64 = 32 << 10;
    const SIZE: usize = 20_000;
    const THREADS: u64 = 6000;
    memtrack_core::start_monitor_with(&Options::new().sample(64 << 10, MEAN).max_entries(1 << 24)).unwrap();
    for _ in 0..THREADS / 6 {
        let threads: Vec<_> = (0..6).map(|_| thread::spawn(|| once(SIZE))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    let recording = memtrack_core::stop();
    let events = recording.snapshot().events.iter();
    let picked = events
        .filter(|event| event.action == Action::Alloc && event.size_bytes == SIZE as u64)
        .count() as f64;
    let estimate = picked * sampling_weight(SIZE as u64, MEAN) / THREADS as f64;
    // Some 2,700 samples.
    assert!((estimate - 1.0).abs() < 0.08, "{estimate}");
}

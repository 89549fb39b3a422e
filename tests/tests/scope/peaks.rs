//! The peak of a heap whose small blocks are sampled: the recorder's count, compared with the true peak.

use memtrack_core::analysis::check::{Limits, Measurements};
use memtrack_core::analysis::lifetimes::lifetimes;
use memtrack_core::analysis::peak::Peak;
use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use memtrack_core::scope;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::alone;
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

const HOST: DeviceId = DeviceId::HOST;
const MAX_BLOCKS: usize = 20_000;

/// The live bytes that the test itself counts, and their maximum.
#[derive(Default)]
struct Truth {
    live: AtomicI64,
    peak: AtomicI64,
}

impl Truth {
    fn add(&self, bytes: i64) {
        let now = self.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    fn peak(&self) -> f64 {
        self.peak.load(Ordering::Relaxed) as f64
    }
}

/// Allocates and frees blocks in waves, and finally frees all of them.
fn waves(seed: u64, steps: u64, blocks: &mut Vec<Vec<u8>>, truth: &Truth) {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for step in 0..steps {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let rises = (step as f64 / 7000.0).sin() * 450.0 + 500.0;
        if !blocks.is_empty() && (random >> 20) % 1000 > rises as u64 || blocks.len() == MAX_BLOCKS {
            let block = blocks.swap_remove((random >> 32) as usize % blocks.len());
            truth.add(-(block.len() as i64));
        } else {
            let block = black_box(vec![0; 16 + (random >> 40) as usize % 1000]);
            truth.add(block.len() as i64);
            blocks.push(block);
        }
    }
    while let Some(block) = blocks.pop() {
        truth.add(-(block.len() as i64));
    }
}

fn peak_of(snapshot: &Snapshot) -> Peak {
    Peak::of(snapshot, HOST, &lifetimes(snapshot, HOST))
}

/// Asserts that the interval of the peak contains the true peak, and that its bounds are between `least` and `most` times the
/// true peak.
fn assert_near(snapshot: &Snapshot, truth: &Truth, [least, most]: [f64; 2]) {
    let (found, mark) = (peak_of(snapshot), snapshot.counted_peak);
    let (low, high, truth) = (found.error.low, found.error.high, truth.peak());
    // The recorder counts a block slightly earlier than the test does, and also counts the test's bookkeeping.
    let slack = 8192.0;
    assert!(low <= truth + slack && high + slack >= truth, "{found:?} {mark:?} {truth}");
    assert!(low >= least * truth && high <= most * truth, "{found:?} {mark:?} {truth}");
}

#[test]
fn the_counted_peak_is_near_the_true_peak() {
    alone!();
    // With such a small budget, there are several megabytes between two samples.
    let all = [
        (Options::new().sample(1 << 20, 16 << 10), [0.98, 1.05]),
        (Options::new().budget(0.0001), [0.9, 1.6]),
    ];
    for (options, bounds) in all {
        let truth = Truth::default();
        let mut blocks = Vec::with_capacity(MAX_BLOCKS);
        memtrack_core::start_monitor_with(&options).unwrap();
        waves(1, 400_000, &mut blocks, &truth);
        let recording = memtrack_core::stop();
        let snapshot = recording.snapshot();
        assert!(snapshot.may_lack_small_blocks());
        assert_near(snapshot, &truth, bounds);
        // A peak from samples alone is less exact, but not wrong.
        let without = Snapshot { counted_peak: None, ..snapshot.clone() };
        assert!(peak_of(&without).error.high >= truth.peak());
    }
}

#[test]
fn blocks_of_many_threads_are_counted_together() {
    alone!();
    let truth = Truth::default();
    memtrack_core::start_monitor_with(&Options::new().sample(1 << 20, 16 << 10)).unwrap();
    thread::scope(|all| {
        for seed in 1..=6 {
            let truth = &truth;
            all.spawn(move || waves(seed, 100_000, &mut Vec::with_capacity(MAX_BLOCKS), truth));
        }
    });
    let recording = memtrack_core::stop();
    let found = peak_of(recording.snapshot());
    let (low, high) = (found.error.low, found.error.high);
    // The true peak, as the test counts it, does not include the vectors that contain the blocks.
    let lists = (6 * size_of::<Vec<u8>>() * MAX_BLOCKS) as f64;
    assert!(
        low >= 0.9 * truth.peak() && low <= truth.peak() + lists + 50_000.0,
        "{found:?} {}",
        truth.peak()
    );
    assert!(high + 50_000.0 >= truth.peak(), "{found:?} {}", truth.peak());
}

#[test]
fn the_peak_is_checked_at_the_end_of_each_operator() {
    alone!();
    // The sampling interval is so large that hardly any block is sampled.
    memtrack_core::start_monitor_with(&Options::new().sample(1 << 20, 1 << 30)).unwrap();
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(1000);
    for round in 0..20 {
        {
            let _operator = scope::operator("fills");
            blocks.extend((0..50 * round).map(|_| black_box(vec![0; 1000])));
        }
        blocks.clear();
    }
    let recording = memtrack_core::stop();
    let mark = recording.snapshot().counted_peak.unwrap();
    assert!(mark.bytes >= 950_000 && mark.most_bytes >= mark.bytes, "{mark:?}");
}

#[test]
fn a_session_that_records_all_blocks_has_no_counted_peak() {
    alone!();
    let truth = Truth::default();
    for _ in 0..2 {
        memtrack_core::start_monitor_with(&Options::new().exact()).unwrap();
        waves(1, 10_000, &mut Vec::with_capacity(MAX_BLOCKS), &truth);
        let recording = memtrack_core::stop();
        assert_eq!(recording.snapshot().counted_peak, None);
        assert!(!peak_of(recording.snapshot()).estimated);
        // A sampled session between exact ones has a counted peak.
        memtrack_core::start_monitor_with(&Options::new().sample(1 << 20, 4096)).unwrap();
        waves(2, 10_000, &mut Vec::with_capacity(MAX_BLOCKS), &truth);
        assert!(memtrack_core::stop().snapshot().counted_peak.is_some());
    }
}

#[test]
fn files_of_all_formats_contain_the_same_peak() {
    alone!();
    let truth = Truth::default();
    let mut blocks = Vec::with_capacity(MAX_BLOCKS);
    memtrack_core::start_monitor_with(&Options::new().sample(1 << 20, 16 << 10)).unwrap();
    waves(5, 200_000, &mut blocks, &truth);
    blocks.extend((0..500).map(|_| black_box(vec![0; 100])));
    let recording = memtrack_core::stop();
    let snapshot = recording.snapshot();
    let expected = peak_of(snapshot);
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.memtrack", "a.pickle", "a.json"] {
        let path = folder.path().join(name);
        snapshot.save_as(&path, &mut Symbolizer::of(snapshot)).unwrap();
        let read = Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot;
        let heap = if read.pytorch.is_some() { DeviceId(0) } else { HOST };
        let found = Peak::of(&read, heap, &lifetimes(&read, heap));
        assert_eq!(
            (found.bytes, found.error, found.estimated),
            (expected.bytes, expected.error, true),
            "{name}"
        );
        assert!((found.seconds.unwrap() - expected.seconds.unwrap()).abs() < 2e-6, "{name}");
        let live = |snapshot: &Snapshot, device, row| {
            let all = lifetimes(snapshot, device).into_iter();
            all.filter(|one| one.is_live_after(row)).map(|one| one.bytes).sum::<u64>()
        };
        assert_eq!(live(&read, heap, found.row), live(snapshot, HOST, expected.row), "{name}");
    }
    let pickle = Snapshot::open(folder.path().join("a.pickle"), LoadOptions::default()).unwrap().snapshot;
    let found = Measurements::of(&pickle);
    let [below, within, above] = [expected.error.low - 1.0, expected.error.low, expected.error.high]
        .map(|bytes| Limits::new().peak(bytes as u64));
    assert_eq!(found.exceeded(&below).len(), 1);
    assert!(
        found.exceeded(&below)[0].starts_with("peak of host heap: at least "),
        "{:?}",
        found.exceeded(&below)
    );
    assert!(found.exceeded(&within).is_empty() && found.cannot_tell(&within).len() == 1);
    assert!(found.exceeded(&above).is_empty() && found.cannot_tell(&above).is_empty());
    drop(blocks);
}

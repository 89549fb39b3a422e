//! Tests with programs whose live bytes rise and fall many times. They use the real sampler and simulate the recorder's
//! readings.

use super::{By, TopOptions, top};
use memtrack_blocks::estimate::Estimate;
use memtrack_blocks::lifetimes::lifetimes;
use memtrack_blocks::peak::Peak;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId};
use memtrack_model::snapshot::{CountedPeak, DeviceStatistics, Sampling, Scope, ScopeKind, Snapshot};
use memtrack_recorder::host::{Rules, StandaloneSampler, sample_block_bytes};

const HOST: DeviceId = DeviceId::HOST;
const ROWS: usize = 8;

struct Program {
    snapshot: Snapshot,
    /// The highest number of bytes that the program had live at the same time.
    peak: u64,
    /// For each event in the trace, the live bytes of each kind of block just before the event.
    live: Vec<[u64; ROWS]>,
}

/// Simulates a program that allocates and frees eight kinds of blocks in waves. `class` is the class of the
/// sampling interval; 0 means that the mean interval is fixed instead.
fn simulate_program(seed: u64, class: u8) -> Program {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut below = move |end: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % end
    };
    let budget = if class > 0 { 0.03 } else { 0.0 };
    let rules = Rules { mean_bytes: if class > 0 { 0 } else { 8192 }, budget, live_blocks: u64::MAX };
    let mut sampler = StandaloneSampler::new(seed, rules, class);
    let mut snapshot = Snapshot::default();
    snapshot.meta.sample_threshold_bytes = 64 << 10;
    snapshot.meta.sample_mean_bytes = rules.mean_bytes;
    snapshot.meta.sample_block_bytes = sample_block_bytes(rules.budget);
    let operator = |row| Scope { kind: ScopeKind::Operator, name: format!("row{row}"), ..Scope::default() };
    snapshot.scopes.rows.extend((0..ROWS).map(operator));
    let (mut blocks, mut counts) = (Vec::new(), DeviceStatistics::of(HOST));
    let (mut sampling, mut mark) = (Sampling::default(), CountedPeak::default());
    let (mut live, mut rows, mut now) = (Vec::new(), [0; ROWS], 0u64);
    let (mut peak, mut freed, mut allocated) = (0, 0, 0);
    for step in 1..40_000u64 {
        let wave = (step as f64 / 900.0).sin() * 0.45 + 0.5;
        let is_free = !blocks.is_empty() && below(1000) as f64 > wave * 1000.0;
        let ticks = 10 * step;
        if is_free {
            let place = below(blocks.len() as u64) as usize;
            let (event, recorded): (Event, bool) = blocks.swap_remove(place);
            counts.freed_bytes += event.size_bytes;
            counts.frees += 1;
            now -= event.size_bytes;
            if recorded {
                live.push(rows);
                snapshot.events.push(&Event { ticks, action: Action::Free, ..event });
            }
            rows[event.scope.index() - 1] -= event.size_bytes;
            continue;
        }
        let row = below(ROWS as u64);
        let size_bytes = match row {
            0 => 48,
            1 => 16 + below(100),
            2 => 1 << (4 + below(10)),
            _ => 100 * row + below(800),
        };
        let flags = sampler.picks(size_bytes);
        let event = Event {
            ticks,
            address: step * 65_536,
            size_bytes,
            scope: ScopeId(row as u32 + 1),
            device: HOST,
            action: Action::Alloc,
            flags: flags.unwrap_or_default(),
            ..Event::BLANK
        };
        if flags.is_some() {
            live.push(rows);
            snapshot.events.push(&event);
        } else {
            sampling.unrecorded_blocks += 1;
            sampling.unrecorded_bytes += size_bytes;
        }
        blocks.push((event, flags.is_some()));
        rows[row as usize] += size_bytes;
        counts.allocated_bytes += size_bytes;
        counts.allocations += 1;
        now += size_bytes;
        peak = peak.max(now);
        if flags.is_some_and(|flags| flags.contains(EventFlags::SAMPLED)) {
            mark.most_bytes = mark.most_bytes.max(counts.allocated_bytes - freed);
            (freed, allocated) = (counts.freed_bytes, counts.allocated_bytes);
            if now > mark.bytes {
                (mark.bytes, mark.ticks) = (now, ticks - 1);
            }
        }
    }
    mark.most_bytes = mark.most_bytes.max(counts.allocated_bytes - freed);
    assert!(allocated > 0);
    mark.until_ticks = 400_000;
    live.push(rows);
    snapshot.blocks = Vec::new();
    snapshot.devices = vec![counts];
    snapshot.sampling = Some(sampling);
    snapshot.counted_peak = Some(mark);
    Program { snapshot, peak, live }
}

fn peak_of(snapshot: &Snapshot) -> Peak {
    Peak::of(snapshot, HOST, &lifetimes(snapshot, HOST))
}

#[test]
fn sampled_peak_is_slightly_below_truth_and_never_above() {
    for seed in 1..=40 {
        let Program { snapshot, peak, .. } = simulate_program(seed, [0, 4, 6, 7][seed as usize % 4]);
        let found = peak_of(&snapshot);
        assert!(found.estimated && found.is_counted(), "{found:?}");
        let counted = snapshot.counted_peak.unwrap();
        assert_eq!((found.bytes, found.error.low as u64), (counted.bytes, counted.bytes));
        assert!(
            found.bytes <= peak && found.bytes as f64 > 0.95 * peak as f64,
            "{seed}: {} of {peak}",
            found.bytes
        );
        let high = found.error.high as u64;
        assert!(high >= peak && (high as f64) < 1.25 * peak as f64, "{seed}: {high} of {peak}");
        let text = found.error.as_bytes(found.bytes);
        let [low, high] = [found.bytes, high].map(memtrack_model::units::human_bytes);
        let ends = if low == high { low } else { format!("at least {low}, at most {high}") };
        assert_eq!(text, ends);
    }
}

#[test]
fn intervals_at_peak_contain_true_value_with_95_percent_confidence() {
    let (mut within, mut all) = (0, 0);
    for seed in 1..=150 {
        let Program { snapshot, live, .. } = simulate_program(seed, [0, 4, 5, 6, 7][seed as usize % 5]);
        let found = peak_of(&snapshot);
        // A sampled block triggered the recorder's reading, and its event is the next one after `found.row`. These
        // bytes were live just before that event.
        let truth = live[found.row.unwrap() + 1];
        let options = TopOptions::new().limit(usize::MAX);
        for row in top(&snapshot, By::Operator, HOST, &options).rows {
            let number: usize = row.name.trim_start_matches("row").parse().unwrap();
            let error = row.live_at_peak_error;
            let truth = truth[number] as f64;
            all += 1;
            within += usize::from(truth >= error.low.floor() && truth <= error.high.ceil());
        }
    }
    let share = f64::from(within as u32) / f64::from(all);
    assert!(all > 1000 && (0.93..=0.98).contains(&share), "{share} of {all}");
}

#[test]
fn without_count_interval_contains_true_peak() {
    let mut within = 0;
    for seed in 1..=60 {
        let Program { mut snapshot, peak, .. } = simulate_program(seed, [0, 4, 6, 7][seed as usize % 4]);
        snapshot.counted_peak = None;
        let found = peak_of(&snapshot);
        assert!(found.estimated && !found.is_counted());
        assert!(
            found.error.low <= found.bytes as f64 && found.bytes as f64 <= found.error.high.ceil(),
            "{found:?}"
        );
        within += u32::from(found.error.low <= peak as f64 && peak as f64 <= found.error.high);
    }
    assert!(within >= 57, "{within} of 60");
}

#[test]
fn truncated_recording_keeps_counts_up_to_its_end() {
    for seed in 1..=20 {
        let Program { mut snapshot, peak, .. } = simulate_program(seed, 5);
        let whole = peak_of(&snapshot);
        let mark = snapshot.counted_peak.as_mut().unwrap();
        mark.until_ticks = mark.ticks + 1000;
        snapshot.devices[0].counted = false;
        snapshot.sampling = None;
        let found = peak_of(&snapshot);
        assert!(found.bytes >= whole.bytes && found.error.low >= whole.error.low);
        assert!(found.error.high >= peak as f64, "{found:?} {peak}");
    }
}

#[test]
fn blocks_recorded_before_first_reading_are_exact() {
    let mut snapshot = simulate_program(1, 5).snapshot;
    let mark = snapshot.counted_peak.as_mut().unwrap();
    mark.since_ticks = 5;
    let (ticks, most) = (snapshot.events.ticks[0], mark.most_bytes + 1000);
    let mut early = snapshot.clone();
    early.events = Default::default();
    for (ticks, action) in [(2, Action::Alloc), (3, Action::Free)] {
        early.events.push(&Event {
            ticks,
            address: 8,
            size_bytes: most,
            device: HOST,
            action,
            ..Event::BLANK
        });
    }
    (0..snapshot.events.len()).for_each(|row| early.events.push(&snapshot.events.get(row)));
    assert!(ticks > 5);
    let found = peak_of(&early);
    assert_eq!(
        (found.bytes, found.row, found.estimated, found.error),
        (most, Some(0), false, Estimate::exact(most as f64))
    );
}

#[test]
fn peak_is_not_below_memory_held_at_end() {
    let mut snapshot = simulate_program(3, 5).snapshot;
    snapshot.counted_peak = None;
    snapshot.devices[0].allocated_bytes += 1 << 30;
    let found = peak_of(&snapshot);
    assert_eq!(
        (found.bytes, found.row),
        (
            (snapshot.devices[0].allocated_bytes - snapshot.devices[0].freed_bytes),
            snapshot.events.rows_of(HOST).last()
        )
    );
}

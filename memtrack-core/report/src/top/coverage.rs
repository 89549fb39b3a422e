//! Tests that the reported intervals contain the true value as often as they claim. The tests use the real sampler, the
//! real report, and programs with known sums.

use super::{By, TopOptions, TopRow, top};
use memtrack_blocks::estimate::{Estimate, MAX_RELATIVE_ERROR};
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, interval_of_class};
use memtrack_model::snapshot::{Sampling, Scope, ScopeKind, Snapshot};
use memtrack_recorder::host::{Rules, StandaloneSampler};
use std::collections::HashMap;

const LARGE_BLOCK_BYTES: u64 = 64 << 10;
const ROWS: usize = 24;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    /// Returns a block size for a row of one of five kinds: a single size; a narrow range; all sizes; mostly tiny
    /// blocks with a few larger ones; and small blocks along with some that are large enough to be always recorded.
    fn random_size(&mut self, kind: usize) -> u64 {
        match kind % 5 {
            0 => 64,
            1 => 16 + self.below(500),
            2 => 1 << (4 + self.below(12)),
            3 if self.below(10) > 0 => 32,
            3 => 8000 + self.below(16_000),
            _ if self.below(20) == 0 => LARGE_BLOCK_BYTES + self.below(LARGE_BLOCK_BYTES),
            _ => 200 + self.below(4000),
        }
    }
}

/// The bytes, the bytes live at the peak, and the number of blocks of a row.
type Numbers = [f64; 3];

/// The rows in the report on one program.
struct Program {
    /// The true values and the estimates for each row in the report.
    rows: Vec<(Numbers, [Estimate; 3])>,
    /// The number of rows in the report whose small blocks have no more bytes than the detection limit.
    rows_below_limit: usize,
    /// The number of rows that are missing from the report even though their small blocks exceed the detection limit.
    missing_above_limit: usize,
}

fn random_program(seed: u64) -> Program {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut blocks: Vec<usize> = Vec::new();
    for row in 0..ROWS {
        let most = [30, 100, 300, 1000, 3000, 10_000][(row + seed as usize) % 6];
        blocks.extend(std::iter::repeat_n(row, most / 2 + random.below(most as u64) as usize));
    }
    for place in (1..blocks.len()).rev() {
        blocks.swap(place, random.below(place as u64 + 1) as usize);
    }
    // Use either a fixed rate or one that adapts to earlier samples.
    let is_fixed = seed.is_multiple_of(3);
    let rules = match is_fixed {
        true => Rules { mean_bytes: 16 << 10, ..Rules::default() },
        false => Rules { budget: 0.03, live_blocks: u64::MAX, mean_bytes: 0 },
    };
    let mut class = (seed % 7) as u8;
    let mut sampler = StandaloneSampler::new(seed, rules, class);
    let mut snapshot = Snapshot::default();
    snapshot.meta.sample_threshold_bytes = LARGE_BLOCK_BYTES;
    snapshot.meta.sample_mean_bytes = rules.mean_bytes;
    snapshot.meta.sample_block_bytes = memtrack_recorder::host::sample_block_bytes(rules.budget);
    let operator = |row| Scope { kind: ScopeKind::Operator, name: format!("row{row}"), ..Scope::default() };
    snapshot.scopes.rows.extend((0..ROWS).map(operator));
    let mut sampling = Sampling::default();
    let mut truth = vec![Numbers::default(); ROWS];
    let mut small_bytes = [0; ROWS];
    let mut recent_samples = 0;
    for (block, &row) in blocks.iter().enumerate() {
        if !is_fixed && block % 512 == 511 {
            class = match recent_samples {
                0..40 => class.saturating_sub(1),
                100.. => (class + 1).min(11),
                _ => class,
            };
            sampler.change(class);
            sampling.widest_interval_bytes =
                sampling.widest_interval_bytes.max(if class == 0 { 0 } else { interval_of_class(class) });
            recent_samples = 0;
        }
        let size_bytes = random.random_size(row);
        let is_kept = random.below(3) == 0;
        truth[row][0] += size_bytes as f64;
        truth[row][1] += if is_kept { size_bytes as f64 } else { 0.0 };
        truth[row][2] += 1.0;
        small_bytes[row] += if size_bytes < LARGE_BLOCK_BYTES { size_bytes } else { 0 };
        let picked = if size_bytes >= LARGE_BLOCK_BYTES {
            Some(EventFlags::default())
        } else {
            sampler.picks(size_bytes)
        };
        let Some(flags) = picked else {
            sampling.unrecorded_blocks += 1;
            sampling.unrecorded_bytes += size_bytes;
            continue;
        };
        recent_samples += 1;
        let event = Event {
            ticks: 2 * block as u64,
            address: block as u64,
            size_bytes,
            scope: ScopeId(row as u32 + 1),
            device: DeviceId::HOST,
            action: Action::Alloc,
            flags,
            ..Event::BLANK
        };
        snapshot.events.push(&event);
        if !is_kept {
            snapshot.events.push(&Event { ticks: event.ticks + 1, action: Action::Free, ..event });
        }
    }
    snapshot.sampling = Some(sampling);
    let options = TopOptions::new().limit(usize::MAX);
    let report = top(&snapshot, By::Operator, DeviceId::HOST, &options);
    let errors: HashMap<_, _> = report.rows.iter().map(|row| (row.name.as_str(), row)).collect();
    let mut program = Program { rows: Vec::new(), rows_below_limit: 0, missing_above_limit: 0 };
    for (row, truth) in truth.into_iter().enumerate() {
        let is_below = small_bytes[row] <= report.detection_limit_bytes;
        match errors.get(format!("row{row}").as_str()) {
            Some(errors) => {
                let estimates = [errors.allocated_error, errors.live_at_peak_error, errors.count_error];
                program.rows.push((truth, estimates));
                program.rows_below_limit += usize::from(is_below);
            }
            None => program.missing_above_limit += usize::from(!is_below),
        }
    }
    program
}

#[test]
fn intervals_contain_true_value_with_95_percent_confidence() {
    let programs: Vec<_> = (1..=110).map(random_program).collect();
    let rows: Vec<_> = programs.iter().flat_map(|program| &program.rows).collect();
    for (number, name) in ["bytes", "bytes live at the peak", "blocks"].iter().enumerate() {
        let all = rows.iter().map(|(truth, estimates)| (truth[number], estimates[number]));
        let (shown, bounds): (Vec<_>, Vec<_>) = all
            .filter(|(_, estimate)| !estimate.is_exact())
            .partition(|(_, estimate)| estimate.relative_error() <= MAX_RELATIVE_ERROR);
        let within = |rows: &[(f64, Estimate)]| {
            rows.iter().filter(|(truth, e)| *truth >= e.low && *truth <= e.high).count()
        };
        let share = |part: usize, of: usize| part as f64 / of as f64;
        assert!(shown.len() > 500 && shown.len() + bounds.len() > 2000, "{name}: {}", shown.len());
        let all = share(within(&shown) + within(&bounds), shown.len() + bounds.len());
        assert!((0.93..=0.97).contains(&all), "{name}: {all}");
        // The intervals are just as reliable if only the rows whose error is shown are counted.
        let shown = share(within(&shown), shown.len());
        assert!((0.93..=0.97).contains(&shown), "{name} ± …: {shown}");
        let below = bounds.iter().filter(|(truth, e)| *truth <= e.bound).count();
        let below = share(below, bounds.len());
        assert!(below >= 0.95, "{name} < …: {below}");
    }
    // Rows whose small blocks exceed the detection limit are in the report.
    let (mut above, mut missing) = (0, 0);
    for program in &programs {
        above += program.rows.len() - program.rows_below_limit;
        missing += program.missing_above_limit;
    }
    assert!(missing * 20 <= above, "{missing} of {above} rows above the detection limit are missing");
}

#[test]
fn fully_recorded_program_has_no_errors() {
    let mut random = Random(7);
    let mut snapshot = Snapshot::default();
    snapshot.meta.sample_threshold_bytes = LARGE_BLOCK_BYTES;
    snapshot.sampling = Some(Sampling::default());
    for address in 0..100 {
        let size_bytes = random.random_size(2);
        let (device, action) = (DeviceId::HOST, Action::Alloc);
        snapshot.events.push(&Event { ticks: address, address, size_bytes, device, action, ..Event::BLANK });
    }
    let report = top(&snapshot, By::Size, DeviceId::HOST, &TopOptions::default());
    let exact = |row: &TopRow| row.allocated_error.is_exact() && row.count_error.is_exact();
    assert!(report.rows.iter().all(|row| exact(row) && !row.estimated) && !report.totals.estimated);
    assert!(!report.to_text(None).contains(['~', '±', '<']), "{report}");
}

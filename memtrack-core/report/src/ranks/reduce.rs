//! Reduces a rank's snapshot to its digest.

use super::curve::{Curve, Cuts};
use super::digest::{
    DeviceDigest, EndDigest, GroupDigest, MomentDigest, OutOfMemoryDigest, RankDigest, StepDigest,
};
use super::name::RankName;
use super::steps::{Step, find_steps};
use crate::top::rows::{KnownTotals, Sorter};
use crate::top::{By, TopOptions, TopRow};
use memtrack_blocks::estimate::{Estimate, Precision, Sum};
use memtrack_blocks::held::HeldMemory;
use memtrack_blocks::lifetimes::{Lifetime, lifetimes};
use memtrack_blocks::moment::Moment;
use memtrack_blocks::net::counted_at_end;
use memtrack_blocks::peak::Peak;
use memtrack_blocks::reserved::{has_reserved_bytes, reserved_after};
use memtrack_frames::attribution::Attributor;
use memtrack_frames::framework_operators::Patterns;
use memtrack_frames::ownership::Rules;
use memtrack_model::Frame;
use memtrack_model::answer::{DeviceAnswer, NameAnswer};
use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::Snapshot;
use memtrack_symbols::Symbolizer;
use std::path::Path;

/// Options for reducing a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DigestOptions {
    /// The key by which allocations are grouped.
    pub by: By,
    /// The rules that decide which frames are the user's.
    pub rules: Rules,
    /// The patterns that name operators when no scope does.
    pub patterns: Patterns,
    /// The name of the steps, without the number at the end; steps come from marks or from a profiler's ranges. If
    /// `None`, the name is `step`, `ProfilerStep`, or the most frequent name that contains `step` or `iteration`.
    pub per: Option<String>,
    /// The number of equal time bins in a file's timeline.
    pub bins: usize,
}

impl Default for DigestOptions {
    /// Returns options that group by line in the user's code and use 100 time bins.
    fn default() -> Self {
        Self { by: By::Line, rules: Rules::new(), patterns: Patterns::default(), per: None, bins: 100 }
    }
}

impl DigestOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the key by which allocations are grouped.
    #[must_use]
    pub fn by(mut self, by: By) -> Self {
        self.by = by;
        self
    }

    /// Sets the rules that decide which frames are the user's.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets the patterns that name operators when no scope does.
    #[must_use]
    pub fn patterns(mut self, patterns: Patterns) -> Self {
        self.patterns = patterns;
        self
    }

    /// Sets the name of the steps.
    #[must_use]
    pub fn per(mut self, name: impl Into<String>) -> Self {
        self.per = Some(name.into());
        self
    }

    /// Sets the number of equal time bins in a file's timeline, which is at least one.
    #[must_use]
    pub fn bins(mut self, bins: usize) -> Self {
        self.bins = bins.max(1);
        self
    }
}

impl RankDigest {
    /// Reduces `snapshot`, which was read from `file` and is [sorted by time](Snapshot::order_by_time), to the memory
    /// of its devices; `complete` is false if the file was cut off.
    pub fn of(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        file: &Path,
        complete: bool,
        options: &DigestOptions,
    ) -> Self {
        let ticks = &snapshot.events.ticks;
        let ends = |(least, most): (u64, u64), &tick: &u64| (least.min(tick), most.max(tick));
        let (begin, end) = ticks.first().map_or((0, 0), |&first| ticks.iter().fold((first, first), ends));
        let steps = find_steps(snapshot, options.per.as_deref(), begin, end);
        let time = Time { begin, end, steps: steps.as_ref().map_or(&[], |(_, steps)| steps) };
        // In a file without times, ticks are event numbers.
        let has_times = snapshot.has_times() && (snapshot.pytorch.is_none() || !ticks.is_empty());
        let reduce = |device| reduce_device(snapshot, symbols, device, &time, options);
        let RankName { rank, world, job } = RankName::of(snapshot, file);
        Self {
            rank,
            file: file.to_string_lossy().into_owned(),
            job,
            world,
            is_pytorch: snapshot.pytorch.is_some(),
            complete,
            program: snapshot.meta.program.clone(),
            pid: snapshot.meta.pid,
            events: snapshot.events.len() as u64,
            begin_ns: has_times.then_some(snapshot.clock.first.1),
            since: snapshot.seconds_since(),
            end_seconds: snapshot
                .has_times()
                .then(|| if ticks.is_empty() { 0.0 } else { snapshot.clock.seconds_since_start(end) }),
            devices: snapshot.device_ids().into_iter().map(reduce).collect(),
            step_name: steps.map(|(name, _)| name),
        }
    }
}

/// The start and end of a file in ticks, and its steps.
struct Time<'a> {
    begin: u64,
    end: u64,
    steps: &'a [Step],
}

fn reduce_device(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    device: DeviceId,
    time: &Time<'_>,
    options: &DigestOptions,
) -> DeviceDigest {
    let lifetimes = lifetimes(snapshot, device);
    let has_reserved_bytes = has_reserved_bytes(snapshot, device);
    let cuts = Cuts { begin: time.begin, end: time.end, steps: time.steps, bins: options.bins };
    let mut curve = Curve::of(snapshot, device, &lifetimes, has_reserved_bytes, &cuts);
    let highest = Peak::of(snapshot, device, &lifetimes);
    if highest.estimated {
        curve.requested.cap_at(highest.recorded.high);
    }
    let (peak_row, reserved_most) = (highest.row, curve.reserved.as_ref().map(|most| (most.most, most.row)));
    // Visit the lifetimes only once, because there are many more of them than blocks that are live at any one time.
    let (mut at_peak, mut at_end, mut at_reserved) = (Vec::new(), Vec::new(), BlockSums::default());
    for lifetime in &lifetimes {
        if lifetime.is_live_after(peak_row) {
            at_peak.push(*lifetime);
        }
        if lifetime.to.is_none() {
            at_end.push(*lifetime);
        }
        if reserved_most.is_some_and(|(_, row)| lifetime.is_live_after(row)) {
            at_reserved.add(lifetime);
        }
    }
    // Only the heap has samples unless the file states otherwise.
    let precision = match snapshot.is_heap(device) || snapshot.has_samples() {
        true => Precision::of(snapshot, device, &lifetimes),
        false => Precision::default(),
    };
    let sums = |some: &[Lifetime]| some.iter().fold(BlockSums::default(), |sums, one| sums.with(one));
    let moment = |row: Option<usize>, sums: &BlockSums, reserved_bytes, symbols: &mut Symbolizer| {
        let (phase, operator) =
            row.map_or((None, None), |row| phase_and_operator(snapshot, row, symbols, options));
        MomentDigest {
            requested_bytes: sums.bytes,
            error: precision.bytes(&sums.sum),
            reserved_bytes,
            event: row.map(|row| Moment::events_before(snapshot, device, row)),
            seconds: row.and_then(|row| snapshot.seconds_at(row)),
            phase,
            operator,
        }
    };
    let reserved = reserved_most.map(|(most, row)| moment(row, &at_reserved, Some(most), symbols));
    let reserved_at_peak = has_reserved_bytes.then(|| reserved_after(snapshot, device, peak_row));
    let peak = MomentDigest {
        requested_bytes: highest.bytes,
        // Ranks are compared by their recorded peaks, because a killed rank's later peak is unknown.
        error: highest.recorded,
        seconds: highest.seconds,
        ..moment(peak_row, &sums(&at_peak), reserved_at_peak, symbols)
    };
    let end = sums(&at_end);
    let mut end = EndDigest {
        requested_bytes: end.bytes,
        error: precision.bytes(&end.sum),
        blocks: end.blocks.round() as u64,
        allocated_bytes: allocated_at_end(snapshot, device),
        reserved_bytes: has_reserved_bytes.then(|| reserved_after(snapshot, device, Some(usize::MAX))),
    };
    if let Some(counts) = counted_at_end(snapshot, device, &lifetimes) {
        (end.requested_bytes, end.blocks) = (counts.bytes, counts.blocks);
        end.error = Estimate::exact(counts.bytes as f64);
    }
    let seconds = |ticks| snapshot.clock.seconds_since_start(ticks);
    let has_times = snapshot.has_times();
    let step = |(at, step): (usize, &Step)| {
        let (peak_requested_bytes, end_requested_bytes) = curve.requested.steps[at];
        StepDigest {
            number: step.number,
            begin_seconds: has_times.then(|| seconds(step.begin)),
            end_seconds: has_times.then(|| seconds(step.end)),
            peak_requested_bytes,
            peak_reserved_bytes: curve.reserved.as_ref().map(|levels| levels.steps[at].0),
            end_requested_bytes,
        }
    };
    let steps = time.steps.iter().enumerate().map(step).collect();
    let counts = snapshot.devices.iter().find(|counts| counts.device == device);
    let long = seconds(time.end) - seconds(time.begin);
    let waste = |at: &MomentDigest| Some(at.reserved_bytes?.saturating_sub(at.requested_bytes));
    DeviceDigest {
        device: DeviceAnswer::of(snapshot, device),
        ordinal: snapshot.ordinal(device),
        events: snapshot.events.rows_of(device).count() as u64,
        dropped: counts.map_or(0, |counts| counts.dropped),
        peak,
        waste_bytes: reserved.as_ref().and_then(waste),
        reserved,
        end,
        out_of_memory: find_ooms(snapshot, device),
        at_peak: group_blocks(snapshot, symbols, device, &lifetimes, &at_peak, &precision, options),
        at_end: group_blocks(snapshot, symbols, device, &lifetimes, &at_end, &precision, options),
        steps,
        timeline: curve.timeline(seconds(time.begin), long),
    }
}

/// Running sums of bytes and blocks.
#[derive(Default)]
struct BlockSums {
    bytes: u64,
    blocks: f64,
    sum: Sum,
}

impl BlockSums {
    fn add(&mut self, one: &Lifetime) {
        self.bytes = self.bytes.saturating_add(one.bytes);
        self.blocks += one.blocks;
        self.sum.add(one.size_bytes as f64, one.blocks);
    }

    fn with(mut self, one: &Lifetime) -> Self {
        self.add(one);
        self
    }
}

/// Returns the phase and the operator of an event, where known.
fn phase_and_operator(
    snapshot: &Snapshot,
    row: usize,
    symbols: &mut Symbolizer,
    options: &DigestOptions,
) -> (Option<String>, Option<String>) {
    let mut attributor = Attributor::new(snapshot, &options.patterns);
    let (scope, stack) = (snapshot.events.scope[row], snapshot.events.stack[row]);
    let phase = attributor.phase(scope, stack, symbols).map(|phase| phase.name().to_owned());
    let (operator, _) = attributor.operator(scope, stack, symbols);
    (phase, NameAnswer::from_text(&operator).name)
}

fn find_ooms(snapshot: &Snapshot, device: DeviceId) -> Vec<OutOfMemoryDigest> {
    let rows = snapshot.events.rows_of(device).filter(|&row| snapshot.events.action[row] == Action::Oom);
    rows.map(|row| OutOfMemoryDigest {
        event: Moment::events_before(snapshot, device, row),
        seconds: snapshot.seconds_at(row),
        requested_bytes: snapshot.events.size_bytes[row],
        device_free_bytes: snapshot.oom_free_bytes(row),
    })
    .collect()
}

/// Groups `live`, the blocks that were live at a given moment, and returns the largest group first.
fn group_blocks(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    device: DeviceId,
    lifetimes: &[Lifetime],
    live: &[Lifetime],
    precision: &Precision,
    options: &DigestOptions,
) -> Vec<GroupDigest> {
    let top = TopOptions::new()
        .rules(options.rules.clone())
        .patterns(options.patterns.clone())
        // Do not group blocks of unknown origin by the stack that frees them: it depends on when the trace ends, and
        // ranks do not all end at the same time.
        .prepare_for_matching();
    // The lifetimes of other blocks are needed only to determine whether frees carry their own stacks or those of the
    // allocations. This matters only if some live blocks are known just from their frees.
    let judged = if live.iter().all(|one| one.known) { live } else { lifetimes };
    let mut sorter = Sorter::new(snapshot, symbols, options.by, device, &top, judged);
    for lifetime in live {
        let place = sorter.find_or_add_row(lifetime);
        sorter.count(place, lifetime);
    }
    let group = |row: TopRow| GroupDigest {
        key: group_key(&row, options.by),
        bytes: row.allocated_bytes,
        error: row.allocated_error,
        blocks: row.count,
        name: row.name,
    };
    let mut groups: Vec<GroupDigest> =
        sorter.rows_by_index(precision, &KnownTotals::UNKNOWN).into_iter().map(group).collect();
    groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.key.cmp(&b.key)));
    groups
}

/// Returns the key that identifies a row's group in every rank.
fn group_key(row: &TopRow, by: By) -> String {
    let whole = |frame: &Frame| match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{file}:{line} {}", frame.function),
        (Some(file), None) => format!("{file} {}", frame.function),
        _ => frame.function.clone(),
    };
    match (by, &row.owned.mine) {
        (By::Line, Some(mine)) => whole(mine),
        (By::Stack | By::Python, _) if !row.stack.is_empty() => {
            row.stack.iter().map(|line| whole(&line.frame)).collect::<Vec<_>>().join("; ")
        }
        _ => row.name.clone(),
    }
}

/// Returns the allocated bytes at the end, as rounded by the allocator; `None` if the file does not contain the blocks'
/// states.
fn allocated_at_end(snapshot: &Snapshot, device: DeviceId) -> Option<u64> {
    snapshot.pytorch.as_ref()?;
    let held = HeldMemory::of(snapshot, device);
    (held.segments > 0).then_some(held.allocated)
}

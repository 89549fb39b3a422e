//! Computes a ranking: every lifetime of the device goes into the row of its scope and stack, and every distinct pair
//! of those is named once.

use super::groups::{self, Groups};
use super::stacks::{Trimmer, asking, lines};
use super::{By, StackLine, TopOptions, TopReport, TopRow, Totals};
use crate::analysis::attribution::{AttributedBytes, Attributor, Source};
use crate::analysis::lifetimes::{Lifetime, is_estimate, lifetimes, not_one_by_one};
use crate::analysis::moment::Moment;
use crate::analysis::peak::Peak;
use crate::event::{DeviceId, ScopeId, StackId};
use crate::scope::Phase;
use crate::snapshot::{DeviceStatistics, Snapshot};
use crate::stack::symbols::Symbolizer;
use std::collections::HashMap;

/// The row of blocks of which only the free was recorded.
const BEFORE: &str = "(allocated before the first event)";

/// The row of blocks without a stack.
pub(in crate::analysis) const NO_STACK: &str = "(no stack)";

/// What makes two allocations one row.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Name(String),
    Stack(Vec<u64>),
}

/// Sums of one row while they grow.
#[derive(Default)]
struct Sums {
    allocated_bytes: u64,
    live_at_peak_bytes: u64,
    blocks: f64,
    largest_bytes: u64,
    estimated: bool,
}

/// Finds the rows of allocations.
struct Sorter<'a> {
    snapshot: &'a Snapshot,
    symbols: &'a mut Symbolizer,
    by: By,
    groups: Groups<'a>,
    attributor: Attributor<'a>,
    trimmer: Trimmer,
    rows: HashMap<Key, usize>,
    sums: Vec<Sums>,
    known: HashMap<(ScopeId, StackId), (usize, Source), foldhash::fast::RandomState>,
}

impl Sorter<'_> {
    fn row(&mut self, key: Key) -> usize {
        let next = self.sums.len();
        let row = *self.rows.entry(key).or_insert(next);
        if row == next {
            self.sums.push(Sums::default());
        }
        row
    }

    fn row_of(&mut self, lifetime: &Lifetime) -> (usize, Source) {
        if let Some(name) = self.groups.name(lifetime) {
            // The rows are few; who asked for the blocks does not matter to them.
            return (self.row(Key::Name(name)), Source::Unattributed);
        }
        if !lifetime.known {
            return (self.row(Key::Name(BEFORE.into())), Source::Unattributed);
        }
        let place = (lifetime.scope, lifetime.stack);
        if let Some(&known) = self.known.get(&place) {
            return known;
        }
        let (operator, source) = self.attributor.operator(place.0, place.1, self.symbols);
        let key = match self.by {
            By::Operator => Key::Name(operator),
            By::Module => Key::Name(self.attributor.module(place.0, place.1, self.symbols)),
            By::Phase => Key::Name(phase_name(self.attributor.phase(place.0, place.1, self.symbols))),
            By::Frame | By::File => {
                let keys = self.snapshot.frame_keys(place.1);
                let stack = lines(self.trimmer.trim(&keys, self.symbols), self.symbols);
                let name = |line: &StackLine| groups::frame_name(&line.frame, self.by);
                Key::Name(asking(&stack).map_or(NO_STACK.into(), name))
            }
            // Their rows are found by their groups.
            By::Category | By::Stream | By::Pool | By::Metadata | By::Size => Key::Name(operator),
            By::Stack => match &self.snapshot.frame_keys(place.1)[..] {
                [] => Key::Name(NO_STACK.into()),
                addresses => Key::Stack(self.trimmer.trim(addresses, self.symbols).to_vec()),
            },
        };
        let row = self.row(key);
        self.known.insert(place, (row, source));
        (row, source)
    }

    fn finish(self, allocated_bytes: u64) -> Vec<TopRow> {
        let (sums, symbols) = (self.sums, self.symbols);
        let row = |(key, place): (Key, usize)| {
            let sums = &sums[place];
            let stack = match &key {
                Key::Name(_) => Vec::new(),
                Key::Stack(addresses) => lines(addresses, symbols),
            };
            let name = match key {
                Key::Name(name) => name,
                Key::Stack(_) => stack.first().map_or(String::new(), |line| line.frame.function.clone()),
            };
            let share =
                if allocated_bytes == 0 { 0.0 } else { sums.allocated_bytes as f64 / allocated_bytes as f64 };
            TopRow {
                name,
                allocated_bytes: sums.allocated_bytes,
                live_at_peak_bytes: sums.live_at_peak_bytes,
                count: sums.blocks.round() as u64,
                largest_bytes: sums.largest_bytes,
                share,
                estimated: sums.estimated,
                stack,
            }
        };
        let mut rows: Vec<TopRow> = self.rows.into_iter().map(row).collect();
        rows.sort_by(|a, b| {
            // Where the trace allocates nothing, what was live is all there is to rank.
            let live = || b.live_at_peak_bytes.cmp(&a.live_at_peak_bytes);
            let order = b.allocated_bytes.cmp(&a.allocated_bytes).then_with(live);
            let order = order.then_with(|| a.name.cmp(&b.name));
            // Stacks may share all of that: their addresses keep the order the same from run to run.
            order.then_with(|| a.stack.iter().map(|l| l.address).cmp(b.stack.iter().map(|l| l.address)))
        });
        rows
    }
}

pub(super) fn rank(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    by: By,
    device: DeviceId,
    options: &TopOptions,
) -> TopReport {
    let lifetimes = lifetimes(snapshot, device);
    let estimated = is_estimate(snapshot, device, &lifetimes);
    let mut peak = Peak::of(snapshot, &lifetimes);
    peak.estimated |= estimated;
    let mut attributor = Attributor::new(snapshot, &options.patterns);
    let peak_place = peak.row.map(|row| {
        let event = snapshot.events.get(row);
        let (operator, _) = attributor.operator(event.scope, event.stack, symbols);
        (phase_name(attributor.phase(event.scope, event.stack, symbols)), operator)
    });
    let mut sorter = Sorter {
        snapshot,
        symbols,
        by,
        groups: Groups::new(snapshot, by, device),
        attributor,
        trimmer: Trimmer::default(),
        rows: HashMap::new(),
        sums: Vec::new(),
        known: HashMap::default(),
    };
    let (mut totals, mut blocks) = (Totals { estimated, ..Totals::default() }, 0.0);
    let mut attribution = AttributedBytes::default();
    for lifetime in &lifetimes {
        let live = lifetime.is_live_after(peak.row);
        let allocated = match options.at {
            None => lifetime.from.is_some(),
            Some(Moment::Peak) => live,
            Some(moment) => lifetime.is_live_after(moment.row()),
        };
        // At a moment, what is not live then has no row.
        if !allocated && (!live || options.at.is_some()) {
            continue;
        }
        let (row, source) = sorter.row_of(lifetime);
        let sums = &mut sorter.sums[row];
        sums.estimated |= lifetime.estimated;
        if live {
            sums.live_at_peak_bytes = sums.live_at_peak_bytes.saturating_add(lifetime.bytes);
        }
        if allocated {
            sums.allocated_bytes = sums.allocated_bytes.saturating_add(lifetime.bytes);
            sums.blocks += lifetime.blocks;
            sums.largest_bytes = sums.largest_bytes.max(lifetime.size_bytes);
            totals.allocated_bytes = totals.allocated_bytes.saturating_add(lifetime.bytes);
            blocks += lifetime.blocks;
            attribution.add(source, lifetime.bytes);
        }
    }
    totals.count = blocks.round() as u64;
    let mut rows = sorter.finish(totals.allocated_bytes);
    let statistics = snapshot.devices.iter().find(|row| row.device == device).copied();
    let statistics =
        statistics.unwrap_or(DeviceStatistics { counted: false, ..DeviceStatistics::of(device) });
    let rows_in_all = rows.len();
    rows.truncate(options.limit);
    TopReport {
        device: snapshot.ordinal(device),
        device_name: snapshot.device_name(device),
        is_host: snapshot.is_heap(device),
        is_pinned: snapshot.is_pinned(device),
        by,
        at: options.at,
        rows,
        rows_in_all,
        totals,
        sampled: not_one_by_one(snapshot, device, &lifetimes),
        attribution,
        peak,
        peak_place,
        statistics,
        sample_threshold_bytes: snapshot.meta.sample_threshold_bytes,
        sample_mean_bytes: snapshot.meta.sample_mean_bytes,
    }
}

fn phase_name(phase: Option<Phase>) -> String {
    phase.map_or("(no phase)", Phase::name).into()
}

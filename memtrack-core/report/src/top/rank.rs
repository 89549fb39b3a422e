//! Ranks a device's memory: sorts its blocks into [`rows`](super::rows), and computes totals and attribution.

use super::age::Span;
use super::exact::ExactSums;
use super::rows::{KnownTotals, RowPlace, Sorter, phase_name};
use super::{Attribution, By, TopOptions, TopReport, Totals};
use memtrack_blocks::estimate::{Estimate, KnownTotal, Precision, Sum};
use memtrack_blocks::lifetimes::{Lifetime, is_estimate, lifetimes, not_recorded_individually};
use memtrack_blocks::moment::Moment;
use memtrack_blocks::net::counted_at_end;
use memtrack_blocks::not_recorded::missing_stacks;
use memtrack_blocks::peak::Peak;
use memtrack_frames::attribution::{AttributedBytes, Attributor, Source};
use memtrack_frames::ownership::Owners;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{DeviceStatistics, Snapshot};
use memtrack_symbols::Symbolizer;

pub(super) fn rank(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    by: By,
    device: DeviceId,
    options: &TopOptions,
) -> TopReport {
    let lifetimes = lifetimes(snapshot, device);
    let precision = Precision::of(snapshot, device, &lifetimes);
    let estimated = is_estimate(snapshot, device, &lifetimes);
    let mut peak = Peak::of(snapshot, device, &lifetimes);
    let mut attributor = Attributor::new(snapshot, &options.patterns);
    if let Some(row) = peak.row {
        let event = snapshot.events.get(row);
        peak.operator = Some(attributor.operator(event.scope, event.stack, symbols).0);
        peak.phase = Some(phase_name(attributor.phase(event.scope, event.stack, symbols)));
    }
    let exact = match options.at {
        None => ExactSums::of(snapshot, by, device, &mut attributor, symbols),
        Some(_) => None,
    };
    let mut sorter = Sorter::new(snapshot, symbols, by, device, options, &lifetimes);
    sorter.attributor = attributor;
    let span = options.at.filter(|_| !options.for_matching).and_then(|at| {
        let row = if at == Moment::Peak { peak.row } else { at.row() };
        Span::of(snapshot, device, at, row)
    });
    let is_live = |lifetime: &Lifetime| match options.at {
        None => lifetime.from.is_some(),
        Some(Moment::Peak) => lifetime.is_live_after(peak.row),
        Some(moment) => lifetime.is_live_after(moment.row()),
    };
    let mut recorded = Recorded::default();
    for lifetime in &lifetimes {
        let live = lifetime.is_live_after(peak.row);
        let allocated = is_live(lifetime);
        // In a ranking at a given moment, blocks that are not live at that moment have no row.
        if allocated || (live && options.at.is_none()) {
            recorded.add(&mut sorter, lifetime, [live, allocated], exact.as_ref(), span.as_ref());
        }
    }
    let shown = sorter.sums.len();
    if let Some(span) = &span {
        sorter.collects_stacks = false;
        for lifetime in
            lifetimes.iter().filter(|lifetime| span.was_live_halfway(lifetime) && !is_live(lifetime))
        {
            let row = sorter.find_or_add_row(lifetime).row;
            sorter.sums[row].trend.add_freed(lifetime);
        }
    }
    if let Some(exact) = &exact {
        sorter.add_exact_sums(exact);
        recorded.attribution.annotated = exact.annotated;
        recorded.attributed[Source::Annotated as usize] = Sum::default();
        recorded.attributed[Source::Annotated as usize].add(exact.annotated as f64, 1.0);
    }
    let statistics = snapshot.devices.iter().find(|row| row.device == device).copied();
    let statistics =
        statistics.unwrap_or(DeviceStatistics { counted: false, ..DeviceStatistics::of(device) });
    let ended = snapshot.meta.complete;
    let counted = match options.at {
        // The recorder counts every block of a heap, even if it records only a sample of them.
        None => match &exact {
            // If the program was killed, the sums of scopes that it left behind are from before its end, so they are
            // not totals.
            Some(exact) => ended.then_some(exact.total),
            None => counted_allocations(&statistics).filter(|_| estimated),
        },
        Some(Moment::End) => counted_at_end(snapshot, device, &lifetimes).map(|at| [at.bytes, at.blocks]),
        Some(_) => None,
    };
    // If the total is known more precisely than the rows, no row may exceed it. Even if there is only one row, it is
    // not set to the total, because blocks that were not sampled may belong to other rows, which are then missing.
    let most_live = if estimated { peak.recorded.high } else { f64::INFINITY };
    let (all_bytes, all_blocks) = (sorter.sum_of(|row| &row.allocated), sorter.sum_of(|row| &row.count));
    let (bytes, blocks) = match (counted, options.at) {
        (Some([bytes, count]), _) => {
            (KnownTotal::of(bytes as f64, &all_bytes), KnownTotal::of(count as f64, &all_blocks))
        }
        (None, Some(_)) => (KnownTotal::of(most_live, &all_bytes), KnownTotal::UNKNOWN),
        (None, None) => (KnownTotal::UNKNOWN, KnownTotal::UNKNOWN),
    };
    let until_the_end = matches!(options.at, None | Some(Moment::End));
    let ends = ended || !until_the_end;
    let known_totals = KnownTotals {
        bytes,
        blocks,
        live_at_peak: KnownTotal::of(most_live, &sorter.sum_of(|row| &row.live_at_peak)),
        // Rows that are matched with those of another file are compared only over the recorded events, so they lack
        // nothing.
        lacks_end: !ends && !options.for_matching,
        count_allocations: options.at.is_none(),
    };
    let mut totals = match (counted, &exact) {
        (Some([bytes, count]), _) => Totals::exact(bytes, count),
        (None, Some(exact)) => {
            let [bytes, count] = exact.total;
            let bytes = (all_bytes.value() as u64).max(bytes);
            Totals { estimated, ..Totals::exact(bytes, (all_blocks.value() as u64).max(count)) }
        }
        (None, None) => Totals {
            allocated_bytes: bytes.rounded(&all_bytes, recorded.bytes),
            bytes_error: bytes.part(precision.bytes(&all_bytes), &all_bytes).as_total(),
            count: recorded.blocks.round() as u64,
            count_error: precision.blocks(&all_blocks).as_total(),
            estimated,
        },
    };
    // The recorder's count at the peak is a lower bound on the bytes that were live.
    if options.at == Some(Moment::Peak) && peak.is_counted() {
        totals.bytes_error = totals.bytes_error.at_least(peak.recorded.low);
        totals.allocated_bytes = totals.allocated_bytes.max(peak.bytes);
    }
    totals.bytes_error = totals.bytes_error.with_completeness(ends);
    totals.count_error = totals.count_error.with_completeness(ends);
    let known_attributed = |all: &Sum| match counted {
        Some([bytes, _]) => KnownTotal::of(bytes as f64, all),
        None if options.at.is_some() => KnownTotal::of(most_live, all),
        None => KnownTotal::UNKNOWN,
    };
    let attribution = recorded.attribution(&precision, known_attributed, exact.is_some(), ends);
    // With a span, rows from `shown` on are only for blocks that have been freed. Without one, all rows are shown,
    // including those that the sums of scopes added. There are such sums only if no moment was requested.
    let shown = if span.is_some() { shown } else { usize::MAX };
    let forwards = sorter.owners.forwards();
    let mut rows = sorter.finish(shown, totals.allocated_bytes, &precision, &known_totals, span.as_ref());
    let rows_in_all = rows.len();
    rows.truncate(options.limit);
    if snapshot.pytorch.is_some() {
        // PyTorch's files have no addresses. These numbers only made the order deterministic.
        rows.iter_mut().flat_map(|row| &mut row.stack).for_each(|line| line.address = 0);
    }
    let mut owners = Owners::new(&options.rules).with_forward_lines(forwards);
    for row in rows.iter_mut().filter(|row| by != By::Line && !row.stack.is_empty()) {
        row.owned = owners.owner_of(row.stack.iter().map(|line| &line.frame));
    }
    let scope_sums = exact.as_ref().and(snapshot.scope_sums.as_ref());
    let killed = scope_sums.filter(|_| !ended);
    TopReport {
        device: DeviceAnswer::of(snapshot, device),
        by,
        at: options.at,
        missing_stacks: missing_stacks(snapshot, device).filter(|_| !options.for_matching),
        lacks_times: !snapshot.has_times(),
        growth_since_seconds: span.and_then(|span| span.middle_seconds()),
        rows,
        rows_in_all,
        totals,
        estimated,
        complete: ended,
        sampled: not_recorded_individually(snapshot, device, &lifetimes),
        exact_scopes: exact.is_some(),
        sums_at_seconds: killed.map(|sums| snapshot.clock.seconds_since_start(sums.ticks)),
        folded_scopes: scope_sums.map_or(0, |sums| sums.folded),
        folded: snapshot.folded,
        attribution,
        peak,
        statistics,
        sample_threshold_bytes: if estimated { snapshot.meta.sample_threshold_bytes } else { 0 },
        sample_mean_bytes: snapshot.meta.sample_mean_bytes,
        sample_block_bytes: snapshot.meta.sample_block_bytes,
        budget: snapshot.meta.budget,
        sampling: snapshot.sampling.filter(|_| snapshot.is_heap(device)),
        detection_limit_bytes: if estimated { precision.detection_limit_bytes() } else { 0 },
        explained: None,
    }
}

/// What the recorded blocks of a ranking add up to, apart from the rows.
#[derive(Default)]
struct Recorded {
    /// The bytes and the number of the blocks that no exact sum includes.
    bytes: u64,
    blocks: f64,
    /// The bytes of all blocks, by the source of their operator's name.
    attribution: AttributedBytes,
    attributed: [Sum; 3],
}

impl Recorded {
    /// Adds a block to its row. It was live at the peak, or it counts in the ranking, or both (`[live, allocated]`).
    fn add(
        &mut self,
        sorter: &mut Sorter<'_>,
        lifetime: &Lifetime,
        [live, allocated]: [bool; 2],
        exact: Option<&ExactSums>,
        span: Option<&Span<'_>>,
    ) {
        let RowPlace { row, source, called } = sorter.find_or_add_row(lifetime);
        let sums = &mut sorter.sums[row];
        sums.live_estimated |= live && lifetime.estimated;
        sums.has_older |= lifetime.from.is_none();
        if live {
            sums.live_at_peak_bytes = sums.live_at_peak_bytes.saturating_add(lifetime.bytes);
            sums.live_at_peak.add(lifetime.size_bytes as f64, lifetime.blocks);
        }
        if !allocated {
            return;
        }
        sums.largest_bytes = sums.largest_bytes.max(lifetime.size_bytes);
        self.attribution.add(source, lifetime.bytes);
        self.attributed[source as usize].add(lifetime.size_bytes as f64, lifetime.blocks);
        if exact.is_some_and(|exact| exact.includes(lifetime.scope)) {
            return;
        }
        if let Some(span) = span {
            sums.trend.add_live(span, lifetime);
        }
        if let Some(text) = sorter.texts.program_text(lifetime) {
            let [bytes, blocks] = sums.texts.entry(text).or_default();
            (*bytes, *blocks) = (bytes.saturating_add(lifetime.bytes), *blocks + 1);
        }
        sums.count(lifetime, called);
        self.bytes = self.bytes.saturating_add(lifetime.bytes);
        self.blocks += lifetime.blocks;
    }

    /// Returns the bytes by source. `known` returns what is known of the total of a sum, and `is_exact` states that annotated
    /// bytes are the recorder's own.
    fn attribution(
        mut self,
        precision: &Precision,
        known: impl Fn(&Sum) -> KnownTotal,
        is_exact: bool,
        ends: bool,
    ) -> Attribution {
        let known = known(&self.attributed.iter().fold(Sum::default(), |all, part| all.with(part)));
        let [annotated_error, named_from_stacks_error, unattributed_error] = [0, 1, 2].map(|source| {
            let sum = &self.attributed[source];
            let error = match is_exact && source == Source::Annotated as usize {
                true => Estimate::exact(sum.value()),
                false => known.part(precision.bytes(sum), sum),
            };
            error.with_completeness(ends)
        });
        let sums = &self.attributed;
        self.attribution.map(|source, bytes| known.rounded(&sums[source as usize], bytes));
        Attribution {
            annotated: self.attribution.annotated,
            annotated_error,
            named_from_stacks: self.attribution.named_from_stacks,
            named_from_stacks_error,
            unattributed: self.attribution.unattributed,
            unattributed_error,
        }
    }
}

/// Returns the bytes and number of all allocations if the recorder counted them and dropped none of their events.
fn counted_allocations(statistics: &DeviceStatistics) -> Option<[u64; 2]> {
    let is_complete = statistics.counted && statistics.dropped == 0;
    is_complete.then_some([statistics.allocated_bytes, statistics.allocations])
}

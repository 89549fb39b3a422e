//! Finds leaks in a recording, where each block counts in the periods that it lived through.

use super::ages::Ages;
use super::alive::{BlockSums, Group, JudgedGroups, JudgedPeriods, LateWindows, StayedBlocks};
use super::generations::{Generations, Survivors};
use super::passes::no_step_has_ended;
use super::periods::{CutBy, Moments, NoSuchInterval, Periods, cut};
use super::suppress::Search;
use super::text::format_not_judged;
use super::{DeviceLeaks, LEAST_PERIOD_SECONDS, LeakOptions, LeakReport, MIN_PERIODS, MIN_SECONDS};
use crate::top::TopOptions;
use crate::top::rows::{KnownTotals, Sorter};
use memtrack_blocks::estimate::Precision;
use memtrack_blocks::lifetimes::{Lifetime, is_estimate, lifetimes};
use memtrack_blocks::not_recorded::missing_stacks;
use memtrack_blocks::peak::Peak;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::event::{Action, DeviceId, StackId};
use memtrack_model::snapshot::{Clock, Snapshot};
use memtrack_model::times::human_period;
use memtrack_model::units::counted;
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;

/// The minimum average number of events per period for a verdict.
const MIN_EVENTS_PER_PERIOD: usize = 2;
/// The corresponding minimum for files that do not record times, in which all events may belong to a program's startup.
const MIN_EVENTS_WITHOUT_TIMES: usize = 100;
/// The last 1/20 of a recording counts as its last moments.
const LATE_DIVISOR: u64 = 20;
/// The group number for blocks that a suppression leaves out.
const SUPPRESSED_GROUP: u32 = u32::MAX;

pub(super) fn find_leaks(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    devices: &[DeviceId],
    options: &LeakOptions,
) -> Result<LeakReport, NoSuchInterval> {
    let moments = Moments::of(snapshot);
    let per = options.per.as_deref();
    let periods = cut(snapshot, &moments, symbols, devices, per, options.periods)?;
    let seconds = |ticks: u64| Seconds::of(&snapshot.clock).duration(ticks as f64);
    let first = snapshot.events.ticks.iter().min().copied().unwrap_or(0);
    let length = periods.ends.last().map_or(0.0, |&last| seconds(last.saturating_sub(first)));
    let period_seconds = length / periods.ends.len().max(1) as f64;
    let mut search = Search::new(&options.suppressions);
    let period_seconds = moments.are_times.then_some(period_seconds);
    let of_device = |&device: &DeviceId| {
        // Without times, each device's periods are based on its own events.
        let own = (!moments.are_times && devices.len() > 1)
            .then(|| cut(snapshot, &moments, symbols, &[device], per, options.periods).ok())
            .flatten();
        let periods = own.as_ref().unwrap_or(&periods);
        find_device_leaks(snapshot, &moments, symbols, device, periods, period_seconds, &mut search, options)
    };
    let mut notes: Vec<String> = Vec::new();
    if !moments.are_times && !snapshot.events.is_empty() {
        let some = if snapshot.has_any_time() { "some events have" } else { "the file's events have" };
        notes.push(format!("{some} no times: ages are unknown, and periods are numbers of events"));
    }
    notes.extend(devices.iter().filter_map(|&device| missing_stacks(snapshot, device)));
    let mut devices: Vec<DeviceLeaks> = devices.iter().map(of_device).collect();
    // In an incomplete recording, later events are missing, so these numbers are only lower bounds on the memory left at
    // the end.
    let complete = snapshot.meta.complete;
    for device in &mut devices {
        for amount in [&mut device.leaked, &mut device.alive] {
            amount.bytes_error = amount.bytes_error.with_completeness(complete);
            amount.blocks_error = amount.blocks_error.with_completeness(complete);
        }
        for row in device.leaks.iter_mut().map(|leak| &mut leak.row) {
            row.allocated_error = row.allocated_error.with_completeness(complete);
            row.count_error = row.count_error.with_completeness(complete);
        }
    }
    let unused = search.used.iter().enumerate().filter(|(_, used)| !**used);
    let report = LeakReport {
        by: options.by,
        leaking: false,
        blind: None,
        answer: Vec::new(),
        split_foreign_by_stack: options.split_foreign_by_stack,
        unused_suppressions: unused.map(|(number, _)| options.suppressions.glob(number).to_owned()).collect(),
        periods: periods.ends.len(),
        cut: periods.by,
        period_events: periods.events,
        complete,
        period_seconds,
        devices,
        notes,
    };
    Ok(report.summed_up())
}

/// The length of a tick, for converting ticks to seconds.
#[derive(Clone, Copy)]
struct Seconds {
    per_tick: f64,
}

impl Seconds {
    fn of(clock: &Clock) -> Self {
        let (first, last) = (clock.first, clock.last);
        let per_tick = match last.0 > first.0 && last.1 > first.1 {
            true => (last.1 - first.1) as f64 / (last.0 - first.0) as f64 / 1e9,
            false => 1e-9,
        };
        Self { per_tick }
    }

    fn duration(self, ticks: f64) -> f64 {
        ticks * self.per_tick
    }
}

/// Returns the reason why a device's leaks cannot be determined; `None` if they can.
fn undetermined_reason(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    device: DeviceId,
    lifetimes: &[Lifetime],
    periods: &Periods,
    period_seconds: Option<f64>,
) -> Option<String> {
    let actions = || snapshot.events.rows_of(device).map(|row| snapshot.events.action[row]);
    let allocations = actions().filter(|&action| action == Action::Alloc).count();
    if allocations == 0 {
        let has_blocks = snapshot.blocks.iter().any(|block| block.device == device);
        return Some(match has_blocks {
            true => "it only shows what is live, not when it was allocated: give several snapshots of the \
                     process, in the order in which they were taken"
                .into(),
            false if snapshot.events.is_empty() => "it has no events: recording was not on".into(),
            false => "nothing was allocated while it was recorded".into(),
        });
    }
    if let CutBy::Intervals { name, count } = &periods.by
        && *count < MIN_PERIODS
    {
        let times = counted(*count as u64, "time");
        return Some(format!(
            "{name} is marked only {times}: growth is visible only from {MIN_PERIODS} periods on"
        ));
    }
    let events = actions().count();
    let least = MIN_EVENTS_PER_PERIOD * periods.ends.len();
    if events < least || periods.ends.first() == periods.ends.last() {
        let events = counted(events as u64, "event");
        return Some(format!(
            "it is too short, with {events}, to be cut into periods: steady growth cannot be seen"
        ));
    }
    if !matches!(periods.by, CutBy::Intervals { .. })
        && no_step_has_ended(snapshot, symbols, device, lifetimes)
    {
        return Some(
            "no step ended in it: memory that a first pass keeps for later looks like a leak; record \
             several steps"
                .into(),
        );
    }
    let count = periods.ends.len();
    if let Some(each) = periods.events {
        return (each < MIN_EVENTS_WITHOUT_TIMES).then(|| {
            format!(
                "it is too short, with {} and no times, to distinguish growth from a program's start: \
                 record at least {}, or give several snapshots",
                counted(events as u64, "event"),
                counted((MIN_EVENTS_WITHOUT_TIMES * count) as u64, "event")
            )
        });
    }
    let period_seconds = period_seconds?;
    let seconds = period_seconds * count as f64;
    let is_short = seconds < MIN_SECONDS || period_seconds < LEAST_PERIOD_SECONDS;
    (periods.by == CutBy::Time && is_short).then(|| {
        let (long, least) = (human_period(seconds), MIN_SECONDS.max(LEAST_PERIOD_SECONDS * count as f64));
        format!(
            "it is too short, {long}, to distinguish growth from a program's start: record at least {}, \
             mark the program's steps, or give several snapshots",
            human_period(least)
        )
    })
}

#[allow(clippy::too_many_lines, clippy::too_many_arguments)]
fn find_device_leaks(
    snapshot: &Snapshot,
    moments: &Moments<'_>,
    symbols: &mut Symbolizer,
    device: DeviceId,
    periods: &Periods,
    period_seconds: Option<f64>,
    search: &mut Search<'_>,
    options: &LeakOptions,
) -> DeviceLeaks {
    let lifetimes = lifetimes(snapshot, device);
    let precision = Precision::of(snapshot, device, &lifetimes);
    let estimated = is_estimate(snapshot, device, &lifetimes);
    let mut blind = undetermined_reason(snapshot, symbols, device, &lifetimes, periods, period_seconds);
    let top = TopOptions::new().rules(options.rules.clone()).patterns(options.patterns.clone());
    let mut sorter = Sorter::new(snapshot, symbols, options.by, device, &top, &lifetimes)
        .split_foreign_by_stack(options.split_foreign_by_stack);
    let ends = &periods.ends;
    let ticks = &moments.by_row[..];
    // The number of an event's period, counting from 1; 0 is the start of the recording.
    let period_of = |row: usize| 1 + ends.partition_point(|&end| end < ticks[row]);
    let end = ends.last().copied().unwrap_or(0);
    let begin = match moments.are_times {
        true => ticks.iter().min().copied(),
        false => snapshot.events.rows_of(device).next().map(|row| row as u64),
    };
    let late = end - end.saturating_sub(begin.unwrap_or(end)) / LATE_DIVISOR;
    let late = LateWindows::of(ends, late);
    let mut groups: Vec<u32> = Vec::with_capacity(lifetimes.len());
    let mut stays: HashMap<u32, StayedBlocks, foldhash::fast::RandomState> = HashMap::default();
    let mut never_freed: Vec<BlockSums> = Vec::new();
    let mut of_stacks: HashMap<(u32, StackId), u64, foldhash::fast::RandomState> = HashMap::default();
    let (mut suppressed, mut older) = (BlockSums::default(), BlockSums::default());
    // The memory that a step left behind is judged while the steps run, because frees after the last step belong to the
    // program's shutdown. Memory that is older than the first mark was not allocated by any step.
    let steps = periods.marks.first().zip(periods.marks.last());
    let is_left = |lifetime: &Lifetime| match (lifetime.from, lifetime.to, steps) {
        (_, None, _) => true,
        (Some(from), Some(to), Some((first, last))) => {
            (*first..=*last).contains(&ticks[from]) && ticks[to] > *last
        }
        (_, Some(_), _) => false,
    };
    let (mut freed_later, mut left): (Vec<BlockSums>, Vec<BlockSums>) = (Vec::new(), Vec::new());
    let mut survivors = options.per.as_ref().map(|_| Survivors::new(&periods.marks));
    for lifetime in &lifetimes {
        if search.is_suppressed(snapshot, lifetime.stack, sorter.symbols()) {
            if lifetime.from.is_some() && lifetime.to.is_none() {
                suppressed.add(lifetime.size_bytes, lifetime.blocks);
            }
            groups.push(SUPPRESSED_GROUP);
            continue;
        }
        let place = sorter.find_or_add_row(lifetime);
        let group = place.row as u32;
        groups.push(group);
        let born = lifetime.from.map_or(0, period_of);
        let is_left = is_left(lifetime);
        let gone = lifetime.to.filter(|_| !is_left).map_or(ends.len() + 1, period_of);
        // The block lived through at least one whole period.
        if gone >= born + 2 {
            let stays = stays.entry(group).or_insert_with(|| StayedBlocks::new(ends.len()));
            stays.add(born, gone - 1, lifetime.size_bytes, lifetime.blocks);
        }
        if let Some(to) = lifetime.to
            && let Some(stays) = stays.get_mut(&group)
        {
            let born = lifetime.from.map_or(0, |from| ticks[from]);
            stays.add_freed(late, [born, ticks[to]], lifetime.size_bytes, lifetime.blocks);
        }
        let Some(from) = lifetime.from else {
            if lifetime.to.is_none() {
                older.add(lifetime.size_bytes, lifetime.blocks);
            }
            continue;
        };
        if let Some(survivors) = &mut survivors {
            survivors.add_allocated(ticks[from], lifetime, group, is_left);
        }
        if is_left {
            never_freed.resize(never_freed.len().max(place.row + 1), BlockSums::default());
            never_freed[place.row].add(lifetime.size_bytes, lifetime.blocks);
            let sums = if lifetime.to.is_some() { &mut freed_later } else { &mut left };
            sums.resize(sums.len().max(place.row + 1), BlockSums::default());
            sums[place.row].add(lifetime.size_bytes, lifetime.blocks);
            *of_stacks.entry((group, lifetime.stack)).or_default() += lifetime.bytes;
            sorter.count(place, lifetime);
        }
    }
    let older = older.amount(&precision);
    if let Some(why) = &mut blind
        && !moments.are_times
        && !why.contains("no times")
    {
        *why += "; its events have no times";
    }
    if let Some(why) = &mut blind
        && older.blocks > 0
        && snapshot.events.rows_of(device).next().is_some()
    {
        *why += &format!("; {}", format_not_judged(&older));
    }
    let may_leak = |group| moments.are_times && stays.get(&group).is_some_and(StayedBlocks::may_leak);
    let mut ages = collect_ages(snapshot, &lifetimes, &groups, may_leak);
    keep_largest_stacks(&mut sorter, of_stacks);
    let most = if estimated { Peak::of(snapshot, device, &lifetimes).recorded.high } else { f64::INFINITY };
    let wholes = KnownTotals::live(most, &sorter.sum());
    let rows = sorter.rows_by_index(&precision, &wholes);
    let generations = survivors.map(|survivors| {
        let per = options.per.clone().unwrap_or_default();
        Generations::of(survivors, per, snapshot, &rows, &precision, options.limit, moments.are_times)
    });
    let groups = rows.into_iter().enumerate().map(|(place, row)| {
        let never_freed = never_freed.get(place).copied().unwrap_or_default();
        let stays = stays.remove(&(place as u32)).filter(|_| blind.is_none());
        let stays = stays.map(|stays| (stays, ages.remove(&(place as u32))));
        let freed_later = freed_later.get(place).copied().unwrap_or_default();
        let left = left.get(place).copied().unwrap_or_default();
        Group { row, never_freed, freed_later, left, stays }
    });
    // A leak may start late, but it must show in half of the periods.
    let least = (ends.len() / 2).max(MIN_PERIODS - 1);
    let seconds_per_tick = moments.are_times.then(|| Seconds::of(&snapshot.clock).per_tick);
    let judged_periods = JudgedPeriods {
        seconds: period_seconds.unwrap_or(0.0),
        least,
        end,
        seconds_per_tick,
        between_snapshots: false,
    };
    let judged = JudgedGroups::of(groups, &judged_periods, &precision, options);
    let counts = snapshot.devices.iter().find(|counts| counts.device == device);
    DeviceLeaks {
        device: DeviceAnswer::of(snapshot, device),
        blind,
        leaks: judged.leaks,
        leaks_in_all: judged.leaks_in_all,
        leaked: judged.leaked.amount(&precision),
        alive: judged.alive.amount(&precision),
        alive_groups: judged.alive_groups,
        older,
        suppressed: suppressed.amount(&precision),
        detection_limit_bytes: if estimated { precision.detection_limit_bytes() } else { 0 },
        dropped: counts.map_or(0, |counts| counts.dropped),
        freed_late: judged.freed_late,
        generations,
    }
}

/// Makes each group show the stack with the most bytes left, and drops stacks with no bytes left.
pub(super) fn keep_largest_stacks(
    sorter: &mut Sorter<'_>,
    of_stacks: HashMap<(u32, StackId), u64, foldhash::fast::RandomState>,
) {
    let mut all: Vec<((u32, StackId), u64)> = of_stacks.into_iter().collect();
    all.sort_unstable_by_key(|&((group, stack), bytes)| (group, std::cmp::Reverse(bytes), stack));
    for group in all.chunk_by(|((a, _), _), ((b, _), _)| a == b) {
        let stacks: Vec<StackId> = group.iter().map(|&((_, stack), _)| stack).collect();
        sorter.set_stacks(group[0].0.0 as usize, &stacks);
    }
}

/// Computes the lifetimes and ages of the blocks in groups for which `may_leak` is true.
fn collect_ages(
    snapshot: &Snapshot,
    lifetimes: &[Lifetime],
    groups: &[u32],
    may_leak: impl Fn(u32) -> bool,
) -> HashMap<u32, Ages, foldhash::fast::RandomState> {
    let seconds = Seconds::of(&snapshot.clock);
    let ticks = &snapshot.events.ticks;
    let end = ticks.iter().max().copied().unwrap_or(0);
    let mut ages: HashMap<u32, Ages, foldhash::fast::RandomState> = HashMap::default();
    for (lifetime, &group) in lifetimes.iter().zip(groups) {
        if group == SUPPRESSED_GROUP || !may_leak(group) {
            continue;
        }
        let Some(from) = lifetime.from else { continue };
        let ages = ages.entry(group).or_default();
        let since = |to: u64| seconds.duration(to.saturating_sub(ticks[from]) as f64);
        match lifetime.to {
            Some(to) => ages.add_freed(since(ticks[to]), lifetime.blocks),
            None => ages.add_alive(since(end), lifetime.blocks, lifetime.bytes as f64),
        }
    }
    ages
}

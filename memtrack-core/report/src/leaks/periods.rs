//! Splits a recording into periods: at steps if the program marked them, and into equal spans of time otherwise.

use memtrack_frames::attribution::Attributor;
use memtrack_frames::framework_operators::Patterns;
use memtrack_model::Phase;
use memtrack_model::event::{DeviceId, ScopeId, StackId, ThreadId};
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::{ScopeKind, Snapshot};
use memtrack_symbols::Symbolizer;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Marks that occur less often than this are not used as steps unless requested.
const MIN_MARKS: usize = 8;
/// The name that PyTorch's profiler gives to steps. In each step's name, `#` and the step's number follow.
const PROFILER_STEP: &str = "ProfilerStep";
/// The name that any program can use for its steps.
const STEP: &str = "step";

/// The ways in which a recording can be divided into periods.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutBy {
    /// By equal spans of time.
    Time,
    /// By equal numbers of events, because the file does not record the times of all of them.
    Events,
    /// By the program's own intervals, which lie between its marks, its entries into scopes, or a profiler's
    /// annotations.
    Intervals {
        /// The name of the intervals.
        name: String,
        /// The number of intervals.
        count: usize,
    },
    /// By snapshots: each period lasts from one snapshot to the next.
    Snapshots,
}

/// The error for a recording that does not have the requested intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoSuchInterval {
    /// The requested name.
    pub name: String,
    /// The names of the intervals that the recording does have.
    pub known: Vec<String>,
}

impl std::fmt::Display for NoSuchInterval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, known } = self;
        match known.is_empty() {
            true => write!(f, "no interval named {name} repeats in it, and it has no other marks"),
            false => write!(f, "no interval named {name} repeats in it; it has {}", known.join(", ")),
        }
    }
}

impl std::error::Error for NoSuchInterval {}

/// The periods of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Periods {
    pub(super) by: CutBy,
    /// The number of events in each period, rounded down, if they are cut by events.
    pub(super) events: Option<usize>,
    /// The ticks at which the periods end; the last period ends with the recording.
    pub(super) ends: Vec<u64>,
    /// The moments between the program's own intervals; empty if the periods are not based on them.
    pub(super) marks: Vec<u64>,
}

/// The moments of events: their ticks, or their numbers in the file if it does not record all times.
pub(super) struct Moments<'a> {
    pub(super) by_row: Cow<'a, [u64]>,
    pub(super) are_times: bool,
}

impl<'a> Moments<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let events = &snapshot.events;
        match snapshot.has_times() {
            true => Self { by_row: Cow::Borrowed(&events.ticks), are_times: true },
            false => Self { by_row: (0..events.len() as u64).collect(), are_times: false },
        }
    }
}

/// Divides the events on `devices` into at most `most` periods; `per` is the name of the requested intervals.
pub(super) fn cut(
    snapshot: &Snapshot,
    moments: &Moments<'_>,
    symbols: &mut Symbolizer,
    devices: &[DeviceId],
    per: Option<&str>,
    most: usize,
) -> Result<Periods, NoSuchInterval> {
    let events = &snapshot.events;
    let of_devices = |row: &usize| devices.contains(&events.device[*row]);
    let mut ticks: Vec<u64> = (0..events.len()).filter(of_devices).map(|row| moments.by_row[row]).collect();
    if !ticks.is_sorted() {
        ticks.sort_unstable();
    }
    let last = ticks.last().copied().unwrap_or(0);
    let found = match per {
        Some(name) => {
            let marks = find_boundaries(&EntrySearch { snapshot, moments, devices }, symbols, name);
            if marks.is_empty() {
                return Err(NoSuchInterval { name: name.to_owned(), known: interval_names(snapshot) });
            }
            Some((name.to_owned(), marks))
        }
        None => find_most_frequent(&EntrySearch { snapshot, moments, devices }, &ticks),
    };
    let Some((name, marks)) = found else {
        if !moments.are_times {
            let ends = cut_by_events(&ticks, most);
            let events = Some(ticks.len() / ends.len().max(1));
            return Ok(Periods { by: CutBy::Events, events, ends, marks: Vec::new() });
        }
        let ends = cut_by_time(&ticks, most);
        return Ok(Periods { by: CutBy::Time, events: None, ends, marks: Vec::new() });
    };
    let count = most.min(marks.len());
    let mut ends: Vec<u64> =
        (1..=count).map(|period| marks[(period * marks.len()).div_ceil(count) - 1]).collect();
    if let Some(end) = ends.last_mut() {
        *end = last.max(*end);
    }
    Ok(Periods { by: CutBy::Intervals { name, count: marks.len() }, events: None, ends, marks })
}

/// Returns the ends of `count` equal parts of the time, not counting gaps between events that are longer than a period.
fn cut_by_time(ticks: &[u64], count: usize) -> Vec<u64> {
    let (Some(&first), Some(&last)) = (ticks.first(), ticks.last()) else { return Vec::new() };
    let pause = (last - first) / count as u64;
    let gap = |pair: &[u64]| match pair[1] - pair[0] {
        gap if gap > pause => 0,
        gap => gap,
    };
    let busy: u64 = ticks.windows(2).map(gap).sum();
    if busy == 0 {
        let end =
            |period: u64| first + ((u128::from(last - first) * u128::from(period)) / count as u128) as u64;
        return (1..=count as u64).map(end).collect();
    }
    let (mut ends, mut so_far) = (Vec::with_capacity(count), 0u64);
    for pair in ticks.windows(2) {
        so_far += gap(pair);
        while ends.len() + 1 < count
            && u128::from(so_far) * count as u128 >= u128::from(busy) * (ends.len() as u128 + 1)
        {
            ends.push(pair[1]);
        }
    }
    ends.push(last);
    ends
}

/// Returns the ends of `count` parts that have equal numbers of events.
fn cut_by_events(moments: &[u64], count: usize) -> Vec<u64> {
    let count = count.min(moments.len());
    (1..=count).map(|period| moments[period * moments.len() / count - 1]).collect()
}

/// The events to search for entries into scopes and phases.
struct EntrySearch<'a> {
    snapshot: &'a Snapshot,
    moments: &'a Moments<'a>,
    devices: &'a [DeviceId],
}

/// Returns the moments between the intervals with this name, which are marks or, failing that, annotations, scopes or
/// phases.
fn find_boundaries(search: &EntrySearch<'_>, symbols: &mut Symbolizer, name: &str) -> Vec<u64> {
    let snapshot = search.snapshot;
    let mut moments = Vec::new();
    // Events without times cannot be ordered among marks and annotations.
    if search.moments.are_times {
        moments = marks_by_name(snapshot).remove(name).unwrap_or_default();
        if moments.is_empty() {
            moments = annotation_starts(snapshot).remove(name).unwrap_or_default();
        }
        if moments.is_empty() && name == STEP {
            moments = annotation_starts(snapshot).remove(PROFILER_STEP).unwrap_or_default();
        }
    }
    if moments.is_empty() {
        moments = find_scope_entries(search, |scope| scope.name == name);
    }
    if moments.is_empty() {
        let phase = match name {
            STEP => Some(Phase::Optimizer),
            _ => [Phase::Forward, Phase::Backward, Phase::Optimizer]
                .into_iter()
                .find(|phase| phase.name() == name),
        };
        moments = phase.map_or_else(Vec::new, |phase| find_phase_entries(search, symbols, phase));
    }
    moments.sort_unstable();
    moments.dedup();
    moments
}

/// Returns the default intervals: the most frequent marks that occur throughout the recording, or else the optimizer's
/// steps.
fn find_most_frequent(search: &EntrySearch<'_>, ticks: &[u64]) -> Option<(String, Vec<u64>)> {
    let (&first, &last) = (ticks.first()?, ticks.last()?);
    let third = (last - first) / 3;
    let is_throughout = |marks: &Vec<u64>| {
        let ends = marks.first().zip(marks.last());
        marks.len() >= MIN_MARKS
            && ends.is_some_and(|(&from, &to)| from <= first + third && to >= last - third)
    };
    let marked = marks_by_name(search.snapshot).into_iter().filter(|_| search.moments.are_times);
    let most = marked.filter(|(_, marks)| is_throughout(marks)).max_by_key(|(_, marks)| marks.len());
    most.or_else(|| {
        let steps = find_scope_entries(search, |scope| scope.kind == ScopeKind::Optimizer);
        is_throughout(&steps).then(|| (Phase::Optimizer.name().to_owned(), steps))
    })
}

/// Returns the names of intervals that can be requested.
fn interval_names(snapshot: &Snapshot) -> Vec<String> {
    let of = |all: BTreeMap<String, Vec<u64>>| all.into_keys().collect::<Vec<_>>();
    let mut names = of(marks_by_name(snapshot));
    names.extend(of(annotation_starts(snapshot)));
    let scopes = snapshot.scopes.rows.iter().filter(|scope| scope.kind != ScopeKind::Operator);
    names.extend(scopes.map(|scope| scope.name.clone()).filter(|name| !name.is_empty()));
    names.sort();
    names.dedup();
    names.truncate(20);
    names
}

/// Returns the moments that the program marked, by name.
fn marks_by_name(snapshot: &Snapshot) -> BTreeMap<String, Vec<u64>> {
    let mut marks: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for mark in &snapshot.marks.rows {
        match marks.get_mut(snapshot.marks.name(mark)) {
            Some(moments) => moments.push(mark.ticks),
            None => drop(marks.insert(snapshot.marks.name(mark).to_owned(), vec![mark.ticks])),
        }
    }
    marks
}

/// Returns the starts of the ranges that PyTorch's profiler recorded, by name without any step number.
fn annotation_starts(snapshot: &Snapshot) -> BTreeMap<String, Vec<u64>> {
    let mut begin: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return begin };
    let rows = &pytorch.annotations;
    for row in (0..rows.len()).filter(|&row| rows.has(row, Key::Name) && rows.has(row, Key::TimeUs)) {
        let stage = snapshot.strings.get(rows.text(row, Key::Stage));
        let name = snapshot.strings.get(rows.text(row, Key::Name));
        if stage == "START" {
            let name = match name.rsplit_once('#') {
                Some((name, number)) if number.bytes().all(|digit| digit.is_ascii_digit()) => name,
                _ => &name,
            };
            begin.entry(name.to_owned()).or_default().push(rows.number(row, Key::TimeUs));
        }
    }
    begin
}

/// Returns the moments at which threads entered scopes for which `matches` is true, as far as the threads' events show.
fn find_scope_entries(
    search: &EntrySearch<'_>,
    matches: impl Fn(&memtrack_model::snapshot::Scope) -> bool,
) -> Vec<u64> {
    let rows = &search.snapshot.scopes.rows;
    if !rows.iter().any(&matches) {
        return Vec::new();
    }
    // A parent's id is smaller than its children's ids, except in damaged tables.
    let mut inside = vec![false; rows.len()];
    for (id, scope) in rows.iter().enumerate().skip(1) {
        let parent = scope.parent.index();
        inside[id] = matches(scope) || (parent < id && inside[parent]);
    }
    find_entries(search, |scope, _| inside.get(scope.index()).copied().unwrap_or(false))
}

/// Returns the moments at which threads entered a phase, as far as the threads' events show.
fn find_phase_entries(search: &EntrySearch<'_>, symbols: &mut Symbolizer, phase: Phase) -> Vec<u64> {
    let patterns = Patterns::default();
    let mut attributor = Attributor::new(search.snapshot, &patterns);
    let mut known: HashMap<(ScopeId, StackId), bool, foldhash::fast::RandomState> = HashMap::default();
    find_entries(search, |scope, stack| {
        let is_in = || attributor.phase(scope, stack, symbols) == Some(phase);
        *known.entry((scope, stack)).or_insert_with(is_in)
    })
}

/// Returns the moment of each thread's first event after `is_in` becomes true.
fn find_entries(search: &EntrySearch<'_>, mut is_in: impl FnMut(ScopeId, StackId) -> bool) -> Vec<u64> {
    let EntrySearch { snapshot, moments: moment, devices } = search;
    let events = &snapshot.events;
    let mut are_in: HashMap<(DeviceId, ThreadId), bool, foldhash::fast::RandomState> = HashMap::default();
    let mut moments = Vec::new();
    for row in 0..events.len() {
        // PyTorch's files have no threads and contain the traces of their devices one after another, so devices are
        // distinguished as well. In these files, events without a scope or stack do not show the phase and are skipped.
        let (scope, stack) = (events.scope[row], events.stack[row]);
        // Without times, moments on two devices cannot be compared.
        if !moment.are_times && !devices.contains(&events.device[row]) {
            continue;
        }
        if snapshot.pytorch.is_some() && stack.is_none() && scope.is_none() {
            continue;
        }
        let now = is_in(scope, stack);
        let before = are_in.insert((events.device[row], events.thread[row]), now);
        if now && before == Some(false) {
            moments.push(moment.by_row[row]);
        }
    }
    moments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_events_is_not_counted() {
        let busy: Vec<u64> = (0..100).map(|tick| tick * 10).collect();
        assert_eq!(cut_by_time(&busy, 10).len(), 10);
        assert_eq!(cut_by_time(&busy, 10)[4], 500);
        let mut with_pause = busy.clone();
        with_pause.extend(busy.iter().map(|tick| tick + 100_000));
        let ends = cut_by_time(&with_pause, 10);
        assert_eq!((ends.len(), ends[9]), (10, 100_990));
        assert_eq!(ends.iter().filter(|&&end| end < 1000).count(), 5, "{ends:?}");
    }

    #[test]
    fn events_without_times_are_cut_into_equal_numbers() {
        assert_eq!(cut_by_events(&(100..1100).collect::<Vec<_>>(), 10)[..2], [199, 299]);
        assert_eq!(cut_by_events(&[5, 6, 7], 10), [5, 6, 7]);
        assert_eq!(cut_by_events(&[], 10), [0; 0]);
    }

    #[test]
    fn few_events_far_apart_are_cut_by_plain_time() {
        assert_eq!(cut_by_time(&[0, 1000], 10), (1..=10).map(|period| period * 100).collect::<Vec<_>>());
        assert_eq!(cut_by_time(&[], 10), [0; 0]);
        assert_eq!(cut_by_time(&[7], 2), [7, 7]);
    }
}

//! The steps that a program marked, either with a mark at the end of each step
//! ([`Marks`](memtrack_model::snapshot::Marks) in recordings) or with ranges from PyTorch's profiler, which calls them
//! `ProfilerStep#3` and so on.

use memtrack_model::snapshot::Snapshot;
use memtrack_model::snapshot::pytorch::Key;
use std::collections::BTreeMap;

/// The name that PyTorch's profiler gives to steps. In each step's name, `#` and the step's number follow.
const PROFILER_STEP: &str = "ProfilerStep";
/// The name that any program can use for its steps.
const STEP: &str = "step";
/// Intervals whose names contain one of these words count as steps if no name is requested.
const STEP_WORDS: [&str; 2] = ["step", "iteration"];
/// Intervals that occur less often than this are not steps unless requested.
const MIN_STEPS: usize = 2;
/// The maximum number of steps in a digest; if there are more, the first ones are left out.
const MAX_STEPS: usize = 1 << 16;

/// A single step, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// Returns the steps with the requested name, or the default steps if no name is requested, along with their name.
/// Returns `None` if there are no such steps. `begin` and `end` are the ticks of the first and last events.
pub(super) fn find_steps(
    snapshot: &Snapshot,
    requested: Option<&str>,
    begin: u64,
    end: u64,
) -> Option<(String, Vec<Step>)> {
    let marked = steps_from_marks(snapshot, begin);
    let found =
        choose_steps(marked, requested).or_else(|| choose_steps(steps_from_ranges(snapshot, end), requested));
    found.map(|(name, steps)| {
        let mut steps = remove_overlaps(steps);
        let surplus = steps.len().saturating_sub(MAX_STEPS);
        steps.drain(..surplus);
        (name, steps)
    })
}

/// Returns the steps in order and without overlaps. A step that starts within another is shortened to start where the
/// other one ends, and a step that lies entirely within another is dropped.
fn remove_overlaps(mut steps: Vec<Step>) -> Vec<Step> {
    steps.sort_by_key(|step| (step.begin, std::cmp::Reverse(step.end)));
    let mut until = 0;
    steps.retain_mut(|step| {
        step.begin = step.begin.max(until);
        let is_left = step.begin < step.end;
        until = until.max(step.end);
        is_left
    });
    steps
}

/// Chooses the intervals that are steps, and returns them with their name.
fn choose_steps(
    mut by_name: BTreeMap<String, Vec<Step>>,
    requested: Option<&str>,
) -> Option<(String, Vec<Step>)> {
    if let Some(name) = requested {
        let names = [name, if name == STEP { PROFILER_STEP } else { name }];
        return names.into_iter().find_map(|name| by_name.remove_entry(name));
    }
    for name in [STEP, PROFILER_STEP] {
        if by_name.get(name).is_some_and(|steps| steps.len() >= MIN_STEPS) {
            return by_name.remove_entry(name);
        }
    }
    let is_step = |name: &str| STEP_WORDS.iter().any(|word| name.to_ascii_lowercase().contains(word));
    by_name.retain(|name, steps| steps.len() >= MIN_STEPS && is_step(name));
    by_name.into_iter().max_by_key(|(_, steps)| steps.len())
}

/// Returns the intervals between moments that the program marked, by name. Each mark ends a step, and the time after
/// the last mark is not a step.
fn steps_from_marks(snapshot: &Snapshot, begin: u64) -> BTreeMap<String, Vec<Step>> {
    let mut by_name: BTreeMap<String, Vec<Step>> = BTreeMap::new();
    for mark in &snapshot.marks.rows {
        let (name, number) = split_number(snapshot.marks.name(mark));
        let steps = by_name.entry(name.to_owned()).or_default();
        let from = steps.last().map_or(begin, |last| last.end);
        steps.push(Step { number: number.unwrap_or(steps.len() as u64), begin: from, end: mark.ticks });
    }
    by_name
}

/// Returns the ranges that PyTorch's profiler recorded, by name. A range without an end lasts until the end of the
/// trace.
fn steps_from_ranges(snapshot: &Snapshot, end: u64) -> BTreeMap<String, Vec<Step>> {
    let mut by_name: BTreeMap<String, Vec<Step>> = BTreeMap::new();
    // Ranges cannot be ordered among events that have no times.
    let timed = snapshot.pytorch.as_deref().filter(|_| snapshot.has_times());
    let Some(pytorch) = timed else { return by_name };
    let rows = &pytorch.annotations;
    // The index of each open range in its list. Nested ranges with the same name end innermost first.
    let mut open: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for row in (0..rows.len()).filter(|&row| rows.has(row, Key::Name) && rows.has(row, Key::TimeUs)) {
        let stage = snapshot.strings.get(rows.text(row, Key::Stage));
        let whole = snapshot.strings.get(rows.text(row, Key::Name));
        let time = rows.number(row, Key::TimeUs);
        match &*stage {
            "START" => {
                let (name, number) = split_number(&whole);
                let steps = by_name.entry(name.to_owned()).or_default();
                let number = number.unwrap_or(steps.len() as u64);
                open.entry(whole.clone().into_owned()).or_default().push((name.to_owned(), steps.len()));
                steps.push(Step { number, begin: time, end });
            }
            "END" => {
                let last = open.get_mut(&*whole).and_then(Vec::pop);
                if let Some(step) = last.and_then(|(name, at)| by_name.get_mut(&name)?.get_mut(at)) {
                    step.end = time.max(step.begin);
                }
            }
            _ => {}
        }
    }
    by_name
}

/// Splits the number off the end of a name, as in `ProfilerStep#3`, `step 3` or `step_3`.
fn split_number(whole: &str) -> (&str, Option<u64>) {
    let name = whole.trim_end_matches(|last: char| last.is_ascii_digit());
    match whole[name.len()..].parse() {
        Ok(number) => (name.trim_end_matches(['#', ' ', '_', '-', ':', '=']), Some(number)),
        Err(_) => (whole, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::ThreadId;

    #[test]
    fn mark_ends_step_and_names_may_have_numbers() {
        let mut snapshot = Snapshot::default();
        for (ticks, name) in [(10, "step"), (15, "checkpoint"), (30, "step"), (35, "save"), (90, "step")] {
            snapshot.marks.push(ticks, ThreadId(0), name);
        }
        let step = |number, begin, end| Step { number, begin, end };
        let expected = vec![step(0, 2, 10), step(1, 10, 30), step(2, 30, 90)];
        assert_eq!(find_steps(&snapshot, None, 2, 99), Some(("step".into(), expected)));
        assert_eq!(find_steps(&snapshot, Some("save"), 2, 99), Some(("save".into(), vec![step(0, 2, 35)])));
        assert_eq!(find_steps(&snapshot, Some("epoch"), 2, 99), None);
        for (whole, name, number) in [
            ("ProfilerStep#17", "ProfilerStep", Some(17)),
            ("step 3", "step", Some(3)),
            ("## forward ##", "## forward ##", None),
            ("12", "", Some(12)),
        ] {
            assert_eq!(split_number(whole), (name, number), "{whole}");
        }
    }

    #[test]
    fn steps_do_not_overlap() {
        let step = |number, begin, end| Step { number, begin, end };
        let steps = vec![step(0, 0, 10), step(1, 2, 5), step(2, 8, 20), step(3, 20, 20), step(4, 25, 30)];
        assert_eq!(remove_overlaps(steps), [step(0, 0, 10), step(2, 10, 20), step(4, 25, 30)]);
    }

    #[test]
    fn intervals_without_step_name_are_steps_only_on_request() {
        let mut snapshot = Snapshot::default();
        for ticks in 1..9 {
            snapshot.marks.push(ticks, ThreadId(0), "request");
        }
        assert_eq!(find_steps(&snapshot, None, 0, 9), None);
        assert_eq!(find_steps(&snapshot, Some("request"), 0, 9).map(|(_, steps)| steps.len()), Some(8));
    }
}

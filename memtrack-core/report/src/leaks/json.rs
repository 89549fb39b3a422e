//! The parts of a leak report whose JSON has another form.

use super::{Age, Amount, CutBy, Leak};
use crate::top::{CalledPart, StackLine};
use memtrack_blocks::estimate::Estimate;
use memtrack_model::Frame;
use memtrack_model::answer::NameAnswer;
use serde::Serialize;

// A leak's row is that of a ranking, of which only some numbers mean something for memory that was never freed.
/// A group that leaks.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LeakForm {
    /// The group's name: a line, an operator, or whatever the groups are keyed by.
    #[serde(flatten)]
    name: NameAnswer,
    /// The group's memory that was never freed, or was freed only after the last of the program's steps.
    never_freed: Amount,
    /// The part of `never_freed` that was freed after the last step, e.g. when the program exited.
    freed_later: Amount,
    /// The number of periods in which the group grew, out of those in `periods`.
    grew_periods: usize,
    /// The number of periods in which the group's growth was judged, starting with the first one in which any of its
    /// memory stayed.
    periods: usize,
    /// The group's average growth per period, in bytes.
    each_period_bytes: u64,
    /// The margin of error of the average growth per period; null if it is exact.
    each_period_bytes_error: Estimate,
    /// The group's bytes that lived through each of the judged periods. For a series of snapshots, these are the bytes
    /// in each snapshot, starting with the one before the first judged period.
    held_bytes: Vec<u64>,
    /// The margin of error of each number in `held_bytes`; null for a number that is exact.
    held_bytes_error: Vec<Estimate>,
    /// The ages of the group's blocks; null if too few of its blocks were freed to know their usual lifetime.
    age: Option<Age>,
    /// The group's first stack, innermost frame first; null for groups without stacks.
    stack: Option<Vec<StackLine>>,
    /// The number of distinct stacks in the group; null for groups without stacks.
    stacks: Option<usize>,
    /// The group's innermost line in the user's code; null if there is none.
    mine: Option<Frame>,
    /// The function that the line in `mine` called; null if there is none.
    calls: Option<Frame>,
    /// The functions that the group's line called, up to ten; empty for groups other than lines.
    called: Vec<CalledPart>,
}

// Each value has a key of its own, which is always present.
/// How the periods of a report were determined.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct CutForm {
    /// How the periods were determined: by `time`, by `events` (if the file does not record all times), by the
    /// program's own `intervals`, or by `snapshots`.
    cut_by: &'static str,
    /// The name of the program's own intervals that serve as periods; null if there are none.
    interval_name: Option<String>,
    /// The number of the program's own intervals that serve as periods; null if there are none.
    intervals: Option<usize>,
}

memtrack_model::serialize_as!(CutBy => CutForm: |cut| {
    let (cut_by, interval_name, intervals) = match cut {
        CutBy::Time => ("time", None, None),
        CutBy::Events => ("events", None, None),
        CutBy::Intervals { name, count } => ("intervals", Some(name.clone()), Some(*count)),
        CutBy::Snapshots => ("snapshots", None, None),
    };
    CutForm { cut_by, interval_name, intervals }
});

memtrack_model::serialize_as!(Leak => LeakForm: LeakForm::of);

impl LeakForm {
    fn of(leak: &Leak) -> Self {
        let row = &leak.row;
        Self {
            name: NameAnswer::from_text(&row.name),
            never_freed: Amount {
                bytes: row.allocated_bytes,
                bytes_error: row.allocated_error,
                blocks: row.count,
                blocks_error: row.count_error,
            },
            freed_later: leak.freed_later,
            grew_periods: leak.grew,
            periods: leak.periods,
            each_period_bytes: leak.each_bytes.value.max(0.0).round() as u64,
            each_period_bytes_error: leak.each_bytes,
            held_bytes: leak.held_bytes.clone(),
            held_bytes_error: leak.held_errors.clone(),
            age: leak.age,
            stack: (!row.stack.is_empty()).then(|| row.stack.clone()),
            stacks: (row.stacks > 0).then_some(row.stacks),
            mine: row.owned.mine.clone(),
            calls: row.owned.called.clone(),
            called: row.called.clone().unwrap_or_default(),
        }
    }
}

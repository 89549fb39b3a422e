//! The forms of changes in JSON, where they are keys of the row or device that changed: a row has two changes, so what is
//! counted is part of each key.

use crate::top::StackLine;
use memtrack_blocks::change::Change;
use memtrack_model::answer::ErrorAnswer;
use serde::{Serialize, Serializer};

/// The requested bytes in an earlier and a later file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct BytesChangeAnswer {
    /// The requested bytes in the earlier file.
    pub before_requested_bytes: u64,
    /// The margin of error of the bytes in the earlier file, or null if they are exact.
    pub before_requested_bytes_error: Option<ErrorAnswer>,
    /// The requested bytes in the later file.
    pub after_requested_bytes: u64,
    /// The margin of error of the bytes in the later file, or null if they are exact.
    pub after_requested_bytes_error: Option<ErrorAnswer>,
    /// The growth of the requested bytes from the earlier to the later file; negative if they shrank.
    pub change_requested_bytes: i64,
    /// The margin of error of the growth, or null if the growth is exact.
    pub change_requested_bytes_error: Option<ErrorAnswer>,
}

/// The number of blocks in an earlier and a later file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CountChangeAnswer {
    /// The number of blocks in the earlier file.
    pub before_count: u64,
    /// The margin of error of the block count in the earlier file, or null if the count is exact.
    pub before_count_error: Option<ErrorAnswer>,
    /// The number of blocks in the later file.
    pub after_count: u64,
    /// The margin of error of the block count in the later file, or null if the count is exact.
    pub after_count_error: Option<ErrorAnswer>,
    /// The growth of the block count from the earlier to the later file; negative if the count fell.
    pub change_count: i64,
    /// The margin of error of the growth, or null if the growth is exact.
    pub change_count_error: Option<ErrorAnswer>,
}

impl BytesChangeAnswer {
    pub(super) fn of(change: &Change) -> Self {
        Self {
            before_requested_bytes: change.before.value,
            before_requested_bytes_error: change.before.error.answer(),
            after_requested_bytes: change.after.value,
            after_requested_bytes_error: change.after.error.answer(),
            change_requested_bytes: change.clamped_growth(),
            change_requested_bytes_error: error_of(change),
        }
    }
}

impl CountChangeAnswer {
    fn of(change: &Change) -> Self {
        Self {
            before_count: change.before.value,
            before_count_error: change.before.error.answer(),
            after_count: change.after.value,
            after_count_error: change.after.error.answer(),
            change_count: change.clamped_growth(),
            change_count_error: error_of(change),
        }
    }
}

pub(super) fn serialize_bytes<S: Serializer>(change: &Change, to: S) -> Result<S::Ok, S::Error> {
    BytesChangeAnswer::of(change).serialize(to)
}

pub(super) fn serialize_count<S: Serializer>(change: &Change, to: S) -> Result<S::Ok, S::Error> {
    CountChangeAnswer::of(change).serialize(to)
}

/// Serializes the functions of a stack; null if there are none. Two files have different addresses, so these are left out.
pub(super) fn serialize_functions<S: Serializer>(stack: &[StackLine], to: S) -> Result<S::Ok, S::Error> {
    let functions = || stack.iter().map(|line| &line.frame).collect::<Vec<_>>();
    (!stack.is_empty()).then(functions).serialize(to)
}

fn error_of(change: &Change) -> Option<ErrorAnswer> {
    if change.is_exact() { None } else { change.estimate().answer() }
}

//! A diff as JSON, with bytes and blocks as integers and with signed differences.

use super::{DeviceDiff, Diff};
use crate::top::StackLine;
use memtrack_blocks::change::{Amount, Change};
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The changes in memory between an earlier and a later file. Bytes are requested bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DiffAnswer {
    /// The key by which allocations are grouped, named as in `--by`.
    pub by: &'static str,
    /// The blocks that are compared, named as in `--at`.
    pub at: &'static str,
    /// Whether anything differs by more than the margin of error.
    pub different: bool,
    /// The changes, as sentences.
    pub answer: Vec<String>,
    /// The changes on each device that is in both files.
    pub devices: Vec<DeviceDiff>,
    /// The devices that are only in the earlier file.
    pub only_before: Vec<AloneAnswer>,
    /// The devices that are only in the later file.
    pub only_after: Vec<AloneAnswer>,
    /// Caveats about the comparison, as sentences.
    pub notes: Vec<String>,
}

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

/// A device that is only in one of the files.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AloneAnswer {
    /// The device that is missing from the other file.
    pub device: DeviceAnswer,
    /// The requested bytes on the device.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
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

impl Diff {
    /// Returns the report as `memtrack diff --json` prints it.
    pub fn answer_json(&self) -> DiffAnswer {
        let unmatched = |devices: &[(String, Amount)]| {
            let device = |(name, amount): &(String, Amount)| AloneAnswer {
                device: DeviceAnswer::from_name(name),
                requested_bytes: amount.value,
                requested_bytes_error: amount.error.answer(),
            };
            devices.iter().map(device).collect()
        };
        DiffAnswer {
            by: self.by.name(),
            at: self.at.name(),
            different: self.is_different(),
            answer: self.answer(),
            devices: self.devices.clone(),
            only_before: unmatched(&self.unmatched[0]),
            only_after: unmatched(&self.unmatched[1]),
            notes: self.notes.clone(),
        }
    }

    /// Returns the report as a JSON value, with the same content as [`Self::answer_json`].
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self.answer_json()).unwrap_or_default()
    }
}

//! A diff as JSON, with bytes and blocks as integers and with signed differences.

use super::{DeviceDiff, Diff, DiffRow, Kind};
use crate::analysis::change::{Amount, Change};
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, FrameAnswer, NameAnswer};
use serde::Serialize;
use serde_json::Value;

/// The changes between two files. Bytes are requested bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DiffAnswer {
    /// The key by which allocations are grouped, as for `--by`.
    pub by: &'static str,
    /// The blocks that are compared, as for `--at`.
    pub at: &'static str,
    /// Whether anything differs by more than the error of the numbers.
    pub different: bool,
    /// The changes, as sentences.
    pub answer: Vec<String>,
    /// The devices that are in both files.
    pub devices: Vec<DeviceDiffAnswer>,
    /// The devices that are only in the earlier file.
    pub only_before: Vec<AloneAnswer>,
    /// The devices that are only in the later file.
    pub only_after: Vec<AloneAnswer>,
    /// Caveats about the comparison, as sentences.
    pub notes: Vec<String>,
}

/// Requested bytes in the two files.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct BytesChangeAnswer {
    /// The bytes in the earlier file.
    pub before_requested_bytes: u64,
    /// The error of those bytes.
    pub before_requested_bytes_error: Option<ErrorAnswer>,
    /// The bytes in the later file.
    pub after_requested_bytes: u64,
    /// The error of those bytes.
    pub after_requested_bytes_error: Option<ErrorAnswer>,
    /// The growth; negative if the bytes shrank.
    pub change_requested_bytes: i64,
    /// The error of the change.
    pub change_requested_bytes_error: Option<ErrorAnswer>,
}

/// Numbers of blocks in the two files.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CountChangeAnswer {
    /// The number in the earlier file.
    pub before_count: u64,
    /// The error of that number.
    pub before_count_error: Option<ErrorAnswer>,
    /// The number in the later file.
    pub after_count: u64,
    /// The error of that number.
    pub after_count_error: Option<ErrorAnswer>,
    /// The growth; negative if the number fell.
    pub change_count: i64,
    /// The error of the change.
    pub change_count_error: Option<ErrorAnswer>,
}

/// The changes on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DeviceDiffAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// The total of the device's bytes.
    #[serde(flatten)]
    pub bytes: BytesChangeAnswer,
    /// The number of the device's blocks.
    #[serde(flatten)]
    pub blocks: CountChangeAnswer,
    /// The groups that differ, with the largest changes first.
    pub rows: Vec<DiffRowAnswer>,
    /// The number of groups that differ.
    pub rows_in_all: usize,
    /// The number of groups that are the same in both files.
    pub unchanged: usize,
    /// The number of groups that differ by less than the error of their estimates.
    pub within_error: usize,
}

/// The change in one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DiffRowAnswer {
    /// The group: its operator, module path, phase or category; for a line or a stack, the function.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// How the group changed.
    pub change: Kind,
    /// The group's bytes.
    #[serde(flatten)]
    pub bytes: BytesChangeAnswer,
    /// The group's blocks.
    #[serde(flatten)]
    pub blocks: CountChangeAnswer,
    /// The number of groups in the earlier file that were merged into this one because they differ only in an index, an
    /// address or a line.
    pub before_members: u64,
    /// The number of groups in the later file that were merged into this one.
    pub after_members: u64,
    /// The functions, innermost first, as in the later file; a single function if groups are lines, and null if they
    /// are neither lines nor stacks.
    pub stack: Option<Vec<FrameAnswer>>,
    /// The innermost function's line in the earlier file, if it is different there.
    pub line_before: Option<u32>,
}

/// A device that is only in one of the files.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AloneAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// The device's bytes.
    pub requested_bytes: u64,
    /// The error of the requested bytes.
    pub requested_bytes_error: Option<ErrorAnswer>,
}

impl Change {
    /// Returns the change in bytes for JSON.
    pub(in crate::analysis) fn to_bytes_answer(self) -> BytesChangeAnswer {
        BytesChangeAnswer {
            before_requested_bytes: self.before.value,
            before_requested_bytes_error: self.before.error.answer(),
            after_requested_bytes: self.after.value,
            after_requested_bytes_error: self.after.error.answer(),
            change_requested_bytes: self.clamped_growth(),
            change_requested_bytes_error: self.to_error_answer(),
        }
    }

    /// Returns the change in the number of blocks for JSON.
    pub(in crate::analysis) fn to_count_answer(self) -> CountChangeAnswer {
        CountChangeAnswer {
            before_count: self.before.value,
            before_count_error: self.before.error.answer(),
            after_count: self.after.value,
            after_count_error: self.after.error.answer(),
            change_count: self.clamped_growth(),
            change_count_error: self.to_error_answer(),
        }
    }

    /// Returns the change, clamped to a number that JSON parsers accept, because sums in a file from another source may
    /// be larger.
    fn clamped_growth(&self) -> i64 {
        i64::try_from(self.by()).unwrap_or(if self.by() > 0 { i64::MAX } else { i64::MIN })
    }

    fn to_error_answer(self) -> Option<ErrorAnswer> {
        if self.is_exact() { None } else { self.estimate().answer() }
    }
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
            devices: self.devices.iter().map(device_to_answer).collect(),
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

fn device_to_answer(device: &DeviceDiff) -> DeviceDiffAnswer {
    DeviceDiffAnswer {
        device: DeviceAnswer::new(device.device, &device.device_name, device.is_host, device.is_pinned),
        bytes: device.bytes.to_bytes_answer(),
        blocks: device.blocks.to_count_answer(),
        rows: device.rows.iter().map(row_to_answer).collect(),
        rows_in_all: device.rows_in_all,
        unchanged: device.unchanged,
        within_error: device.within_error,
    }
}

fn row_to_answer(row: &DiffRow) -> DiffRowAnswer {
    let change = row.kind();
    debug_assert_ne!(change, Kind::Same, "an unchanged group is no row");
    let stack = || row.stack.iter().map(|line| FrameAnswer::from(&line.frame)).collect();
    DiffRowAnswer {
        name: NameAnswer::from_text(&row.name),
        change,
        bytes: row.bytes.to_bytes_answer(),
        blocks: row.blocks.to_count_answer(),
        before_members: row.members[0],
        after_members: row.members[1],
        stack: (!row.stack.is_empty()).then(stack),
        line_before: row.line_before,
    }
}

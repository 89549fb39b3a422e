//! The changes between two files: the groups of allocations that grew, shrank, appeared or disappeared. `memtrack diff`
//! prints them, and `memtrack check --against` judges them.
//!
//! A diff is two rankings ([`top`](crate::top)) whose groups are matched with each other. Each file is reduced to its
//! groups ([`Side`]), so only one of the files has to be in memory at a time. `sides` reduces the files, `names` and
//! `moved_lines` decide which groups are the same, `pairs` matches the groups, and `kind` classifies how each of them
//! changed.

mod against;
mod flame;
mod json;
mod moved_lines;
mod names;
mod pairs;
mod sides;
mod text;

pub use against::{Growth, PeakComparison};
#[cfg(feature = "plot")]
pub use flame::flame_graph;
pub use json::{BytesChangeAnswer, CountChangeAnswer};
pub use memtrack_blocks::change::{Amount, Change, Kind};
pub use sides::{Side, SideDevice};

use crate::top::StackLine;
use memtrack_blocks::estimate::Estimate;
use memtrack_frames::ownership::Rules;
#[cfg(feature = "schema")]
use memtrack_model::Frame;
#[cfg(feature = "schema")]
use memtrack_model::answer::NameAnswer;
use memtrack_model::answer::{DeviceAnswer, serialize_as_name};
use memtrack_model::snapshot::Snapshot;
use serde::Serialize;

/// The key by which a diff groups allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DiffBy {
    /// The innermost line in the user's code or, if there is none, in a framework ([`ownership`](memtrack_frames::ownership)).
    Line,
    /// Operators by full name.
    Operator,
    /// Module paths.
    Module,
    /// Phases.
    Phase,
    /// Stacks, by the names and files of their functions.
    Stack,
    /// The category from a profile.
    Category,
}

impl DiffBy {
    /// All groupings.
    pub const ALL: [Self; 6] =
        [Self::Line, Self::Operator, Self::Module, Self::Phase, Self::Stack, Self::Category];

    /// Returns the name of the grouping in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Operator => "operator",
            Self::Module => "module",
            Self::Phase => "phase",
            Self::Stack => "stack",
            Self::Category => "category",
        }
    }

    /// Returns a short description of the groups.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Line => "Lines of your own code",
            Self::Operator => "Operators, all calls in one group",
            Self::Module => "Module paths, layers of one kind in one group",
            Self::Phase => "forward, backward, optimizer",
            Self::Stack => "Stacks, by the names and files of their functions",
            Self::Category => "Memory categories from a profile",
        }
    }

    /// Returns the default grouping for a snapshot: by line if stacks were recorded, and by operator otherwise.
    pub fn default_for(snapshot: &Snapshot) -> Self {
        let has_stacks = snapshot.events.stack.iter().any(|stack| !stack.is_none())
            || snapshot.blocks.iter().any(|block| !block.stack.is_none());
        if has_stacks { Self::Line } else { Self::Operator }
    }
}

memtrack_model::serialize_as!(DiffBy => &'static str: |by| by.name());

/// The blocks in each file that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DiffAt {
    /// Blocks that were live when the most bytes were live.
    #[default]
    Peak,
    /// Blocks that were live after the last event.
    End,
    /// All allocated blocks.
    Total,
}

impl DiffAt {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Peak, Self::End, Self::Total];

    /// Returns the name of the value in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::End => "end",
            Self::Total => "total",
        }
    }

    /// Returns a short description of the compared blocks.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Peak => "What was live at the peak",
            Self::End => "What is live at the end",
            Self::Total => "All that was allocated",
        }
    }

    /// Returns the term for the compared bytes in a sentence.
    const fn noun(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::End => "live at the end",
            Self::Total => "requested",
        }
    }
}

memtrack_model::serialize_as!(DiffAt => &'static str: |at| at.name());

/// The change in one group of allocations.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DiffRow {
    /// The group: its operator, module path, phase or category; for a line or a stack, the function.
    #[serde(flatten, serialize_with = "serialize_as_name")]
    #[cfg_attr(feature = "schema", schemars(with = "NameAnswer"))]
    pub name: String,
    /// How the group changed.
    pub change: Kind,
    /// The group's requested bytes in both files.
    #[serde(flatten, serialize_with = "json::serialize_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "json::BytesChangeAnswer"))]
    pub bytes: Change,
    /// The number of the group's blocks in both files.
    #[serde(flatten, serialize_with = "json::serialize_count")]
    #[cfg_attr(feature = "schema", schemars(with = "json::CountChangeAnswer"))]
    pub blocks: Change,
    /// The number of groups in the earlier file that were merged into this one because they differ only in an index, an
    /// address or a line.
    pub before_members: u64,
    /// The number of groups in the later file that were merged into this one because they differ only in an index, an
    /// address or a line.
    pub after_members: u64,
    /// The group's functions, innermost first, as in the later file. A line has a single function. The stack is null if
    /// groups are neither lines nor stacks.
    #[serde(serialize_with = "json::serialize_functions")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<Frame>>"))]
    pub stack: Vec<StackLine>,
    /// The innermost function's line number in the earlier file; null unless it is different there.
    pub line_before: Option<u32>,
}

/// Returns how a group changed.
fn kind_of_group(bytes: &Change, blocks: &Change) -> Kind {
    match (bytes.kind(), blocks.kind()) {
        (Kind::Same, Kind::New | Kind::Gone) if bytes.is_exact() => Kind::Same,
        (Kind::Same, blocks) if bytes.is_exact() => blocks,
        (bytes, _) => bytes,
    }
}

/// The changes on one device between the two files.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DeviceDiff {
    /// The device that is compared.
    pub device: DeviceAnswer,
    /// The device's total requested bytes in both files.
    #[serde(flatten, serialize_with = "json::serialize_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "json::BytesChangeAnswer"))]
    pub bytes: Change,
    /// The number of the device's blocks in both files.
    #[serde(flatten, serialize_with = "json::serialize_count")]
    #[cfg_attr(feature = "schema", schemars(with = "json::CountChangeAnswer"))]
    pub blocks: Change,
    /// The groups that differ, with the largest changes first, up to the requested limit.
    pub rows: Vec<DiffRow>,
    /// The number of groups that differ, including those that are not listed.
    pub rows_in_all: usize,
    /// The net growth, in bytes, of the groups that are not in [`Self::rows`].
    #[serde(skip)]
    pub left_out_bytes: i128,
    /// The number of groups that have the same bytes and blocks in both files.
    pub unchanged: usize,
    /// The number of groups that differ by less than the margin of error of their estimates.
    pub within_error: usize,
}

/// A device that is only in one of the files.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct UnmatchedDevice {
    /// The device that is missing from the other file.
    pub device: DeviceAnswer,
    /// The requested bytes on the device.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    pub error: Estimate,
}

/// The changes in memory between an earlier and a later file. Bytes are requested bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Diff {
    /// The key by which allocations are grouped, named as in `--by`.
    pub by: DiffBy,
    /// The blocks that are compared, named as in `--at`.
    pub at: DiffAt,
    /// Whether anything differs by more than the margin of error.
    pub different: bool,
    /// The changes, as sentences.
    pub answer: Vec<String>,
    /// The changes on each device that is in both files.
    pub devices: Vec<DeviceDiff>,
    /// The devices that are only in the earlier file.
    pub only_before: Vec<UnmatchedDevice>,
    /// The devices that are only in the later file.
    pub only_after: Vec<UnmatchedDevice>,
    /// Caveats about the comparison, as sentences.
    pub notes: Vec<String>,
    /// The rules that decide which lines are in the user's code.
    #[serde(skip)]
    rules: Rules,
}

impl Diff {
    /// Compares two files that were reduced to the same kind of groups, keeping at most `limit` groups per device.
    pub fn of(before: &Side, after: &Side, limit: usize) -> Self {
        pairs::compare_sides(before, after, limit)
    }
}

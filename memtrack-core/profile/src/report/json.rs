//! The category report as JSON.

use super::{CategoryReport, MomentMemory, PhaseRow, PieceGroup};
use crate::answer::{ByCategory, RepairCounts, bytes_by_category, count_repairs};
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, NameAnswer};
use serde::Serialize;
use serde_json::Value;

/// The categories of a device's memory according to an operator trace. They are as exact as the trace, except
/// for the bytes of sampled blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TracedCategoriesAnswer {
    /// The device whose memory is reported.
    pub device: DeviceAnswer,
    /// The source of the categories. It is always `traced`.
    pub source: &'static str,
    /// Whether the categories exactly match PyTorch's, as with `--compat`.
    pub exactly_as_pytorch: bool,
    /// The number of changes to the device's memory: allocations, writes and frees, plus one for each piece
    /// that existed before the trace.
    pub changes: u64,
    /// The time from the first change to the device's memory to the last, in nanoseconds.
    pub lasts_ns: u64,
    /// The device's allocated memory at each of the requested moments.
    pub moments: Vec<MomentAnswer>,
    /// The memory that each phase of the training steps allocates and frees. Phases that do neither are left
    /// out.
    pub phases: Vec<PhaseAnswer>,
    /// The number of repairs made to the trace, by kind. Kinds without repairs are left out.
    pub repairs: RepairCounts,
}

/// The allocated memory at a given moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MomentAnswer {
    /// The kind of moment: `peak`, `end` or `time`.
    pub moment: &'static str,
    /// The time from the trace's first record to the moment, in nanoseconds; 0 if the moment is before that
    /// record.
    pub after_ns: u64,
    /// The total requested bytes that are allocated on the device at this moment.
    pub requested_bytes: u64,
    /// The margin of error of the total requested bytes, or null if the total is exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The allocated memory by category. Empty categories are left out.
    pub categories: Vec<CategoryAnswer>,
    /// The allocated memory, grouped by the module that allocated or registered it.
    pub modules: GroupsAnswer,
    /// The allocated memory, grouped by the operator that allocated it.
    pub operators: GroupsAnswer,
}

/// The allocated memory of one category.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CategoryAnswer {
    /// The category's name.
    pub category: String,
    /// The requested bytes of the category's memory.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of pieces of memory in the category.
    pub count: u64,
    /// The margin of error of the piece count, or null if the count is exact.
    pub count_error: Option<ErrorAnswer>,
}

/// Allocated memory, grouped by module or by operator, largest group first.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GroupsAnswer {
    /// The listed groups.
    pub rows: Vec<GroupAnswer>,
    /// The sum over all groups that are not listed.
    pub others: OthersAnswer,
}

/// The allocated memory of one module or operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GroupAnswer {
    /// The module or operator.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The requested bytes of the module's or operator's memory.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of pieces of memory.
    pub count: u64,
    /// The margin of error of the piece count, or null if the count is exact.
    pub count_error: Option<ErrorAnswer>,
    /// The module's or operator's bytes by category. Empty categories are left out.
    pub category_bytes: ByCategory,
}

/// The sum over the groups that are not listed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct OthersAnswer {
    /// The number of groups that are not listed.
    pub rows: usize,
    /// The total requested bytes of these groups.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The total number of pieces of memory in these groups.
    pub count: u64,
    /// The margin of error of the piece count, or null if the count is exact.
    pub count_error: Option<ErrorAnswer>,
}

/// The memory that a phase allocates and frees over the whole trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PhaseAnswer {
    /// The phase: `forward`, `backward`, `optimizer` or `other`.
    pub phase: &'static str,
    /// The bytes that the phase allocated.
    pub obtained_bytes: u64,
    /// The margin of error of the allocated bytes, or null if they are exact.
    pub obtained_bytes_error: Option<ErrorAnswer>,
    /// The bytes that the phase freed, no matter which phase allocated them.
    pub freed_bytes: u64,
    /// The margin of error of the freed bytes, or null if they are exact.
    pub freed_bytes_error: Option<ErrorAnswer>,
    /// The bytes that the phase allocated and that are still live at the end of the trace.
    pub left_bytes: u64,
    /// The margin of error of the bytes that are still live, or null if they are exact.
    pub left_bytes_error: Option<ErrorAnswer>,
    /// The bytes that the phase allocated and that are still live at the end of the trace, by category.
    pub left_category_bytes: ByCategory,
    /// The highest number of bytes allocated on the device right after the phase allocated or freed memory.
    pub highest_bytes: Option<u64>,
    /// The margin of error of the highest number of bytes, or null if that number is exact.
    pub highest_bytes_error: Option<ErrorAnswer>,
}

impl CategoryReport {
    /// Returns the report in the form printed by `memtrack categories --json`. For each moment, at most
    /// `rows` modules and operators are listed; `others` sums up the rest.
    pub fn answer(&self, rows: usize) -> TracedCategoriesAnswer {
        TracedCategoriesAnswer {
            device: DeviceAnswer::from_trace_name(&self.device),
            source: "traced",
            exactly_as_pytorch: self.is_compat,
            changes: self.changes,
            lasts_ns: self.duration_ns,
            moments: self.moments.iter().map(|moment| moment_to_answer(moment, rows)).collect(),
            phases: self.phases.iter().map(phase_to_answer).collect(),
            repairs: count_repairs(&self.repairs),
        }
    }

    /// Returns the result of [`Self::answer`] as JSON.
    pub fn to_json(&self, rows: usize) -> Value {
        serde_json::to_value(self.answer(rows)).unwrap_or_default()
    }
}

fn moment_to_answer(moment: &MomentMemory, rows: usize) -> MomentAnswer {
    let category = |row: &PieceGroup| CategoryAnswer {
        category: row.name.clone(),
        requested_bytes: row.bytes,
        requested_bytes_error: row.error.answer(),
        count: row.pieces,
        count_error: row.count_error.answer(),
    };
    MomentAnswer {
        moment: moment.moment,
        after_ns: moment.after_ns,
        requested_bytes: moment.bytes,
        requested_bytes_error: moment.error.answer(),
        categories: moment.categories.iter().map(category).collect(),
        modules: groups_to_answer(&moment.modules, rows),
        operators: groups_to_answer(&moment.operators, rows),
    }
}

fn groups_to_answer(all: &[PieceGroup], rows: usize) -> GroupsAnswer {
    let (shown, rest) = all.split_at(rows.min(all.len()));
    let group = |row: &PieceGroup| GroupAnswer {
        name: NameAnswer::from_text(&row.name),
        requested_bytes: row.bytes,
        requested_bytes_error: row.error.answer(),
        count: row.pieces,
        count_error: row.count_error.answer(),
        category_bytes: bytes_by_category(&row.by_category),
    };
    let others = PieceGroup::sum_of(rest);
    GroupsAnswer {
        rows: shown.iter().map(group).collect(),
        others: OthersAnswer {
            rows: rest.len(),
            requested_bytes: others.bytes,
            requested_bytes_error: others.error.answer(),
            count: others.pieces,
            count_error: others.count_error.answer(),
        },
    }
}

fn phase_to_answer(row: &PhaseRow) -> PhaseAnswer {
    PhaseAnswer {
        phase: row.part.name(),
        obtained_bytes: row.obtained_bytes,
        obtained_bytes_error: row.errors.obtained_bytes.answer(),
        freed_bytes: row.freed_bytes,
        freed_bytes_error: row.errors.freed_bytes.answer(),
        left_bytes: row.left_bytes(),
        left_bytes_error: row.errors.left_bytes.answer(),
        left_category_bytes: bytes_by_category(&row.left),
        highest_bytes: row.highest_bytes,
        highest_bytes_error: row.errors.highest_bytes.answer(),
    }
}

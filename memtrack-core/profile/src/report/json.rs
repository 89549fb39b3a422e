//! The report as JSON.

use super::{CategoryReport, Held, PhaseRow, PieceGroup};
use crate::answer::{ByCategory, RepairCounts, by_category, repair_counts};
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, NameAnswer};
use serde::Serialize;
use serde_json::Value;

/// What a device's memory is for, by an operator trace: exact as far as the trace goes, but for the bytes of sampled blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TracedCategoriesAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// How the categories were found: `traced`.
    pub source: &'static str,
    /// Whether the answer is exactly PyTorch's, with `--compat`.
    pub exactly_as_pytorch: bool,
    /// Changes of the device's memory.
    pub changes: u64,
    /// From the first change to the last.
    pub lasts_ns: u64,
    /// What was allocated at the moments that were asked for.
    pub moments: Vec<MomentAnswer>,
    /// What the phases of the training steps do.
    pub phases: Vec<PhaseAnswer>,
    /// What had to be put right in the trace, and how often.
    pub repairs: RepairCounts,
}

/// What was allocated at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MomentAnswer {
    /// The moment: `peak`, `end` or `time`.
    pub moment: &'static str,
    /// When it was, after the trace's first record.
    pub after_ns: u64,
    /// All that was allocated.
    pub requested_bytes: u64,
    /// How far off it may be where small blocks were sampled; null: it is exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The same by category.
    pub categories: Vec<CategoryAnswer>,
    /// The same by the module that obtained or registered it.
    pub modules: GroupsAnswer,
    /// The same by the operator that obtained it.
    pub operators: GroupsAnswer,
}

/// What was allocated of one category.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CategoryAnswer {
    /// The category.
    pub category: String,
    /// The bytes.
    pub requested_bytes: u64,
    /// How far off they may be where small blocks were sampled.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// In how many pieces.
    pub count: u64,
    /// How far off their number may be.
    pub count_error: Option<ErrorAnswer>,
}

/// Groups of memory, the largest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GroupsAnswer {
    /// The first of them.
    pub rows: Vec<GroupAnswer>,
    /// All others together.
    pub others: OthersAnswer,
}

/// What was allocated by one module or operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct GroupAnswer {
    /// The module or operator.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The bytes.
    pub requested_bytes: u64,
    /// How far off they may be where small blocks were sampled.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// In how many pieces.
    pub count: u64,
    /// How far off their number may be.
    pub count_error: Option<ErrorAnswer>,
    /// The bytes by category.
    pub category_bytes: ByCategory,
}

/// Groups that are not listed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct OthersAnswer {
    /// How many they are.
    pub rows: usize,
    /// Their bytes.
    pub requested_bytes: u64,
    /// How far off they may be where small blocks were sampled.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// In how many pieces.
    pub count: u64,
    /// How far off their number may be.
    pub count_error: Option<ErrorAnswer>,
}

/// What a phase does to memory, over the whole trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PhaseAnswer {
    /// The phase.
    pub phase: &'static str,
    /// What it obtained.
    pub obtained_bytes: u64,
    /// How far off it may be where small blocks were sampled.
    pub obtained_bytes_error: Option<ErrorAnswer>,
    /// What it freed.
    pub freed_bytes: u64,
    /// How far off it may be.
    pub freed_bytes_error: Option<ErrorAnswer>,
    /// Of what it obtained, what is there at the end of the trace.
    pub left_bytes: u64,
    /// How far off it may be.
    pub left_bytes_error: Option<ErrorAnswer>,
    /// The same by category.
    pub left_category_bytes: ByCategory,
    /// The most that was allocated right after something that it did.
    pub highest_bytes: Option<u64>,
    /// How far off it may be.
    pub highest_bytes_error: Option<ErrorAnswer>,
}

impl CategoryReport {
    /// Returns the report as `memtrack categories --json` prints it. At most `rows` modules and operators are
    /// listed for each moment; `others` sums up the rest.
    pub fn answer(&self, rows: usize) -> TracedCategoriesAnswer {
        TracedCategoriesAnswer {
            device: DeviceAnswer::named(&self.device),
            source: "traced",
            exactly_as_pytorch: self.is_compat,
            changes: self.changes,
            lasts_ns: self.lasts_ns,
            moments: self.held.iter().map(|held| moment(held, rows)).collect(),
            phases: self.phases.iter().map(phase).collect(),
            repairs: repair_counts(&self.repairs),
        }
    }

    /// Returns the same as JSON.
    pub fn to_json(&self, rows: usize) -> Value {
        serde_json::to_value(self.answer(rows)).unwrap_or_default()
    }
}

fn moment(held: &Held, rows: usize) -> MomentAnswer {
    let category = |row: &PieceGroup| CategoryAnswer {
        category: row.name.clone(),
        requested_bytes: row.bytes,
        requested_bytes_error: row.error.answer(),
        count: row.pieces,
        count_error: row.count_error.answer(),
    };
    MomentAnswer {
        moment: held.moment,
        after_ns: held.after_ns,
        requested_bytes: held.bytes,
        requested_bytes_error: held.error.answer(),
        categories: held.categories.iter().map(category).collect(),
        modules: groups(&held.modules, rows),
        operators: groups(&held.operators, rows),
    }
}

fn groups(all: &[PieceGroup], rows: usize) -> GroupsAnswer {
    let (shown, rest) = all.split_at(rows.min(all.len()));
    let group = |row: &PieceGroup| GroupAnswer {
        name: NameAnswer::shown(&row.name),
        requested_bytes: row.bytes,
        requested_bytes_error: row.error.answer(),
        count: row.pieces,
        count_error: row.count_error.answer(),
        category_bytes: by_category(&row.by_category),
    };
    let others = PieceGroup::together(rest);
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

fn phase(row: &PhaseRow) -> PhaseAnswer {
    PhaseAnswer {
        phase: row.when.name(),
        obtained_bytes: row.obtained_bytes,
        obtained_bytes_error: row.errors.obtained_bytes.answer(),
        freed_bytes: row.freed_bytes,
        freed_bytes_error: row.errors.freed_bytes.answer(),
        left_bytes: row.left_bytes(),
        left_bytes_error: row.errors.left_bytes.answer(),
        left_category_bytes: by_category(&row.left),
        highest_bytes: row.highest_bytes,
        highest_bytes_error: row.errors.highest_bytes.answer(),
    }
}

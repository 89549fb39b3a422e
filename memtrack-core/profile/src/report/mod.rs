//! The report printed by `memtrack categories`. It shows the categories of a device's memory at selected
//! moments and by phase of the training step.

mod moments;
mod owners;
pub(crate) mod text;

use crate::analysis::{Action, Profile};
use crate::category::Category;
use crate::names::{Names, is_from_sdk};
use crate::pieces::{Piece, pieces};
use crate::places::{Places, StepPart};
use crate::repairs::Repairs;
use crate::series::{Bytes, Moment, serialize_bytes, span_ns, walk};
use memtrack_blocks::estimate::{Estimate, Sum};
use memtrack_model::answer::{DeviceAnswer, serialize_name};
use memtrack_model::optrace::DeviceIndex;
use moments::memory_at;
use owners::Owners;
use serde::Serialize;

/// A moment at which memory is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportMoment {
    /// The moment at which the most memory was allocated.
    Peak,
    /// The moment after the last change.
    End,
    /// The moment after all changes up to this time, in ns since the trace's first record, the snapshot's first event, or
    /// the start of a recording.
    After(i64),
}

impl ReportMoment {
    /// Returns the name of the moment, which is `peak`, `end` or `time`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::End => "end",
            Self::After(_) => "time",
        }
    }
}

/// The bytes and the number of some pieces of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PieceSums {
    /// The requested bytes of the pieces.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    pub error: Estimate,
    /// The number of pieces of memory.
    #[serde(rename = "count")]
    pub pieces: u64,
    /// The margin of error of the piece count, or null if the count is exact.
    pub count_error: Estimate,
}

/// The allocated memory of one category.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CategorySums {
    /// The category's name.
    pub category: Category,
    /// The sums over the pieces in the category.
    #[serde(flatten)]
    pub sums: PieceSums,
}

/// The allocated memory of one module or operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PieceGroup {
    /// The module or operator.
    #[serde(flatten, serialize_with = "serialize_name")]
    #[cfg_attr(feature = "schema", schemars(with = "memtrack_model::answer::NameAnswer"))]
    pub name: String,
    /// The sums over the pieces of the module or operator.
    #[serde(flatten)]
    pub sums: PieceSums,
    /// The module's or operator's bytes by category. Empty categories are left out.
    #[serde(rename = "category_bytes", serialize_with = "serialize_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::series::BytesAnswer"))]
    pub by_category: Bytes,
}

/// The sum over the groups that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct OtherGroups {
    /// The number of groups that are not listed.
    pub rows: usize,
    /// The sums over these groups.
    #[serde(flatten)]
    pub sums: PieceSums,
}

/// Allocated memory, grouped by module or by operator, largest group first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PieceGroups {
    /// The listed groups.
    pub rows: Vec<PieceGroup>,
    /// The sum over all groups that are not listed.
    pub others: OtherGroups,
}

/// The memory allocated at a given moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MomentMemory {
    /// The kind of moment: `peak`, `end` or `time`.
    pub moment: &'static str,
    /// The time from the trace's first record to the moment, in nanoseconds; 0 if the moment is before that
    /// record.
    pub after_ns: u64,
    /// The total requested bytes that are allocated on the device at this moment.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// The margin of error of the total requested bytes, or null if the total is exact.
    #[serde(rename = "requested_bytes_error")]
    pub error: Estimate,
    /// The allocated memory by category, in the order of [`Category::ALL`]. Empty categories are left out.
    pub categories: Vec<CategorySums>,
    /// The allocated memory, grouped by the module that allocated or registered it.
    pub modules: PieceGroups,
    /// The allocated memory, grouped by the operator that allocated it.
    pub operators: PieceGroups,
}

/// The memory that a phase of the training steps allocates and frees over the whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PhaseRow {
    /// The phase: `forward`, `backward`, `optimizer` or `other`.
    #[serde(rename = "phase")]
    pub part: StepPart,
    /// The bytes that the phase allocated.
    pub obtained_bytes: u64,
    /// The margin of error of the allocated bytes, or null if they are exact.
    pub obtained_bytes_error: Estimate,
    /// The bytes that the phase freed, no matter which phase allocated them.
    pub freed_bytes: u64,
    /// The margin of error of the freed bytes, or null if they are exact.
    pub freed_bytes_error: Estimate,
    /// The bytes that the phase allocated and that are still live at the end of the trace.
    pub left_bytes: u64,
    /// The margin of error of the bytes that are still live, or null if they are exact.
    pub left_bytes_error: Estimate,
    /// The bytes that the phase allocated and that are still live at the end of the trace, by category.
    #[serde(rename = "left_category_bytes", serialize_with = "serialize_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::series::BytesAnswer"))]
    pub left: Bytes,
    /// The highest number of bytes allocated on the device right after the phase allocated or freed memory.
    pub highest_bytes: Option<u64>,
    /// The margin of error of the highest number of bytes, or null if that number is exact.
    pub highest_bytes_error: Estimate,
}

/// The categories of a device's memory according to an operator trace. They are as exact as the trace, except
/// for the bytes of sampled blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CategoryReport {
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
    pub moments: Vec<MomentMemory>,
    /// The memory that each phase of the training steps allocates and frees. Phases that do neither are left
    /// out.
    pub phases: Vec<PhaseRow>,
    /// The number of repairs made to the trace, by kind. Kinds without repairs are left out.
    pub repairs: Repairs,
}

impl PieceSums {
    fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            error: self.error.add(&other.error),
            pieces: self.pieces.saturating_add(other.pieces),
            count_error: self.count_error.add(&other.count_error),
        }
    }
}

impl PieceGroups {
    /// Keeps the largest `rows` groups, and sums up the rest.
    fn limit(&mut self, rows: usize) {
        let rest = self.rows.split_off(rows.min(self.rows.len()));
        let others = Some(self.others).filter(|others| others.rows > 0);
        let sums = others.into_iter().map(|others| others.sums).chain(rest.iter().map(|group| group.sums));
        let sums = sums.reduce(PieceSums::and).unwrap_or_default();
        self.others = OtherGroups { rows: self.others.rows + rest.len(), sums };
    }
}

impl CategoryReport {
    /// Creates the report for one device at the given moments. `repairs` is passed through to the report.
    pub fn of(
        profile: &Profile<'_>,
        device: DeviceIndex,
        moments: &[ReportMoment],
        repairs: Repairs,
    ) -> Self {
        let places = Places::of(profile.trace());
        let owners = Owners::of(profile, &places);
        let pieces = pieces(profile, device);
        let mut names = Names::of(profile, &places);
        let memory =
            moments.iter().map(|&at| memory_at(profile, device, at, &pieces, &owners, &mut names)).collect();
        let span = span_ns(profile, device);
        Self {
            device: DeviceAnswer::from_trace_name(profile.device_name(device)),
            source: "traced",
            exactly_as_pytorch: profile.is_compat(),
            changes: profile.changes_on(device).count() as u64,
            lasts_ns: span.map_or(0, |(first, last)| last.abs_diff(first)),
            moments: memory,
            phases: build_phases(profile, device, &pieces, &places),
            repairs,
        }
    }

    /// Returns the report with at most `rows` modules and operators for each moment, and the sum over the others.
    #[must_use]
    pub fn listed(&self, rows: usize) -> Self {
        let mut listed = self.clone();
        for moment in &mut listed.moments {
            moment.modules.limit(rows);
            moment.operators.limit(rows);
        }
        listed
    }
}

fn build_phases(
    profile: &Profile<'_>,
    device: DeviceIndex,
    pieces: &[Piece],
    places: &Places,
) -> Vec<PhaseRow> {
    let mut rows = StepPart::ALL.map(|part| PhaseRow { part, ..PhaseRow::default() });
    // The allocated, freed and remaining bytes of each phase.
    let mut sums = [[Sum::default(); 3]; StepPart::ALL.len()];
    let mut ignored = Sum::default();
    for piece in pieces {
        let row_of = |record: Option<u32>| record.map(|record| places.get(record).part as usize);
        let mut add = |sum: &mut Sum| piece.add_to(profile, sum, &mut ignored);
        if let Some(row) = row_of(piece.allocated_by) {
            rows[row].obtained_bytes = rows[row].obtained_bytes.saturating_add(piece.bytes);
            add(&mut sums[row][0]);
            if piece.end_ns.is_none() {
                let is_from_sdk = is_from_sdk(profile);
                let category =
                    if is_from_sdk { piece.first_known_category() } else { piece.category_at(i64::MAX) };
                let slot = &mut rows[row].left[category as usize];
                *slot = slot.saturating_add(i64::try_from(piece.bytes).unwrap_or(i64::MAX));
                add(&mut sums[row][2]);
            }
        }
        if let Some(row) = row_of(piece.freed_by) {
            rows[row].freed_bytes = rows[row].freed_bytes.saturating_add(piece.bytes);
            add(&mut sums[row][1]);
        }
    }
    // For each phase, the time at which the most bytes were allocated right after one of its changes.
    let mut highest_ns = [0; StepPart::ALL.len()];
    let mut changes = profile.changes_on(device).peekable();
    walk(profile, device, |moment: &Moment| {
        while let Some(change) = changes.next_if(|change| change.time_ns <= moment.time_ns) {
            let memory = matches!(change.action, Action::Create | Action::Destroy);
            if let Some(record) = change.record.filter(|_| memory) {
                let row = places.get(record).part as usize;
                let total = u64::try_from(moment.total()).unwrap_or(0);
                if rows[row].highest_bytes.is_none_or(|before| total > before) {
                    (rows[row].highest_bytes, highest_ns[row]) = (Some(total), moment.time_ns);
                }
            }
        }
    });
    let attribution = profile.attribution().filter(|attribution| attribution.is_estimate(device));
    for (row, (sums, highest_ns)) in rows.iter_mut().zip(sums.iter().zip(highest_ns)) {
        let estimate =
            |number: u64, sum: &Sum| estimate_error(number, attribution.map(|of| of.bytes(device, sum)));
        let mut highest = Sum::default();
        if attribution.is_some() {
            let live = pieces.iter().filter(|piece| piece.is_live_at(highest_ns));
            live.for_each(|piece| piece.add_to(profile, &mut highest, &mut ignored));
        }
        row.left_bytes = row.left.iter().map(|&bytes| bytes.max(0) as u64).sum();
        row.obtained_bytes_error = estimate(row.obtained_bytes, &sums[0]);
        row.freed_bytes_error = estimate(row.freed_bytes, &sums[1]);
        row.left_bytes_error = estimate(row.left_bytes, &sums[2]);
        row.highest_bytes_error = estimate(row.highest_bytes.unwrap_or(0), &highest);
    }
    rows.into_iter().filter(|row| row.highest_bytes.is_some()).collect()
}

/// Returns the error of a number. The number is exact if no sampled blocks contributed to it.
fn estimate_error(number: u64, estimate: Option<Estimate>) -> Estimate {
    estimate.filter(|estimate| !estimate.is_exact()).unwrap_or(Estimate::exact(number as f64))
}

//! The report printed by `memtrack categories`. It shows the categories of a device's memory at selected
//! moments and by phase of the training step.

mod json;
mod owners;
pub(crate) mod text;

pub use json::{
    CategoryAnswer, GroupAnswer, GroupsAnswer, MomentAnswer, OthersAnswer, PhaseAnswer,
    TracedCategoriesAnswer,
};

use crate::analysis::{Action, Profile};
use crate::category::Category;
use crate::names::{Names, is_from_sdk};
use crate::pieces::{Piece, pieces};
use crate::places::{Places, StepPart};
use crate::recorded::Attribution;
use crate::repairs::Repairs;
use crate::series::{Bytes, Moment, peak, span_ns, walk};
use foldhash::fast::RandomState;
use memtrack_blocks::estimate::{Estimate, KnownTotal, Sum};
use memtrack_model::optrace::{DeviceIndex, RecordId};
use memtrack_model::units::human_count;
use owners::Owners;
use std::collections::HashMap;

/// A moment in a trace at which memory is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportMoment {
    /// The moment at which the most memory was allocated.
    Peak,
    /// The moment after the last change.
    End,
    /// The moment after all changes up to this time, in ns since the trace's first record.
    After(i64),
}

/// A group of pieces of memory.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PieceGroup {
    /// The name of the category, module or operator that the pieces have in common.
    pub name: String,
    /// The total size of these pieces in bytes.
    pub bytes: u64,
    /// The number of pieces.
    pub pieces: u64,
    /// The size of these pieces by category.
    pub by_category: Bytes,
    /// The error of `bytes`, if small blocks were sampled.
    pub error: Estimate,
    /// The error of `pieces`.
    pub count_error: Estimate,
}

/// The memory allocated at a given moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MomentMemory {
    /// The kind of moment: `peak`, `end` or `time`.
    pub moment: &'static str,
    /// The time of the moment, in ns since the trace's first record, or 0 if it is before that record.
    pub after_ns: u64,
    /// The total of the bytes that were allocated.
    pub bytes: u64,
    /// The error of `bytes`, if small blocks were sampled.
    pub error: Estimate,
    /// Groups by category, in the order of [`Category::ALL`]. Empty groups are left out.
    pub categories: Vec<PieceGroup>,
    /// Groups by the module that allocated or registered the memory, largest first.
    pub modules: Vec<PieceGroup>,
    /// Groups by the operator that allocated the memory, largest first.
    pub operators: Vec<PieceGroup>,
}

/// The effect of one phase of the training steps on memory over the whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PhaseRow {
    /// The phase of the training steps.
    pub part: StepPart,
    /// The bytes that the phase allocated.
    pub obtained_bytes: u64,
    /// The bytes that the phase freed, no matter which phase allocated them.
    pub freed_bytes: u64,
    /// The bytes that the phase allocated and that are still live at the end of the trace, by category.
    pub left: Bytes,
    /// The highest number of allocated bytes right after one of the phase's changes, or `None` if there were
    /// no changes.
    pub highest_bytes: Option<u64>,
    /// The errors of this row's numbers, if small blocks were sampled.
    pub errors: PhaseErrors,
}

/// The errors of the numbers in a [`PhaseRow`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PhaseErrors {
    /// The error of [`PhaseRow::obtained_bytes`].
    pub obtained_bytes: Estimate,
    /// The error of [`PhaseRow::freed_bytes`].
    pub freed_bytes: Estimate,
    /// The error of [`PhaseRow::left_bytes`].
    pub left_bytes: Estimate,
    /// The error of [`PhaseRow::highest_bytes`].
    pub highest_bytes: Estimate,
}

impl PhaseErrors {
    /// Returns whether all numbers are exact.
    pub fn are_exact(&self) -> bool {
        [self.obtained_bytes, self.freed_bytes, self.left_bytes, self.highest_bytes]
            .iter()
            .all(Estimate::is_exact)
    }
}

impl PieceGroup {
    /// Returns a single row that sums up several rows.
    fn sum_of(rows: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> &Estimate| {
            rows.iter().map(of).copied().reduce(|sum, one| sum.add(&one)).unwrap_or_default()
        };
        Self {
            name: format!("({} more)", human_count(rows.len() as u64)),
            bytes: rows.iter().fold(0, |sum, row| sum.saturating_add(row.bytes)),
            pieces: rows.iter().fold(0, |sum, row| sum.saturating_add(row.pieces)),
            error: sum(|row| &row.error),
            count_error: sum(|row| &row.count_error),
            ..Self::default()
        }
    }
}

impl PhaseRow {
    /// Returns the bytes that the phase allocated and that are still live at the end of the trace.
    pub fn left_bytes(&self) -> u64 {
        self.left.iter().map(|&bytes| bytes.max(0) as u64).sum()
    }
}

/// The categories of a device's memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CategoryReport {
    /// The device's name in the trace or, for a recording, the name used in reports.
    pub device: String,
    /// The time from the first change to the last, in ns.
    pub duration_ns: u64,
    /// The number of changes to the device's memory.
    pub changes: u64,
    /// The memory allocated at the requested moments.
    pub moments: Vec<MomentMemory>,
    /// The effect of each phase on the device's memory.
    pub phases: Vec<PhaseRow>,
    /// The repairs made to the trace.
    pub repairs: Repairs,
    /// Whether the result exactly matches PyTorch's.
    pub is_compat: bool,
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
            device: profile.device_name(device).to_owned(),
            duration_ns: span.map_or(0, |(first, last)| last.abs_diff(first)),
            changes: profile.changes().iter().filter(|change| change.device == device).count() as u64,
            moments: memory,
            phases: build_phases(profile, device, &pieces, &places),
            repairs,
            is_compat: profile.is_compat(),
        }
    }
}

fn memory_at(
    profile: &Profile<'_>,
    device: DeviceIndex,
    at: ReportMoment,
    pieces: &[Piece],
    owners: &Owners,
    names: &mut Names<'_>,
) -> MomentMemory {
    let begin = profile.trace().records.first().map_or(0, |record| record.time_ns);
    let attribution = profile.attribution();
    // All reports on a recording place its peak at the same moment.
    let record = attribution
        .filter(|_| at == ReportMoment::Peak)
        .and_then(|attribution| attribution.peak_record(device));
    let (moment, time_ns) = match at {
        ReportMoment::Peak => (
            "peak",
            match record {
                Some(record) => profile.trace().records[record as usize].time_ns,
                None => peak(profile, device).map_or(begin, |peak| peak.time_ns),
            },
        ),
        ReportMoment::End => ("end", i64::MAX),
        ReportMoment::After(ns) => ("time", begin.saturating_add(ns)),
    };
    let is_live = |piece: &&Piece| match record {
        Some(record) => is_live_after(piece, record, time_ns),
        None => piece.is_live_at(time_ns),
    };
    let mut all = Tally::default();
    let mut by_category: Vec<Tally> =
        Category::ALL.iter().map(|category| Tally::with_name(category.name())).collect();
    let mut by_module: Groups<(Option<u32>, Option<String>)> = Groups::default();
    let mut by_operator: Groups<String> = Groups::default();
    for piece in pieces.iter().filter(is_live) {
        let category =
            if names.has_scope_names() { piece.first_known_category() } else { piece.category_at(time_ns) };
        let add = |tally: &mut Tally| tally.add(profile, piece, category);
        add(&mut all);
        add(&mut by_category[category as usize]);
        let registered = piece.storage.and_then(|storage| owners.module(storage));
        match (registered, names.has_scope_names()) {
            (None, true) => {
                let name = names.module(piece.allocated_by);
                add(by_module.get_or_add((None, Some(name.clone())), || name));
            }
            (registered, _) => {
                let module = registered.or_else(|| names.enclosing_module(piece.allocated_by?));
                add(by_module.get_or_add((module, None), || names.module_name(module)));
            }
        }
        let operator = names.operator(piece.allocated_by);
        add(by_operator.get_or_add(operator.clone(), || operator));
    }
    // As in the reports on allocations, the estimated parts are capped at the total, which is known more
    // precisely.
    let whole = match (at, attribution) {
        (ReportMoment::Peak, Some(attribution)) => {
            attribution.peak_error(device).map(|peak| KnownTotal::of(peak.high, &all.bytes))
        }
        (ReportMoment::End, Some(attribution)) => {
            attribution.count_at_end(device).map(|counted| KnownTotal::of(counted.bytes as f64, &all.bytes))
        }
        _ => None,
    };
    let whole = whole.unwrap_or(KnownTotal::UNKNOWN);
    let finish = |tally: Tally| tally.finish(attribution, device, &whole);
    by_category.retain(|tally| tally.row.pieces > 0);
    let last = span_ns(profile, device).map_or(begin, |(_, last)| last);
    let all = finish(all);
    let mut memory = MomentMemory {
        moment,
        after_ns: u64::try_from(time_ns.min(last).saturating_sub(begin)).unwrap_or(0),
        bytes: all.bytes,
        error: all.error,
        categories: by_category.into_iter().map(finish).collect(),
        modules: by_module.largest_first(finish),
        operators: by_operator.largest_first(finish),
    };
    match at {
        ReportMoment::Peak => {
            if let Some(peak) = attribution.and_then(|attribution| attribution.peak_error(device)) {
                memory.replace_sum((peak.value as u64, peak), None);
            }
        }
        ReportMoment::End => {
            if let Some(counted) = attribution.and_then(|attribution| attribution.count_at_end(device)) {
                memory.replace_sum((counted.bytes, counted.bytes_error), Some(counted.blocks));
            }
        }
        ReportMoment::After(_) => {}
    }
    memory
}

/// Returns whether a piece is live right after the given record, whose time is `time_ns`.
fn is_live_after(piece: &Piece, record: RecordId, time_ns: i64) -> bool {
    let has_begun = match piece.allocated_by {
        Some(allocated_by) => allocated_by <= record,
        None => piece.begin_ns.is_none_or(|begin_ns| begin_ns <= time_ns),
    };
    has_begun
        && match piece.freed_by {
            Some(freed) => freed > record,
            None => piece.end_ns.is_none_or(|end_ns| end_ns > time_ns),
        }
}

impl MomentMemory {
    /// Replaces the total with the recorder's count or with the estimate of the peak, and caps each part at
    /// the new total.
    fn replace_sum(&mut self, (bytes, error): (u64, Estimate), blocks: Option<u64>) {
        (self.bytes, self.error) = (bytes, error);
        for row in self.categories.iter_mut().chain(&mut self.modules).chain(&mut self.operators) {
            row.bytes = row.bytes.min(error.high as u64);
            row.error = row.error.at_most(error.high);
            if let Some(blocks) = blocks {
                row.pieces = row.pieces.min(blocks);
                row.count_error = row.count_error.at_most(blocks as f64);
            }
        }
    }
}

/// A row under construction.
#[derive(Clone, Debug, Default)]
struct Tally {
    row: PieceGroup,
    bytes: Sum,
    blocks: Sum,
}

impl Tally {
    fn with_name(name: impl Into<String>) -> Self {
        Self { row: PieceGroup { name: name.into(), ..PieceGroup::default() }, ..Self::default() }
    }

    fn add(&mut self, profile: &Profile<'_>, piece: &Piece, category: Category) {
        self.row.bytes = self.row.bytes.saturating_add(piece.bytes);
        let slot = &mut self.row.by_category[category as usize];
        *slot = slot.saturating_add(i64::try_from(piece.bytes).unwrap_or(i64::MAX));
        piece.add_to(profile, &mut self.bytes, &mut self.blocks);
        self.row.pieces = self.blocks.value().round() as u64;
    }

    fn finish(
        self,
        attribution: Option<&Attribution>,
        device: DeviceIndex,
        whole: &KnownTotal,
    ) -> PieceGroup {
        let Self { mut row, bytes, blocks } = self;
        row.bytes = whole.rounded(&bytes, row.bytes);
        row.error =
            estimate_error(row.bytes, attribution.map(|of| whole.part(of.bytes(device, &bytes), &bytes)));
        row.count_error = estimate_error(row.pieces, attribution.map(|of| of.blocks(device, &blocks)));
        row
    }
}

/// Returns the error of a number. The number is exact if no sampled blocks contributed to it.
fn estimate_error(number: u64, estimate: Option<Estimate>) -> Estimate {
    estimate.filter(|estimate| !estimate.is_exact()).unwrap_or(Estimate::exact(number as f64))
}

/// Rows under construction, keyed by what their pieces have in common.
struct Groups<K>(HashMap<K, Tally, RandomState>);

impl<K> Default for Groups<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: std::hash::Hash + Eq> Groups<K> {
    fn get_or_add(&mut self, key: K, name: impl FnOnce() -> String) -> &mut Tally {
        self.0.entry(key).or_insert_with(|| Tally::with_name(name()))
    }

    fn largest_first(self, finish: impl Fn(Tally) -> PieceGroup) -> Vec<PieceGroup> {
        let mut rows: Vec<PieceGroup> = self.0.into_values().map(finish).collect();
        rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        rows
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
    let mut changes = profile.changes().iter().filter(|change| change.device == device).peekable();
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
        row.errors = PhaseErrors {
            obtained_bytes: estimate(row.obtained_bytes, &sums[0]),
            freed_bytes: estimate(row.freed_bytes, &sums[1]),
            left_bytes: estimate(row.left_bytes(), &sums[2]),
            highest_bytes: estimate(row.highest_bytes.unwrap_or(0), &highest),
        };
    }
    rows.into_iter().filter(|row| row.highest_bytes.is_some()).collect()
}

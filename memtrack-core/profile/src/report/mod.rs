//! The report printed by `memtrack categories`. It shows the categories of a device's memory at selected
//! moments and by phase of the training step.

mod owners;
pub(crate) mod text;

use crate::analysis::{Action, Profile};
use crate::category::Category;
use crate::names::{Names, is_from_sdk};
use crate::pieces::{Piece, pieces};
use crate::places::{Places, StepPart};
use crate::recorded::Attribution;
use crate::repairs::Repairs;
use crate::series::{Bytes, Moment, peak, serialize_bytes, span_ns, walk};
use foldhash::HashMap;
use memtrack_model::answer::{DeviceAnswer, serialize_name};
use memtrack_model::optrace::{DeviceIndex, RecordId};
use memtrack_report::analysis::estimate::{Estimate, KnownTotal, Sum};
use owners::Owners;
use serde::Serialize;

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

fn memory_at(
    profile: &Profile<'_>,
    device: DeviceIndex,
    at: ReportMoment,
    pieces: &[Piece],
    owners: &Owners,
    names: &mut Names<'_>,
) -> MomentMemory {
    let begin = profile.begin_ns();
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
    let mut by_category = [Tally::default(); Category::ALL.len()];
    let mut by_module: Groups<(Option<u32>, Option<String>)> = Groups(HashMap::default());
    let mut by_operator: Groups<String> = Groups(HashMap::default());
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
    let finish = |tally: &Tally| tally.finish(attribution, device, &whole);
    let last = span_ns(profile, device).map_or(begin, |(_, last)| last);
    let all = finish(&all);
    let categories = Category::ALL.into_iter().zip(&by_category).filter(|(_, tally)| tally.pieces() > 0);
    let mut memory = MomentMemory {
        moment,
        after_ns: u64::try_from(time_ns.min(last).saturating_sub(begin)).unwrap_or(0),
        bytes: all.bytes,
        error: all.error,
        categories: categories.map(|(category, of)| CategorySums { category, sums: finish(of) }).collect(),
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
        let categories = self.categories.iter_mut().map(|row| &mut row.sums);
        let groups = self.modules.rows.iter_mut().chain(&mut self.operators.rows).map(|row| &mut row.sums);
        for sums in categories.chain(groups) {
            sums.bytes = sums.bytes.min(error.high as u64);
            sums.error = sums.error.at_most(error.high);
            if let Some(blocks) = blocks {
                sums.pieces = sums.pieces.min(blocks);
                sums.count_error = sums.count_error.at_most(blocks as f64);
            }
        }
    }
}

/// Running sums over pieces.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    requested_bytes: u64,
    by_category: Bytes,
    /// The sums of bytes and of blocks, in which a sampled block counts for all that it represents.
    bytes: Sum,
    blocks: Sum,
}

impl Tally {
    fn add(&mut self, profile: &Profile<'_>, piece: &Piece, category: Category) {
        self.requested_bytes = self.requested_bytes.saturating_add(piece.bytes);
        let slot = &mut self.by_category[category as usize];
        *slot = slot.saturating_add(i64::try_from(piece.bytes).unwrap_or(i64::MAX));
        piece.add_to(profile, &mut self.bytes, &mut self.blocks);
    }

    fn pieces(&self) -> u64 {
        self.blocks.value().round() as u64
    }

    fn finish(
        &self,
        attribution: Option<&Attribution>,
        device: DeviceIndex,
        whole: &KnownTotal,
    ) -> PieceSums {
        let (bytes, pieces) = (whole.rounded(&self.bytes, self.requested_bytes), self.pieces());
        let error = attribution.map(|of| whole.part(of.bytes(device, &self.bytes), &self.bytes));
        let count_error = attribution.map(|of| of.blocks(device, &self.blocks));
        PieceSums {
            bytes,
            error: estimate_error(bytes, error),
            pieces,
            count_error: estimate_error(pieces, count_error),
        }
    }
}

/// Returns the error of a number. The number is exact if no sampled blocks contributed to it.
fn estimate_error(number: u64, estimate: Option<Estimate>) -> Estimate {
    estimate.filter(|estimate| !estimate.is_exact()).unwrap_or(Estimate::exact(number as f64))
}

/// The name and the running sums of each group of pieces, keyed by what the pieces have in common.
struct Groups<K>(HashMap<K, (String, Tally)>);

impl<K: std::hash::Hash + Eq> Groups<K> {
    fn get_or_add(&mut self, key: K, name: impl FnOnce() -> String) -> &mut Tally {
        &mut self.0.entry(key).or_insert_with(|| (name(), Tally::default())).1
    }

    fn largest_first(self, finish: impl Fn(&Tally) -> PieceSums) -> PieceGroups {
        let group = |(name, tally): (String, Tally)| PieceGroup {
            name,
            sums: finish(&tally),
            by_category: tally.by_category,
        };
        let mut rows: Vec<PieceGroup> = self.0.into_values().map(group).collect();
        rows.sort_by(|a, b| b.sums.bytes.cmp(&a.sums.bytes).then_with(|| a.name.cmp(&b.name)));
        PieceGroups { rows, others: OtherGroups::default() }
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

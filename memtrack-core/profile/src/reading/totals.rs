//! Sums up memory by inferred category and by rule, at selected moments and over the whole file.

use super::BlockCategories;
use super::rule::{Confidence, Rule};
use crate::Category;
use crate::report::ReportMoment;
use memtrack_blocks::estimate::{Estimate, PartSums, Sums};
use memtrack_blocks::lifetimes::Lifetime;
use memtrack_blocks::net::{HeldAtEnd, counted_at_end};
use memtrack_blocks::peak::Peak;
use memtrack_frames::attribution::{EventNames, OLDER_MEMORY};
use memtrack_model::answer::{DeviceAnswer, serialize_name};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{Since, Snapshot};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Sums over a set of blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Totals {
    /// The total requested bytes of the blocks.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// The margin of error of the total requested bytes, or null if the total is exact.
    #[serde(rename = "requested_bytes_error")]
    pub bytes_error: Estimate,
    /// The number of blocks.
    #[serde(rename = "count")]
    pub blocks: u64,
    /// The margin of error of the block count, or null if the count is exact.
    pub count_error: Estimate,
    /// The requested bytes of the blocks that no rule classifies.
    #[serde(rename = "untold_bytes")]
    pub unclassified_bytes: u64,
    /// The margin of error of the unclassified bytes, or null if they are exact.
    #[serde(rename = "untold_bytes_error")]
    pub unclassified_error: Estimate,
    /// The share of the total [requested bytes](Self::bytes) that no rule classifies, from 0 to 1.
    #[serde(rename = "untold_share")]
    pub unclassified_share: f64,
    /// The share of the total [requested bytes](Self::bytes) for which the category is only a guess, from 0 to 1.
    pub guessed_share: f64,
    /// The share of the total [requested bytes](Self::bytes) whose category is given in the file, from 0 to 1.
    pub given_share: f64,
    /// The sums for each category that has blocks in the file. The last row is for the blocks that no rule
    /// classifies.
    pub categories: Vec<CategoryRow>,
    /// The error of [`Self::bytes`] in texts, which also show that a recording is incomplete.
    #[serde(skip)]
    pub error: Estimate,
}

impl Totals {
    /// Replaces the sums with the recorder's count, which is exact.
    fn replace_by_count(&mut self, held: &HeldAtEnd) {
        for row in &mut self.categories {
            row.share = share(row.bytes, held.bytes);
        }
        // The shares were relative to the sum of the blocks, and become relative to the count. If the sum exceeded the
        // count, all parts were scaled down by a common factor, so the shares are already right.
        let scale = share(self.bytes, held.bytes).min(1.0);
        self.guessed_share *= scale;
        self.given_share *= scale;
        self.unclassified_share = share(self.unclassified_bytes, held.bytes);
        let (bytes, blocks) = (Estimate::exact(held.bytes as f64), Estimate::exact(held.blocks as f64));
        (self.bytes, self.bytes_error, self.error) = (held.bytes, bytes, held.bytes_error);
        (self.blocks, self.count_error) = (held.blocks, blocks);
    }
}

/// The blocks of one category.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CategoryRow {
    /// The category's name as PyTorch writes it, or null for the blocks that no rule classifies.
    pub category: Option<Category>,
    /// The requested bytes of the category's blocks.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact. It does not account for wrong
    /// categories.
    #[serde(rename = "requested_bytes_error")]
    pub error: Estimate,
    /// The category's share of the total requested bytes, from 0 to 1.
    pub share: f64,
    /// The number of blocks in the category.
    #[serde(rename = "count")]
    pub blocks: u64,
    /// The margin of error of the block count, or null if the count is exact.
    pub count_error: Estimate,
}

/// The blocks that are live at a given moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MomentReading {
    /// The kind of moment: `peak`, `end` or `time`.
    pub moment: &'static str,
    /// The time of the moment in seconds, counted from the report's `seconds_since`. It is null if the moment
    /// is before the first event or the file does not contain the time.
    pub seconds: Option<f64>,
    /// The index of the moment's event among the device's events, or `None` if the moment is before the first
    /// event.
    #[serde(skip)]
    pub(super) event: Option<usize>,
    /// The sums over the blocks that are live at this moment.
    #[serde(flatten)]
    pub live: Totals,
    /// The operators that allocated the unclassified blocks, largest first. There are at most three, and they
    /// are named as in `top`.
    #[serde(rename = "untold_by")]
    pub unclassified_by: Vec<UnclassifiedRow>,
}

/// An operator that allocated blocks not classified by any rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct UnclassifiedRow {
    /// The operator.
    #[serde(flatten, serialize_with = "serialize_name")]
    #[cfg_attr(feature = "schema", schemars(with = "memtrack_model::answer::NameAnswer"))]
    pub name: String,
    /// The requested bytes of the unclassified blocks that the operator allocated.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    pub error: Estimate,
}

/// A rule and the blocks that it classified.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RuleRow {
    /// The rule's name.
    pub rule: &'static str,
    /// The category that the rule assigned.
    pub category: Category,
    /// The reliability of the rule.
    pub confidence: Confidence,
    /// A sentence that says when the rule applies.
    pub when: &'static str,
    /// The requested bytes of the live blocks that the rule classified, at each of the
    /// [requested moments](CategoryReading::moments).
    pub live_bytes: Vec<u64>,
    /// The number of live blocks that the rule classified, at each of the requested moments.
    #[serde(rename = "live_count")]
    pub live_blocks: Vec<u64>,
    /// The requested bytes of all blocks in the file that the rule classified.
    pub all_bytes: u64,
    /// The number of all blocks in the file that the rule classified.
    #[serde(rename = "all_count")]
    pub all_blocks: u64,
    /// The errors of [`Self::live_bytes`].
    #[serde(skip)]
    pub live_errors: Vec<Estimate>,
    /// The error of [`Self::all_bytes`].
    #[serde(skip)]
    pub all_error: Estimate,
}

/// The categories of a device's memory, inferred from stacks, scopes and the order of events. They are not
/// exact.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CategoryReading {
    /// The device whose memory is reported.
    pub device: DeviceAnswer,
    /// The source of the categories. It is always `read`, as opposed to categories from an operator trace.
    pub source: &'static str,
    /// Always false, because the categories are inferred.
    pub exact: bool,
    /// Whether any event in the file has a stack.
    pub has_stacks: bool,
    /// Whether any block was allocated in a scope that reveals its phase, or in an operator's scope.
    pub has_scopes: bool,
    /// The origin from which the seconds in [`moments`](Self::moments) are counted: `start` of the recording,
    /// `first_event`, or `first_timed_event`.
    pub seconds_since: &'static str,
    /// The blocks that are live at each of the requested moments.
    pub moments: Vec<MomentReading>,
    /// The sums over all blocks in the file, including those that are older than the first event.
    pub all: Totals,
    /// The rules that were applied. Those with the most bytes come first.
    pub rules: Vec<RuleRow>,
    /// Hints on how to record more information, each as a sentence.
    pub hints: Vec<&'static str>,
    #[serde(skip)]
    pub(super) since: Since,
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// Returns the sums over blocks as they are, without the limits of a known total.
fn plain_sums(blocks: &[&Lifetime]) -> (u64, u64) {
    let bytes = blocks.iter().fold(0, |sum: u64, block| sum.saturating_add(block.bytes));
    (bytes, blocks.iter().map(|block| block.blocks).sum::<f64>().round() as u64)
}

fn part_sums(sums: &Sums, blocks: &[&Lifetime]) -> PartSums {
    let (bytes, count) = plain_sums(blocks);
    sums.part(blocks.iter().copied(), bytes, count)
}

/// The blocks of a file or of a moment, grouped in two ways, and the sums over them.
struct Counted<'a> {
    /// The event row of the moment, if it is not before the first event.
    row: Option<usize>,
    sums: Sums,
    blocks: Vec<&'a Lifetime>,
    by_category: BTreeMap<Option<Category>, Vec<&'a Lifetime>>,
    by_decision: BTreeMap<(Rule, Category), Vec<&'a Lifetime>>,
}

impl<'a> Counted<'a> {
    fn of(
        blocks: &'a BlockCategories,
        sums: Sums,
        row: Option<usize>,
        is_counted: impl Fn(&Lifetime) -> bool,
    ) -> Self {
        let mut counted = Self {
            row,
            sums,
            blocks: Vec::new(),
            by_category: BTreeMap::new(),
            by_decision: BTreeMap::new(),
        };
        for (lifetime, &read) in blocks.lifetimes.iter().zip(&blocks.decisions) {
            if !is_counted(lifetime) {
                continue;
            }
            counted.blocks.push(lifetime);
            counted.by_category.entry(read.map(|(category, _)| category)).or_default().push(lifetime);
            if let Some((category, rule)) = read {
                counted.by_decision.entry((rule, category)).or_default().push(lifetime);
            }
        }
        counted
    }

    /// Returns the blocks with this decision.
    fn decided(&self, decision: &(Rule, Category)) -> &[&'a Lifetime] {
        self.by_decision.get(decision).map_or(&[], |blocks| blocks)
    }

    /// Returns the totals, with a row for each category that has blocks in the file.
    fn totals(&self, in_file: &BTreeSet<Category>) -> Totals {
        let (bytes, blocks) = plain_sums(&self.blocks);
        let PartSums { bytes_error, blocks_error, .. } = part_sums(&self.sums, &self.blocks);
        let row = |category: Option<Category>| {
            let of = self.by_category.get(&category).map_or(&[][..], |blocks| blocks);
            let part = part_sums(&self.sums, of);
            CategoryRow {
                category,
                bytes: part.bytes,
                error: part.bytes_error,
                share: share(part.bytes, bytes),
                blocks: part.blocks,
                count_error: part.blocks_error,
            }
        };
        let share_of = |confidence: Confidence| {
            let decisions = self.by_decision.iter().filter(|((rule, _), _)| rule.confidence() == confidence);
            share(decisions.fold(0, |sum, (_, of)| sum.saturating_add(plain_sums(of).0)), bytes)
        };
        let unclassified = row(None);
        Totals {
            bytes,
            bytes_error,
            blocks,
            count_error: blocks_error,
            unclassified_bytes: unclassified.bytes,
            unclassified_error: unclassified.error,
            unclassified_share: unclassified.share,
            guessed_share: share_of(Confidence::Guess),
            given_share: share_of(Confidence::Given),
            categories: in_file.iter().copied().map(Some).map(row).chain([unclassified]).collect(),
            error: bytes_error,
        }
    }
}

impl CategoryReading {
    /// Sums up the categories of the blocks on `device`, at each moment and over the whole file. `names` are the names
    /// of the operators that allocated unclassified blocks; these are not listed if it is empty.
    pub fn of(
        snapshot: &Snapshot,
        device: DeviceId,
        blocks: &BlockCategories,
        moments: &[ReportMoment],
        names: &EventNames,
    ) -> Self {
        let sums = Sums::of(snapshot, device, &blocks.lifetimes);
        let in_file: BTreeSet<Category> =
            blocks.decisions.iter().flatten().map(|&(category, _)| category).collect();
        let at_end = counted_at_end(snapshot, device, &blocks.lifetimes);
        let file = Counted::of(blocks, sums, None, |_| true);
        let by_moment: Vec<(ReportMoment, Counted<'_>)> = moments
            .iter()
            .map(|&at| {
                let row = row_of(snapshot, device, blocks, at);
                // The estimated parts are capped at the total, which is known more precisely.
                let sums = at_end.filter(|_| at == ReportMoment::End).map_or(sums, |held| {
                    let live = blocks.lifetimes.iter().filter(|lifetime| lifetime.is_live_after(row));
                    sums.limited_to(held.bytes, held.blocks, live)
                });
                (at, Counted::of(blocks, sums, row, |lifetime| lifetime.is_live_after(row)))
            })
            .collect();
        let moment = |(at, counted): &(ReportMoment, Counted<'_>)| {
            let mut live = counted.totals(&in_file);
            if let Some(held) = at_end.filter(|_| *at == ReportMoment::End) {
                live.replace_by_count(&held);
            }
            let number =
                |row: usize| snapshot.events.rows_of(device).take_while(|&before| before < row).count();
            MomentReading {
                moment: at.name(),
                seconds: counted.row.and_then(|row| snapshot.seconds_at(row)),
                event: counted.row.map(number),
                live,
                unclassified_by: unclassified_by_operator(counted, names),
            }
        };
        let since = snapshot.seconds_since();
        let mut reading = Self {
            device: DeviceAnswer::from_name(&snapshot.device_name(device)),
            source: "read",
            exact: false,
            has_stacks: blocks.has_stacks,
            has_scopes: blocks.has_scopes,
            seconds_since: since.name(),
            moments: by_moment.iter().map(moment).collect(),
            all: file.totals(&in_file),
            rules: rule_rows(&file, &by_moment),
            hints: Vec::new(),
            since,
        };
        reading.hints = reading.hints(blocks.phases);
        let none = Vec::new();
        let old = file.by_category.get(&None).unwrap_or(&none).iter().filter(|block| block.from.is_none());
        let old_bytes = plain_sums(&old.copied().collect::<Vec<_>>()).0;
        let has_backward = blocks.phases[memtrack_model::Phase::Backward as usize];
        if has_backward && share(old_bytes, reading.all.bytes) >= 0.01 {
            reading.hints.push(
                "Memory from before the first event that nothing wrote or freed may be frozen weights, or the data of the only \
                 step; record several steps, or from before the model is built, to know.",
            );
        }
        reading
    }

    /// Returns whether the file contains stacks, scopes or categories.
    pub fn has_evidence(&self) -> bool {
        self.has_stacks || self.has_scopes || self.all.given_share > 0.0
    }

    /// Returns hints on how to record more information, given whether the file shows the forward, backward
    /// and optimizer phases.
    fn hints(&self, [forward, backward, optimizer]: [bool; 3]) -> Vec<&'static str> {
        let used = |rule: Rule| self.rules.iter().any(|row| row.rule == rule.name());
        let mut hints = Vec::new();
        if !self.has_evidence() && self.since == Since::Start {
            hints.push(
                "The recording has neither stacks nor scopes that show what its memory is for: name \
                 modules, backward passes and optimizer's steps by scopes, or record operators, which \
                 makes the categories exact.",
            );
            return hints;
        }
        if !self.has_evidence() {
            hints.push(
                "The file has no stacks, so the purpose of its memory is unknown. Record with stacks, from \
                 before the model is built: torch.cuda.memory._record_memory_history(context=\"all\", \
                 stacks=\"all\").",
            );
            hints.push(
                "An operator trace makes the categories exact: `memtrack export-script` prints the script \
                 that records one.",
            );
            return hints;
        }
        if (self.has_stacks || self.has_scopes) && !forward && !backward && !optimizer {
            hints.push("No forward pass, backward pass or optimizer's step shows in the stacks or scopes.");
        }
        if used(Rule::OldInInference) {
            hints.push(
                "There is no backward pass in the file, so memory from before its first event is taken for parameters; \
                 record from before the model is built to know.",
            );
        }
        if used(Rule::FrozenParameter) {
            hints.push(
                "Memory from before the first event that all steps left as it was is taken for frozen parameters; data that is \
                 kept from step to step looks the same.",
            );
        }
        if used(Rule::SizeOfGradient) || used(Rule::SizeOfGradientAgain) {
            hints.push(
                "Memory from before the first event was distinguished by size only; record from before the \
                 model is built to know.",
            );
        }
        hints
    }
}

/// Returns the event row of a moment, or `None` if the moment is before the first event.
fn row_of(
    snapshot: &Snapshot,
    device: DeviceId,
    blocks: &BlockCategories,
    at: ReportMoment,
) -> Option<usize> {
    let rows = snapshot.events.rows_of(device);
    match at {
        ReportMoment::Peak => Peak::of(snapshot, device, &blocks.lifetimes).row,
        ReportMoment::End => rows.last(),
        ReportMoment::After(ns) => {
            let moment = ns as f64 / 1e9;
            rows.take_while(|&row| snapshot.seconds_at(row).is_none_or(|at| at <= moment)).last()
        }
    }
}

/// Returns a row for each rule and category with blocks in the file. Those with the most bytes come first.
fn rule_rows(file: &Counted<'_>, by_moment: &[(ReportMoment, Counted<'_>)]) -> Vec<RuleRow> {
    let row = |(decision, of): (&(Rule, Category), &Vec<&Lifetime>)| {
        let live: Vec<PartSums> = by_moment
            .iter()
            .map(|(_, counted)| part_sums(&counted.sums, counted.decided(decision)))
            .collect();
        let all = part_sums(&file.sums, of);
        RuleRow {
            rule: decision.0.name(),
            category: decision.1,
            confidence: decision.0.confidence(),
            when: decision.0.when(),
            live_bytes: live.iter().map(|part| part.bytes).collect(),
            live_blocks: live.iter().map(|part| part.blocks).collect(),
            all_bytes: all.bytes,
            all_blocks: all.blocks,
            live_errors: live.iter().map(|part| part.bytes_error).collect(),
            all_error: all.bytes_error,
        }
    };
    let mut rows: Vec<RuleRow> = file.by_decision.iter().map(row).collect();
    rows.sort_by_key(|row| Reverse((row.live_bytes.clone(), row.all_bytes)));
    rows
}

/// Returns up to three operators that allocated the unclassified blocks, largest first.
fn unclassified_by_operator(counted: &Counted<'_>, names: &EventNames) -> Vec<UnclassifiedRow> {
    // Without any names, every row would be unattributed, which is of no use.
    if names.is_empty() {
        return Vec::new();
    }
    let mut by_name: BTreeMap<&str, Vec<&Lifetime>> = BTreeMap::new();
    for &lifetime in counted.by_category.get(&None).into_iter().flatten() {
        let name = match lifetime.from {
            Some(row) => names.operator(row),
            None => Some(OLDER_MEMORY),
        };
        by_name.entry(name.unwrap_or("(unattributed)")).or_default().push(lifetime);
    }
    let row = |(name, live): (&str, Vec<&Lifetime>)| {
        let part = part_sums(&counted.sums, &live);
        UnclassifiedRow { name: name.to_owned(), bytes: part.bytes, error: part.bytes_error }
    };
    let mut rows: Vec<UnclassifiedRow> = by_name.into_iter().map(row).collect();
    rows.sort_by_key(|row| Reverse(row.bytes));
    rows.truncate(3);
    rows
}

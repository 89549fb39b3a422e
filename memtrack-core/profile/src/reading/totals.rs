//! Sums up memory by inferred category and by rule, at selected moments and over the whole file.

use super::BlockCategories;
use super::rule::{Confidence, Rule};
use crate::Category;
use memtrack_model::NameFrames;
use memtrack_model::answer::{DeviceAnswer, serialize_name};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{Since, Snapshot};
use memtrack_report::analysis::attribution::{EventNames, OLDER_MEMORY};
use memtrack_report::analysis::estimate::{Estimate, PartSums, Sums};
use memtrack_report::analysis::lifetimes::Lifetime;
use memtrack_report::analysis::net::{HeldAtEnd, counted_at_end};
use memtrack_report::analysis::peak::Peak;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A moment at which live blocks are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum ReadingAt {
    /// The moment at which the most bytes were live.
    #[default]
    Peak,
    /// The moment after the last event.
    End,
    /// The given number of seconds after the first event, or after the start of a recording.
    Seconds(f64),
}

impl ReadingAt {
    /// Returns the name of the moment, which is `peak`, `end` or `time`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::End => "end",
            Self::Seconds(_) => "time",
        }
    }
}

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
    pub category: Option<&'static str>,
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
    pub category: &'static str,
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

/// A running sum of bytes and blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    bytes: u64,
    blocks: f64,
}

impl Tally {
    fn add(&mut self, lifetime: &Lifetime) {
        self.bytes = self.bytes.saturating_add(lifetime.bytes);
        self.blocks += lifetime.blocks;
    }

    fn whole_blocks(self) -> u64 {
        self.blocks.round() as u64
    }
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// The tally of each decision over a set of blocks.
type ByDecision = BTreeMap<Option<(Rule, Category)>, Tally>;

impl CategoryReading {
    /// Infers the categories of the blocks on `device` and sums them up at each moment. `names` symbolizes
    /// stack frames, as `Symbolizer::of(snapshot)` does.
    pub fn of(
        snapshot: &Snapshot,
        names: &mut dyn NameFrames,
        device: DeviceId,
        moments: &[ReadingAt],
    ) -> Self {
        Self::of_blocks(snapshot, device, &BlockCategories::infer(snapshot, names, device), moments)
    }

    /// Sums up the inferred categories of the blocks on `device`.
    pub fn of_blocks(
        snapshot: &Snapshot,
        device: DeviceId,
        blocks: &BlockCategories,
        moments: &[ReadingAt],
    ) -> Self {
        Self::of_named(snapshot, device, blocks, moments, &EventNames::default())
    }

    /// Like [`Self::of_blocks`], but also lists the operators that allocated unclassified blocks, using
    /// `names`.
    pub fn of_named(
        snapshot: &Snapshot,
        device: DeviceId,
        blocks: &BlockCategories,
        moments: &[ReadingAt],
        names: &EventNames,
    ) -> Self {
        let seconds = |row: usize| snapshot.seconds_at(row);
        let number = |row: usize| snapshot.events.rows_of(device).take_while(|&before| before < row).count();
        let row_of = |at: ReadingAt| match at {
            ReadingAt::Peak => Peak::of(snapshot, device, &blocks.lifetimes).row,
            ReadingAt::End => snapshot.events.rows_of(device).last(),
            ReadingAt::Seconds(moment) => snapshot
                .events
                .rows_of(device)
                .take_while(|&row| seconds(row).is_none_or(|at| at <= moment))
                .last(),
        };
        let sums = Sums::of(snapshot, device, &blocks.lifetimes);
        let (all, by_decision_in_all) = compute_totals(blocks, &sums, |_| true);
        let counted = counted_at_end(snapshot, device, &blocks.lifetimes);
        let mut by_moment: Vec<(Option<usize>, Sums, ByDecision)> = Vec::new();
        let moments: Vec<MomentReading> = moments
            .iter()
            .map(|&at| {
                let row = row_of(at);
                let counted = counted.filter(|_| at == ReadingAt::End);
                // The estimated parts are capped at the total, which is known more precisely.
                let sums = counted.map_or(sums, |held| {
                    let live = blocks.lifetimes.iter().filter(|lifetime| lifetime.is_live_after(row));
                    sums.limited_to(held.bytes, held.blocks, live)
                });
                let (mut live, tallies) =
                    compute_totals(blocks, &sums, |lifetime| lifetime.is_live_after(row));
                if let Some(held) = counted {
                    live.replace_by_count(&held);
                }
                by_moment.push((row, sums, tallies));
                let unclassified_by = unclassified_by_operator(blocks, &sums, names, row);
                MomentReading {
                    moment: at.name(),
                    seconds: row.and_then(seconds),
                    event: row.map(number),
                    live,
                    unclassified_by,
                }
            })
            .collect();
        // Returns the blocks with this decision, either only those that are live after a row or all of them.
        let decided = |decision: (Rule, Category), live: Option<Option<usize>>| {
            let read = blocks.lifetimes.iter().zip(&blocks.decisions);
            let of = read.filter(move |(lifetime, read)| {
                **read == Some((decision.1, decision.0)) && live.is_none_or(|row| lifetime.is_live_after(row))
            });
            of.map(|(lifetime, _)| lifetime)
        };
        let rule_row = |(&decision, tally): (&Option<(Rule, Category)>, &Tally)| {
            let (rule, category) = decision?;
            let live = |(row, sums, tallies): &(Option<usize>, Sums, ByDecision)| {
                let tally = tallies.get(&decision).copied().unwrap_or_default();
                let live = decided((rule, category), Some(*row));
                sums.part(live, tally.bytes, tally.whole_blocks())
            };
            let live: Vec<PartSums> = by_moment.iter().map(live).collect();
            Some(RuleRow {
                rule: rule.name(),
                category: category.name(),
                confidence: rule.confidence(),
                when: rule.when(),
                live_bytes: live.iter().map(|part| part.bytes).collect(),
                live_blocks: live.iter().map(|part| part.blocks).collect(),
                all_bytes: tally.bytes,
                all_blocks: tally.whole_blocks(),
                live_errors: live.iter().map(|part| part.bytes_error).collect(),
                all_error: sums.bytes(decided((rule, category), None)),
            })
        };
        let mut rules: Vec<RuleRow> = by_decision_in_all.iter().filter_map(rule_row).collect();
        rules.sort_by_key(|row| Reverse((row.live_bytes.clone(), row.all_bytes)));
        let since = snapshot.seconds_since();
        let mut reading = Self {
            device: DeviceAnswer::from_name(&snapshot.device_name(device)),
            source: "read",
            exact: false,
            has_stacks: blocks.has_stacks,
            has_scopes: blocks.has_scopes,
            seconds_since: since.name(),
            moments,
            all,
            rules,
            hints: Vec::new(),
            since,
        };
        reading.hints = reading.hints(blocks.phases);
        let old_bytes =
            blocks.lifetimes.iter().zip(&blocks.decisions).fold(0, |sum: u64, (lifetime, read)| {
                if lifetime.from.is_none() && read.is_none() {
                    sum.saturating_add(lifetime.bytes)
                } else {
                    sum
                }
            });
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

/// Returns up to three operators that allocated the unclassified blocks live after `row`, largest first.
fn unclassified_by_operator(
    blocks: &BlockCategories,
    sums: &Sums,
    names: &EventNames,
    row: Option<usize>,
) -> Vec<UnclassifiedRow> {
    let unclassified = blocks.lifetimes.iter().zip(&blocks.decisions).filter(|(_, read)| read.is_none());
    let live = unclassified.map(|(lifetime, _)| lifetime).filter(|lifetime| lifetime.is_live_after(row));
    let mut by_name: BTreeMap<&str, Vec<&Lifetime>> = BTreeMap::new();
    for lifetime in live {
        let name = match lifetime.from {
            Some(row) => names.operator(row),
            None => Some(OLDER_MEMORY),
        };
        by_name.entry(name.unwrap_or("(unattributed)")).or_default().push(lifetime);
    }
    let row = |(name, live): (&str, Vec<&Lifetime>)| {
        let bytes = live.iter().fold(0, |sum: u64, one| sum.saturating_add(one.bytes));
        let part = sums.part(live.iter().copied(), bytes, live.len() as u64);
        UnclassifiedRow { name: name.to_owned(), bytes: part.bytes, error: part.bytes_error }
    };
    let mut rows: Vec<UnclassifiedRow> = by_name.into_iter().map(row).collect();
    rows.sort_by_key(|row| Reverse(row.bytes));
    rows.truncate(3);
    // Without any names, every row would be unattributed, which is of no use.
    if names.is_empty() { Vec::new() } else { rows }
}

/// Computes the sums over the blocks for which `counted` returns true.
fn compute_totals(
    blocks: &BlockCategories,
    sums: &Sums,
    counted: impl Fn(&Lifetime) -> bool,
) -> (Totals, ByDecision) {
    let mut by_decision = ByDecision::new();
    let mut total = Tally::default();
    let selected =
        || blocks.lifetimes.iter().zip(&blocks.decisions).filter(|(lifetime, _)| counted(lifetime));
    for (lifetime, read) in selected() {
        total.add(lifetime);
        by_decision.entry(read.map(|(category, rule)| (rule, category))).or_default().add(lifetime);
    }
    let in_file =
        |category: Category| blocks.decisions.iter().any(|read| read.is_some_and(|(is, _)| is == category));
    let known = Category::ALL.into_iter().filter(|&category| in_file(category)).map(Some);
    let row = |category: Option<Category>| {
        let of = by_decision.iter().filter(|(decision, _)| decision.map(|(_, is)| is) == category);
        let tally = of.fold(Tally::default(), |sum, (_, tally)| Tally {
            bytes: sum.bytes.saturating_add(tally.bytes),
            blocks: sum.blocks + tally.blocks,
        });
        let in_category = selected().filter(|(_, read)| read.map(|(is, _)| is) == category);
        let in_category = in_category.map(|(lifetime, _)| lifetime);
        let part = sums.part(in_category, tally.bytes, tally.whole_blocks());
        CategoryRow {
            category: category.map(Category::name),
            bytes: part.bytes,
            error: part.bytes_error,
            share: share(part.bytes, total.bytes),
            blocks: part.blocks,
            count_error: part.blocks_error,
        }
    };
    let categories: Vec<CategoryRow> = known.chain([None]).map(row).collect();
    let of = |confidence: Confidence| {
        let rules = by_decision
            .iter()
            .filter(|(decision, _)| decision.is_some_and(|(rule, _)| rule.confidence() == confidence));
        share(rules.fold(0, |sum, (_, tally)| sum.saturating_add(tally.bytes)), total.bytes)
    };
    let unclassified_bytes = categories.last().map_or(0, |row| row.bytes);
    let all = || selected().map(|(lifetime, _)| lifetime);
    let error = sums.bytes(all());
    let totals = Totals {
        bytes: total.bytes,
        bytes_error: error,
        blocks: total.whole_blocks(),
        count_error: sums.blocks(all()),
        unclassified_bytes,
        unclassified_error: categories.last().map_or_else(Estimate::default, |row| row.error),
        unclassified_share: share(unclassified_bytes, total.bytes),
        guessed_share: of(Confidence::Guess),
        given_share: of(Confidence::Given),
        categories,
        error,
    };
    (totals, by_decision)
}

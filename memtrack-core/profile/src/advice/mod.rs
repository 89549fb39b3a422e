//! Advice on lowering a device's peak. It finds memory that is live but unused at the peak, and computes how
//! much lower the peak would be without it. Each saving is the old peak minus the new one, which may occur at
//! a different time.

mod edits;
mod find;
mod lines;
mod recompute;
mod uses;
mod words;

use crate::analysis::Profile;
use crate::category::Category;
use crate::curve::{Curve, State};
use crate::names::is_from_sdk;
use crate::repairs::Repairs;
use edits::{Change, Edits};
use find::Proposal;
use memtrack_blocks::estimate::Estimate;
use memtrack_model::answer::{DeviceAnswer, DeviceKind, serialize_as_name};
use memtrack_model::optrace::DeviceIndex;
use memtrack_report::top::{TopReport, TopRow};
use serde::Serialize;
use std::cmp::Reverse;
use uses::Memory;

pub use lines::CodeLine;

/// The kind of advice on a piece of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The memory was allocated before the peak but first used after it, so it should be allocated later.
    Early,
    /// The memory was last used before the peak but freed after it, so it should be freed earlier.
    Late,
    /// Gradients stay live after an optimizer step has used them, so they should be dropped right after the
    /// step.
    ZeroGrad,
    /// The memory was used before and after the peak but was idle at the peak, so it should be moved
    /// elsewhere or recomputed.
    #[default]
    Idle,
    /// A module keeps activations for its backward pass, so they should be recomputed there instead.
    Recompute,
}

memtrack_model::serialize_as!(Kind => &'static str: |kind| kind.name());

impl Kind {
    /// Returns the name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Late => "late",
            Self::ZeroGrad => "zero_grad",
            Self::Idle => "idle",
            Self::Recompute => "recompute",
        }
    }

    /// Returns whether the change needs no extra work, i.e. whether nothing has to be copied or recomputed.
    pub const fn needs_no_more_work(self) -> bool {
        matches!(self, Self::Early | Self::Late | Self::ZeroGrad)
    }
}

/// The last operator that used a piece of memory before the peak.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct LastUse {
    /// The name of the operator that used the memory.
    pub operator: String,
    /// The module that encloses the operator; null if there is none.
    pub module: Option<String>,
    /// The time from the operator's end to the peak, in nanoseconds.
    pub ns_before_the_peak: u64,
}

/// The first operator that used a piece of memory after the peak.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct NextUse {
    /// The name of the operator that used the memory.
    pub operator: String,
    /// The module that encloses the operator; null if there is none.
    pub module: Option<String>,
    /// The time from the peak to the operator's start, in nanoseconds.
    pub ns_after_the_peak: u64,
}

/// A change that would lower the peak. If it affects several pieces of memory, the times are those of the largest
/// piece.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Finding {
    /// The kind of change: `early` (allocate later), `late` (free earlier), `zero_grad` (drop gradients after the
    /// optimizer step), `idle` (move elsewhere or recompute) or `recompute` (recompute activations).
    pub kind: Kind,
    /// The change as a sentence.
    pub sentence: String,
    /// The number of bytes by which the change lowers the peak.
    pub saves_bytes: u64,
    /// The margin of error of the saving if small blocks were sampled; null if the saving is exact.
    pub saves_bytes_error: Estimate,
    /// The peak after the change, in bytes.
    pub new_peak_bytes: u64,
    /// The margin of error of the peak after the change; null if that peak is exact.
    pub new_peak_bytes_error: Estimate,
    /// The size of the memory that the change affects, in bytes.
    pub allocated_bytes: u64,
    /// The margin of error of the size of the affected memory; null if the size is exact.
    pub allocated_bytes_error: Estimate,
    /// The number of pieces of memory that the change affects.
    pub count: u64,
    /// The category of the affected memory at the peak.
    pub category: Category,
    /// The module that allocated the affected memory, or the module whose activations the memory holds; null if no
    /// module is known.
    pub module: Option<String>,
    /// The modules to recompute: `module`, and possibly others of its type; empty for other kinds of change.
    pub modules: Vec<String>,
    /// The operator that allocated the affected memory; null unless a single operator allocated all of it.
    pub operator: Option<String>,
    /// The line of code that allocated the affected memory; null if it is unknown.
    pub line: Option<CodeLine>,
    /// The time from the memory's allocation to the peak, in nanoseconds; null if the memory is older than the trace,
    /// and for `recompute`.
    pub obtained_ns_before_the_peak: Option<u64>,
    /// The last operator that used the memory before the peak, other than the one that allocated it; null if there is
    /// none, and for `recompute`.
    pub last_used: Option<LastUse>,
    /// The first operator that used the memory after the peak; null if there is none, and for `recompute`.
    pub next_used: Option<NextUse>,
    /// The time from the peak until the memory is freed, in nanoseconds; null if the memory is still live at the end of
    /// the trace, and for `recompute`.
    pub freed_ns_after_the_peak: Option<u64>,
    /// The total duration of the operators that would have to run again, in nanoseconds; null except for `recompute`.
    pub forward_ns: Option<u64>,
}

/// The effect of a set of changes on the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CombinedEffect {
    /// The number of changes that were applied.
    pub findings: u64,
    /// The number of bytes by which the changes together lower the peak.
    pub saves_bytes: u64,
    /// The peak after the changes, in bytes.
    pub new_peak_bytes: u64,
}

/// The peak after combining several changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Together {
    /// The peak after all changes that need no copying and no recomputation ([`Kind::needs_no_more_work`]).
    pub without_more_work: CombinedEffect,
    /// The peak after all changes. If modules are nested, only one of them is recomputed.
    pub all: CombinedEffect,
}

/// A summary of the changes that are not listed as findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct OtherFindings {
    /// The number of changes that are not listed.
    pub findings: usize,
    /// The sum of the sizes of the memory that these changes affect, in bytes.
    pub allocated_bytes: u64,
}

/// The memory that a line of code or an operator holds at the peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PeakPart {
    /// The line in the program's own code, formatted as in `memtrack top`, or the operator if the line is unknown.
    #[serde(flatten, serialize_with = "serialize_as_name")]
    #[cfg_attr(feature = "schema", schemars(with = "memtrack_model::answer::NameAnswer"))]
    pub name: String,
    /// The requested bytes that the line or operator holds at the peak.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes if small blocks were sampled; null if the number is exact.
    pub requested_bytes_error: Estimate,
    /// The share of the peak that the line or operator holds, from 0 to 1.
    pub share: f64,
}

/// Changes that would lower a device's peak. Byte counts are exact, except those of sampled blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Advice {
    /// The device.
    pub device: DeviceAnswer,
    /// The device's peak, in bytes.
    pub peak_bytes: u64,
    /// The margin of error of the device's peak if small blocks were sampled; null if the peak is exact.
    pub peak_bytes_error: Estimate,
    /// The time from the trace's first record until the peak is first reached, in nanoseconds.
    pub peak_ns: u64,
    /// The lines of code that hold the most bytes at the peak, largest first, at most five. If a line is unknown, the
    /// operator is listed instead.
    pub largest: Vec<PeakPart>,
    /// The changes that would lower the peak, sorted by decreasing saving. Changes that save less than a hundredth of
    /// the peak are omitted unless all are requested.
    pub findings: Vec<Finding>,
    /// A summary of the changes that `findings` does not list.
    pub others: OtherFindings,
    /// The peak after combining several changes.
    pub together: Together,
    /// The bytes that were live at the peak but that the advice does not cover, because their use is unknown.
    pub unseen_bytes: u64,
    /// The margin of error of `unseen_bytes`; null if that number is exact.
    pub unseen_bytes_error: Estimate,
    /// The number of repairs made to the trace, by kind.
    pub repairs: Repairs,
    /// Whether the program uses several accelerators across which memory could be sharded.
    #[serde(skip)]
    pub has_several_devices: bool,
    /// Whether memtrack's SDK recorded the trace, which means that the program is written in Rust.
    #[serde(skip)]
    pub is_from_sdk: bool,
}

impl Advice {
    /// The maximum number of peak parts that are listed.
    pub const MAX_LARGEST: usize = 5;

    /// Finds changes that would lower a device's peak. `repairs` is passed through to the result. The findings include
    /// those that save nothing on their own, because the device holds just as much memory at some other time.
    pub fn of(profile: &Profile<'_>, device: DeviceIndex, repairs: Repairs) -> Self {
        let mut curve = Curve::of(profile, device);
        let memory = Memory::of(profile, device, &curve);
        let (peak, peak_bytes) = curve.find_highest(0, curve.last());
        let counted = u64::try_from(peak_bytes).unwrap_or(0);
        let (findings, together) = find_changes(&memory, &mut curve, (peak, counted));
        let estimate = profile.attribution().and_then(|attribution| attribution.peak_error(device));
        let peak_bytes_error = estimate.unwrap_or(Estimate::exact(counted as f64));
        let (unseen_bytes, unseen_error) = memory.bytes_without_tensors(peak);
        let first_ns = profile.begin_ns();
        let peak_time = curve.begin_ns(peak).unwrap_or(first_ns);
        let mut advice = Self {
            device: DeviceAnswer::from_trace_name(profile.device_name(device)),
            peak_bytes: estimate.map_or(counted, |error| error.value as u64),
            peak_bytes_error,
            peak_ns: u64::try_from(peak_time.saturating_sub(first_ns)).unwrap_or(0),
            largest: lines::largest_parts(&memory, peak),
            findings: Vec::new(),
            others: OtherFindings::default(),
            together,
            unseen_bytes,
            unseen_bytes_error: unseen_error.at_most(peak_bytes_error.high),
            repairs,
            has_several_devices: find::has_several_devices(profile.trace()),
            is_from_sdk: is_from_sdk(profile),
        };
        advice.findings = findings
            .into_iter()
            .map(|finding| advice.complete_finding(finding, estimate.is_some()))
            .collect();
        advice
    }

    /// Sets the fields of a finding that depend on the peak as it is reported: the new peak, the errors and the sentence.
    fn complete_finding(&self, mut finding: Finding, is_estimate: bool) -> Finding {
        finding.new_peak_bytes = self.peak_bytes.saturating_sub(finding.saves_bytes);
        (finding.saves_bytes_error, finding.new_peak_bytes_error) = if is_estimate {
            let share = finding.saves_bytes as f64 / finding.allocated_bytes.max(1) as f64;
            let saves = finding.allocated_bytes_error.times(share);
            (saves, self.peak_bytes_error.minus(&saves))
        } else {
            (Estimate::exact(finding.saves_bytes as f64), Estimate::exact(finding.new_peak_bytes as f64))
        };
        finding.sentence = self.format_sentence(&finding);
        finding
    }

    /// Replaces the largest parts of the peak with the rows of `at_peak`, which ranks lines by their live
    /// memory at the peak. The operators are kept if a single line allocates nearly everything, such as a
    /// function that creates all tensors, because they are more informative in that case.
    #[must_use]
    pub fn with_largest(mut self, at_peak: &TopReport) -> Self {
        if let (Some(line), Some(operator)) = (at_peak.rows.first(), self.largest.first())
            && line.share >= 0.9
            && (operator.requested_bytes as f64) < 0.9 * line.allocated_bytes as f64
        {
            return self;
        }
        let part = |row: &TopRow| PeakPart {
            name: row.name.clone(),
            requested_bytes: row.allocated_bytes,
            requested_bytes_error: row.allocated_error,
            share: row.share.min(1.0),
        };
        self.largest = at_peak.rows.iter().take(Self::MAX_LARGEST).map(part).collect();
        self
    }

    /// Returns the advice with at most `rows` findings; `others` sums up the rest. Findings that save less than a
    /// hundredth of the peak are left out unless all are requested by [`usize::MAX`], or unless the peak is lowered only
    /// by all of them together.
    #[must_use]
    pub fn listed(&self, rows: usize) -> Self {
        let mut listed = self.clone();
        for left_out in listed.findings.split_off(self.listable(rows).0.min(rows)) {
            listed.others.findings += 1;
            let bytes = &mut listed.others.allocated_bytes;
            *bytes = bytes.saturating_add(left_out.allocated_bytes);
        }
        listed
    }

    /// Returns how many of the findings can be listed, and whether they lower the peak only in combination.
    fn listable(&self, rows: usize) -> (usize, bool) {
        let least = if rows == usize::MAX { 1 } else { (self.peak_bytes / 100).max(1) };
        let saving = self.findings.iter().take_while(|finding| finding.saves_bytes >= least).count();
        if saving == 0 && self.together.all.saves_bytes >= least {
            return (self.findings.len(), true);
        }
        (saving, false)
    }

    /// Returns whether the device is host memory, which can only be moved to files.
    fn is_on_host(&self) -> bool {
        self.device.name == "pinned" || self.device.kind != DeviceKind::Device
    }
}

/// Returns the changes that would lower the peak, sorted by saving and then by size, and the effect of combining them.
/// The peak is given by its state and its bytes.
fn find_changes(
    memory: &Memory<'_>,
    curve: &mut Curve,
    (peak, peak_bytes): (State, u64),
) -> (Vec<Finding>, Together) {
    let edits = Edits::new(memory);
    let (mut modules, mut similar, recomputable) = recompute::find_recomputations(memory, curve, peak);
    let mut others = find::find_proposals(memory, curve, peak, &recomputable);
    let mut combine = |changes: &[&Change]| {
        let new_peak_bytes = edits.peak_after(curve, changes.iter().copied()).min(peak_bytes);
        let saves_bytes = peak_bytes - new_peak_bytes;
        CombinedEffect { findings: changes.len() as u64, saves_bytes, new_peak_bytes }
    };
    for Proposal { finding, change, .. } in others.iter_mut().chain(&mut modules).chain(&mut similar) {
        finding.saves_bytes = combine(&[&*change]).saves_bytes;
    }
    let modules = recompute::choose_groups(modules, similar);
    let free = others.iter().filter(|found| found.finding.kind.needs_no_more_work());
    let free: Vec<&Change> = free.map(|found| &found.change).collect();
    let mut all: Vec<&Change> = others.iter().map(|found| &found.change).collect();
    let mut peak_with = |changes: &[&Change]| {
        let with: Vec<&Change> = all.iter().chain(changes).copied().collect();
        combine(&with).new_peak_bytes
    };
    let recomputed = recompute::best_combination(memory, &modules, &mut peak_with);
    all.extend(recomputed);
    let together = Together { without_more_work: combine(&free), all: combine(&all) };
    let mut findings: Vec<Finding> = others.into_iter().chain(modules).map(|found| found.finding).collect();
    findings.sort_by_key(|finding| (Reverse(finding.saves_bytes), Reverse(finding.allocated_bytes)));
    (findings, together)
}

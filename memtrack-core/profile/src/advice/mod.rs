//! Advice on lowering a device's peak. It finds memory that is live but unused at the peak, and computes how
//! much lower the peak would be without it. Each saving is the old peak minus the new one, which may occur at
//! a different time.

mod edits;
mod find;
mod json;
mod largest;
mod lines;
mod recompute;
mod uses;
mod words;

use crate::analysis::Profile;
use crate::category::Category;
use crate::curve::Curve;
use crate::names::is_from_sdk;
use crate::repairs::Repairs;
use edits::{Change, Edits};
use find::Proposal;
use memtrack_blocks::estimate::Estimate;
use memtrack_model::answer::{DeviceAnswer, DeviceKind};
use memtrack_model::optrace::DeviceIndex;
use memtrack_report::top::TopReport;
use std::cmp::Reverse;
use uses::Memory;

pub use json::{
    AdviceAnswer, AfterAnswer, FindingAnswer, OtherFindingsAnswer, PeakPartAnswer, TogetherAnswer,
    UsedAfterAnswer, UsedBeforeAnswer,
};
pub use lines::CodeLine;

/// The kind of advice on a piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    Idle,
    /// A module keeps activations for its backward pass, so they should be recomputed there instead.
    Recompute,
}

impl Kind {
    /// All kinds of advice.
    pub const ALL: [Self; 5] = [Self::Early, Self::Late, Self::ZeroGrad, Self::Idle, Self::Recompute];

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

/// The last use of memory before the peak, or the first use after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearUse {
    /// The operator that used the memory.
    pub operator: String,
    /// The module that encloses the operator, if any.
    pub module: Option<String>,
    /// The time from the end of the use to the peak, or from the peak to the start of the use, in ns.
    pub distance_ns: u64,
}

/// A change that would lower the peak.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// The kind of advice.
    pub kind: Kind,
    /// The category of the memory at the peak.
    pub category: Category,
    /// The module that allocated the memory, or the module whose activations it holds.
    pub module: Option<String>,
    /// The modules to recompute, if any. These are `module` and possibly others of the same type.
    pub modules: Vec<String>,
    /// The operator that allocated the memory, if a single operator allocated all of it.
    pub operator: Option<String>,
    /// The line of the program that requested the memory, if it is known.
    pub line: Option<CodeLine>,
    /// The number of pieces of memory at the peak that the change affects.
    pub pieces: u64,
    /// The total size of these pieces.
    pub bytes: u64,
    /// The error of `bytes` if small blocks were sampled.
    pub error: Estimate,
    /// How much this change lowers the peak, in bytes.
    pub saves_bytes: u64,
    /// The error of `saves_bytes`.
    pub saves_error: Estimate,
    /// The peak after this change, in bytes.
    pub peak_bytes: u64,
    /// The error of `peak_bytes`.
    pub peak_error: Estimate,
    /// The time from the allocation of the largest piece to the peak, in ns, or `None` if the piece existed
    /// before the trace.
    pub obtained_ns: Option<u64>,
    /// The last use of the largest piece before the peak, not counting the operator that allocated it.
    pub used_before: Option<NearUse>,
    /// The first use of the largest piece after the peak.
    pub used_after: Option<NearUse>,
    /// The time from the peak until the largest piece is freed, in ns, or `None` if the piece is still live
    /// at the end of the trace.
    pub freed_ns: Option<u64>,
    /// The total duration of the operators that would have to run again, in ns. Set only for
    /// [`Kind::Recompute`].
    pub forward_ns: Option<u64>,
}

/// The peak after combining several changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CombinedEffect {
    /// The number of findings that were applied.
    pub findings: u64,
    /// How much the changes lower the peak, in bytes.
    pub saves_bytes: u64,
    /// The peak after the changes, in bytes.
    pub peak_bytes: u64,
}

/// The memory that a line or an operator holds at the peak.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PeakPart {
    /// The line in the program's own code, formatted as in `memtrack top`, or the operator if the line is
    /// unknown.
    pub name: String,
    /// The bytes at the peak.
    pub bytes: u64,
    /// The error of `bytes` if small blocks were sampled.
    pub error: Estimate,
    /// The share of the peak, from 0 to 1.
    pub share: f64,
}

/// Advice on lowering a device's peak.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// The device's name in the trace.
    pub device: String,
    /// The device's peak, in bytes.
    pub peak_bytes: u64,
    /// The error of `peak_bytes` if small blocks were sampled.
    pub peak_error: Estimate,
    /// The time at which the peak is first reached, in ns since the trace's first record.
    pub peak_ns: u64,
    /// The largest parts of the peak. There are at most [`Advice::MAX_LARGEST`].
    pub largest: Vec<PeakPart>,
    /// Whether the program uses several accelerators across which memory could be sharded.
    pub has_several_devices: bool,
    /// Whether memtrack's SDK recorded the trace, which means that the program is written in Rust.
    pub is_from_sdk: bool,
    /// The findings, sorted by saving and then by size. The last ones may save nothing on their own, because
    /// the device holds just as much memory at some other time.
    pub findings: Vec<Finding>,
    /// The peak after applying all findings that need no additional work ([`Kind::needs_no_more_work`]).
    pub without_more_work: CombinedEffect,
    /// The peak after applying all findings. If modules are nested, only one of them is recomputed.
    pub all_findings: CombinedEffect,
    /// The bytes at the peak of memory in which no tensor was seen. The advice does not cover this memory, because its use
    /// is unknown.
    pub unseen_bytes: u64,
    /// The error of `unseen_bytes`.
    pub unseen_error: Estimate,
    /// The repairs made to the trace.
    pub repairs: Repairs,
}

impl Advice {
    /// The maximum number of peak parts that are listed.
    pub const MAX_LARGEST: usize = 5;

    /// Finds changes that would lower a device's peak. `repairs` is passed through to the result.
    pub fn of(profile: &Profile<'_>, device: DeviceIndex, repairs: Repairs) -> Self {
        let mut curve = Curve::of(profile, device);
        let (peak, peak_bytes) = curve.find_highest(0, curve.last());
        let first_ns = profile.trace().records.first().map_or(0, |record| record.time_ns);
        let peak_time = curve.begin_ns(peak).unwrap_or(first_ns);
        let memory = Memory::of(profile, device, &curve);
        let (mut modules, mut similar, recomputable) = recompute::find_recomputations(&memory, &curve, peak);
        let mut others = find::find_proposals(&memory, &curve, peak, &recomputable);
        let old = u64::try_from(peak_bytes).unwrap_or(0);
        let edits = Edits::new(&memory);
        for Proposal { finding, change, .. } in others.iter_mut().chain(&mut modules).chain(&mut similar) {
            finding.peak_bytes = edits.peak_after(&mut curve, [&*change]).min(old);
            finding.saves_bytes = old - finding.peak_bytes;
        }
        let modules = recompute::choose_groups(modules, similar);
        let mut together = |changes: &[&Change]| {
            let peak_bytes = edits.peak_after(&mut curve, changes.iter().copied()).min(old);
            CombinedEffect { findings: changes.len() as u64, saves_bytes: old - peak_bytes, peak_bytes }
        };
        let is_without_more_work = |found: &&Proposal| found.finding.kind.needs_no_more_work();
        let free: Vec<&Change> =
            others.iter().filter(is_without_more_work).map(|found| &found.change).collect();
        let mut all: Vec<&Change> = others.iter().map(|found| &found.change).collect();
        let mut peak_with = |changes: &[&Change]| {
            let with: Vec<&Change> = all.iter().chain(changes).copied().collect();
            together(&with).peak_bytes
        };
        let recomputed = recompute::best_combination(&memory, &modules, &mut peak_with);
        all.extend(recomputed);
        let (free, all) = (together(&free), together(&all));
        let mut findings: Vec<Finding> =
            others.into_iter().chain(modules).map(|found| found.finding).collect();
        findings.sort_by_key(|finding| (Reverse(finding.saves_bytes), Reverse(finding.bytes)));
        let estimate = profile.attribution().and_then(|attribution| attribution.peak_error(device));
        let peak_error = estimate.unwrap_or(Estimate::exact(old as f64));
        let old = estimate.map_or(old, |error| error.value as u64);
        for finding in &mut findings {
            finding.peak_bytes = old.saturating_sub(finding.saves_bytes);
            let share = finding.saves_bytes as f64 / finding.bytes.max(1) as f64;
            (finding.saves_error, finding.peak_error) = if estimate.is_some() {
                let saves = finding.error.times(share);
                (saves, peak_error.minus(&saves))
            } else {
                (Estimate::exact(finding.saves_bytes as f64), Estimate::exact(finding.peak_bytes as f64))
            };
        }
        let (unseen_bytes, unseen_error) = memory.bytes_without_tensors(peak);
        let unseen_error = unseen_error.at_most(peak_error.high);
        Self {
            device: profile.device_name(device).to_owned(),
            peak_bytes: old,
            peak_error,
            largest: largest::largest_parts(&memory, peak),
            has_several_devices: largest::has_several_devices(profile.trace()),
            is_from_sdk: is_from_sdk(profile),
            peak_ns: u64::try_from(peak_time.saturating_sub(first_ns)).unwrap_or(0),
            findings,
            without_more_work: free,
            all_findings: all,
            unseen_bytes,
            unseen_error,
            repairs,
        }
    }

    /// Replaces the largest parts of the peak with the rows of `at_peak`, which ranks lines by their live
    /// memory at the peak. The operators are kept if a single line allocates nearly everything, such as a
    /// function that creates all tensors, because they are more informative in that case.
    #[must_use]
    pub fn with_largest(mut self, at_peak: &TopReport) -> Self {
        if let (Some(line), Some(operator)) = (at_peak.rows.first(), self.largest.first())
            && line.share >= 0.9
            && (operator.bytes as f64) < 0.9 * line.allocated_bytes as f64
        {
            return self;
        }
        let part = |row: &memtrack_report::top::TopRow| PeakPart {
            name: row.name.clone(),
            bytes: row.allocated_bytes,
            error: row.allocated_error,
            share: row.share.min(1.0),
        };
        self.largest = at_peak.rows.iter().take(Self::MAX_LARGEST).map(part).collect();
        self
    }

    /// Returns the minimum saving for a finding to be listed. This is a hundredth of the peak, unless all
    /// rows are requested.
    fn min_listed_saving(&self, rows: usize) -> u64 {
        if rows == usize::MAX { 1 } else { (self.peak_bytes / 100).max(1) }
    }

    /// Returns the findings to list, and whether they lower the peak only in combination. The caller shows at
    /// most `rows` of them.
    fn listed_findings(&self, rows: usize) -> (Vec<&Finding>, bool) {
        let least = self.min_listed_saving(rows);
        let listed: Vec<&Finding> =
            self.findings.iter().filter(|finding| finding.saves_bytes >= least).collect();
        if listed.is_empty() && self.all_findings.saves_bytes >= least {
            return (self.findings.iter().collect(), true);
        }
        (listed, false)
    }

    /// Returns whether the device is host memory, which can only be moved to files.
    fn is_on_host(&self) -> bool {
        self.device == "pinned" || DeviceAnswer::from_trace_name(&self.device).kind != DeviceKind::Device
    }
}

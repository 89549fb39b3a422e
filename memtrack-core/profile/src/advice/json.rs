//! The advice as JSON.

use super::{Advice, CombinedEffect, Finding, PeakPart};
use crate::answer::{RepairCounts, count_repairs};
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, FrameAnswer, NameAnswer};
use serde::Serialize;
use serde_json::Value;

/// Changes that would lower a device's peak. Byte counts are exact, except those of sampled blocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AdviceAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// The device's peak.
    pub peak_bytes: u64,
    /// The error of the peak if small blocks were sampled, or null if the peak is exact.
    pub peak_bytes_error: Option<ErrorAnswer>,
    /// The time from the trace's first record until the peak is first reached.
    pub peak_ns: u64,
    /// The lines that hold the most bytes at the peak, largest first. There are at most five. Where the line
    /// is unknown, the operator is listed instead.
    pub largest: Vec<PeakPartAnswer>,
    /// The findings, sorted by decreasing saving. Findings that save less than a hundredth of the peak are
    /// omitted unless all are requested.
    pub findings: Vec<FindingAnswer>,
    /// The findings that are not listed above.
    pub others: OtherFindingsAnswer,
    /// The peak after combining several changes.
    pub together: TogetherAnswer,
    /// Bytes that were live at the peak but are not covered by the advice.
    pub unseen_bytes: u64,
    /// The error of these bytes.
    pub unseen_bytes_error: Option<ErrorAnswer>,
    /// The number of repairs made to the trace, by kind.
    pub repairs: RepairCounts,
}

/// The memory that a line or an operator holds at the peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PeakPartAnswer {
    /// The line or operator.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The bytes that the line or operator holds at the peak.
    pub requested_bytes: u64,
    /// The error of these bytes if small blocks were sampled.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The share of the peak, from 0 to 1.
    pub share: f64,
}

/// A change that would lower the peak. If it affects several pieces of memory, the times are those of the
/// largest.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FindingAnswer {
    /// The kind of change.
    pub kind: &'static str,
    /// The finding as a sentence.
    pub sentence: String,
    /// How much the change lowers the peak.
    pub saves_bytes: u64,
    /// The error of the saving if small blocks were sampled.
    pub saves_bytes_error: Option<ErrorAnswer>,
    /// The peak after the change.
    pub new_peak_bytes: u64,
    /// The error of the new peak.
    pub new_peak_bytes_error: Option<ErrorAnswer>,
    /// The size of the memory that the change affects.
    pub allocated_bytes: u64,
    /// The error of this size.
    pub allocated_bytes_error: Option<ErrorAnswer>,
    /// The number of pieces that make up this memory.
    pub count: u64,
    /// The category of this memory.
    pub category: &'static str,
    /// The module that allocated the memory, or the module whose activations it holds.
    pub module: Option<String>,
    /// The modules to recompute.
    pub modules: Vec<String>,
    /// The operator that allocated the memory, if it is known.
    pub operator: Option<String>,
    /// The line that allocated the memory.
    pub line: Option<FrameAnswer>,
    /// The time from the allocation to the peak, or null if the memory is older than the trace.
    pub obtained_ns_before_the_peak: Option<u64>,
    /// The last use before the peak.
    pub last_used: Option<UsedBeforeAnswer>,
    /// The first use after the peak.
    pub next_used: Option<UsedAfterAnswer>,
    /// The time from the peak to the free, or null if the memory is still live at the end of the trace.
    pub freed_ns_after_the_peak: Option<u64>,
    /// The total duration of the operators that would have to run again.
    pub forward_ns: Option<u64>,
}

/// The last use of a finding's memory before the peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct UsedBeforeAnswer {
    /// The last operator that used the memory before the peak.
    pub operator: String,
    /// The module that encloses the operator, or null if there is none.
    pub module: Option<String>,
    /// The time from the operator's end to the peak, in nanoseconds.
    pub ns_before_the_peak: u64,
}

/// The first use of a finding's memory after the peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct UsedAfterAnswer {
    /// The first operator that used the memory after the peak.
    pub operator: String,
    /// The module that encloses the operator, or null if there is none.
    pub module: Option<String>,
    /// The time from the peak to the operator's start, in nanoseconds.
    pub ns_after_the_peak: u64,
}

/// The findings that the report does not list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct OtherFindingsAnswer {
    /// The number of findings that are not listed.
    pub findings: usize,
    /// The total size of the memory that these findings affect.
    pub allocated_bytes: u64,
}

/// The peak after combining several changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TogetherAnswer {
    /// The peak after all changes that need no additional work.
    pub without_more_work: AfterAnswer,
    /// The peak after all changes.
    pub all: AfterAnswer,
}

/// The effect of a set of changes on the peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AfterAnswer {
    /// The number of findings whose changes were combined.
    pub findings: u64,
    /// The number of bytes by which the changes together lower the device's peak.
    pub saves_bytes: u64,
    /// The device's peak after all these changes.
    pub new_peak_bytes: u64,
}

impl Advice {
    /// Returns the advice in the form printed by `memtrack advise --json`. At most `rows` findings are
    /// listed; `others` sums up the rest.
    pub fn answer(&self, rows: usize) -> AdviceAnswer {
        let (listed, _) = self.listed_findings(rows);
        let shown = &listed[..rows.min(listed.len())];
        // `shown` is always a prefix of the findings.
        let rest = &self.findings[shown.len()..];
        AdviceAnswer {
            device: DeviceAnswer::from_trace_name(&self.device),
            peak_bytes: self.peak_bytes,
            peak_bytes_error: self.peak_error.answer(),
            largest: self.largest.iter().map(part_to_answer).collect(),
            peak_ns: self.peak_ns,
            findings: shown.iter().map(|finding| self.finding_to_answer(finding)).collect(),
            others: OtherFindingsAnswer {
                findings: rest.len(),
                allocated_bytes: rest.iter().fold(0_u64, |sum, finding| sum.saturating_add(finding.bytes)),
            },
            together: TogetherAnswer {
                without_more_work: effect_to_answer(&self.without_more_work),
                all: effect_to_answer(&self.all_findings),
            },
            unseen_bytes: self.unseen_bytes,
            unseen_bytes_error: self.unseen_error.answer(),
            repairs: count_repairs(&self.repairs),
        }
    }

    /// Returns the result of [`Self::answer`] as JSON.
    pub fn to_json(&self, rows: usize) -> Value {
        serde_json::to_value(self.answer(rows)).unwrap_or_default()
    }

    fn finding_to_answer(&self, finding: &Finding) -> FindingAnswer {
        FindingAnswer {
            kind: finding.kind.name(),
            sentence: self.sentence(finding),
            saves_bytes: finding.saves_bytes,
            saves_bytes_error: finding.saves_error.answer(),
            new_peak_bytes: finding.peak_bytes,
            new_peak_bytes_error: finding.peak_error.answer(),
            allocated_bytes: finding.bytes,
            allocated_bytes_error: finding.error.answer(),
            count: finding.pieces,
            category: finding.category.name(),
            module: finding.module.clone(),
            modules: finding.modules.clone(),
            operator: finding.operator.clone(),
            line: finding.line.as_ref().map(|line| FrameAnswer {
                function: Some(line.function.clone()),
                file: Some(line.file.clone()),
                line: Some(line.line),
                address: None,
            }),
            obtained_ns_before_the_peak: finding.obtained_ns,
            last_used: finding.used_before.as_ref().map(|of| UsedBeforeAnswer {
                operator: of.operator.clone(),
                module: of.module.clone(),
                ns_before_the_peak: of.distance_ns,
            }),
            next_used: finding.used_after.as_ref().map(|of| UsedAfterAnswer {
                operator: of.operator.clone(),
                module: of.module.clone(),
                ns_after_the_peak: of.distance_ns,
            }),
            freed_ns_after_the_peak: finding.freed_ns,
            forward_ns: finding.forward_ns,
        }
    }
}

fn part_to_answer(part: &PeakPart) -> PeakPartAnswer {
    PeakPartAnswer {
        name: NameAnswer::from_text(&part.name),
        requested_bytes: part.bytes,
        requested_bytes_error: part.error.answer(),
        share: part.share,
    }
}

fn effect_to_answer(together: &CombinedEffect) -> AfterAnswer {
    AfterAnswer {
        findings: together.findings,
        saves_bytes: together.saves_bytes,
        new_peak_bytes: together.peak_bytes,
    }
}

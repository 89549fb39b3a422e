//! A ranking as JSON, with bytes as integers, addresses as `"0x…"`, shares from 0 to 1, and times in seconds. Bytes are
//! requested bytes. Unknown numbers are null, such as exact counts that the recorder did not keep.

use super::{By, RowText, StackLine, TopReport, TopRow, TrendAnswer};
use crate::analysis::ownership::ExplainedAnswer;
use crate::analysis::peak::PeakAnswer;
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, FrameAnswer, NameAnswer};
use memtrack_model::snapshot::{Folded, Sampling};
use serde::Serialize;
use serde_json::Value;

/// The ranking of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RankingAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// The grouping of the rows, as for `--by`.
    pub by: &'static str,
    /// The moment at which live blocks are counted; null if all allocations are counted.
    pub at: Option<String>,
    /// The halfway point between the device's first event and that moment, from which growth is measured, in seconds
    /// since the same origin as the peak's; null if rows have no growth.
    pub growth_since_seconds: Option<f64>,
    /// The rows, largest first.
    pub rows: Vec<RowAnswer>,
    /// The total number of rows, including those beyond the limit.
    pub rows_in_all: usize,
    /// Sums over all rows.
    pub totals: TotalsAnswer,
    /// Whether the recording is complete. If not, the numbers for all allocations, for the end and for the peak are
    /// lower bounds.
    pub complete: bool,
    /// Whether the sums of scopes are the recorder's own, which are exact.
    pub exact_scopes: bool,
    /// When those sums were taken, in seconds since the start, if the program exited without finishing its recording.
    pub sums_at_seconds: Option<f64>,
    /// The number of entries into scopes that did not fit in the recorder's tables.
    pub folded_scopes: u64,
    /// Counts of everything else that did not fit in the recorder's tables.
    pub folded: Folded,
    /// Bytes by the source of their operator's name.
    pub attribution: AttributionAnswer,
    /// The moment when the most bytes were live.
    pub peak: PeakAnswer,
    /// The number of recorded events.
    pub recorded_events: u64,
    /// The number of older events that the recorder dropped.
    pub dropped_events: u64,
    /// The bytes of all allocations by the recorder's own count.
    pub exact_requested_bytes: Option<u64>,
    /// The number of all allocations by the recorder's own count.
    pub exact_allocations: Option<u64>,
    /// The size below which blocks were sampled; 0 if none were.
    pub sample_threshold_bytes: u64,
    /// The mean gap between two samples, if it was fixed.
    pub sample_mean_bytes: u64,
    /// How many bytes each small block counted for, in addition to its own, when samples were selected.
    pub sample_block_bytes: u64,
    /// The share of the threads' CPU time that recording was allowed to use; 0 if there was no such budget.
    pub budget: f64,
    /// How small blocks were sampled, if known.
    pub sampling: Option<Sampling>,
    /// Rows with fewer bytes than this in small blocks may have no sample and so be missing (with 5 % probability); 0
    /// if every block was recorded.
    pub detection_limit_bytes: u64,
    /// The rules behind the lines of the first rows, if `--explain` was given.
    pub explained: Option<Vec<ExplainedAnswer>>,
}

/// A row in a ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RowAnswer {
    /// The row's operator, module path, phase or other key; for a stack, the function that requested the memory.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// Requested bytes; with `at`, the bytes that were live at that moment.
    pub requested_bytes: u64,
    /// The error of the requested bytes.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// How many of the bytes that were live at the device's peak belong to this row.
    pub live_at_peak_bytes: u64,
    /// The error of those bytes.
    pub live_at_peak_bytes_error: Option<ErrorAnswer>,
    /// The number of blocks allocated.
    pub count: u64,
    /// The error of the number of blocks.
    pub count_error: Option<ErrorAnswer>,
    /// The size of the largest block.
    pub largest_bytes: u64,
    /// The row's share of all requested bytes, from 0 to 1.
    pub share: f64,
    /// Whether the bytes, count and share include sampled blocks.
    pub estimated: bool,
    /// Whether the bytes live at the peak include sampled blocks.
    pub live_at_peak_estimated: bool,
    /// The stack, innermost frame first; null in rankings without stacks.
    pub stack: Option<Vec<FrameAnswer>>,
    /// The number of distinct stacks in the row; null in rankings without stacks.
    pub stacks: Option<usize>,
    /// The innermost line in the user's code.
    pub mine: Option<FrameAnswer>,
    /// The function that this line called.
    pub calls: Option<FrameAnswer>,
    /// If the blocks were allocated before the trace started, at an unknown line, the line that freed them.
    pub freed_at: Option<FrameAnswer>,
    /// The age of the row's blocks, and the row's growth.
    #[serde(flatten)]
    pub trend: TrendAnswer,
    /// The functions that the line called, with their bytes, up to ten; null in rankings that are not by line.
    pub called: Option<Vec<PartAnswer>>,
    /// The total number of functions that the line called.
    pub called_in_all: Option<usize>,
    /// The program's own texts for the row's blocks (PyTorch's `user_metadata`), up to ten; null if there are none.
    pub user_metadata: Option<Vec<TextAnswer>>,
    /// The total number of such texts.
    pub user_metadata_in_all: Option<usize>,
}

/// The part of a row's blocks that was allocated below one function. For samples, the bytes and the count are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PartAnswer {
    /// The function.
    pub name: Option<String>,
    /// The total bytes of those blocks.
    pub requested_bytes: Option<u64>,
    /// The number of those blocks.
    pub count: Option<u64>,
}

/// The part of a row's blocks that has the same program text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TextAnswer {
    /// The text.
    pub text: String,
    /// The total bytes of those blocks.
    pub requested_bytes: u64,
    /// The number of those blocks.
    pub count: u64,
}

/// Sums over all rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TotalsAnswer {
    /// Requested bytes.
    pub requested_bytes: u64,
    /// The error of the requested bytes.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of blocks.
    pub count: u64,
    /// The error of the number of blocks.
    pub count_error: Option<ErrorAnswer>,
    /// Whether the sums include sampled blocks.
    pub estimated: bool,
}

/// Bytes by the source of their operator's name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AttributionAnswer {
    /// Bytes allocated inside operator scopes.
    pub annotated_bytes: u64,
    /// The error of those bytes.
    pub annotated_bytes_error: Option<ErrorAnswer>,
    /// Bytes whose operator is named by a stack frame.
    pub named_from_stacks_bytes: u64,
    /// The error of those bytes.
    pub named_from_stacks_bytes_error: Option<ErrorAnswer>,
    /// Bytes whose operator is named by neither a scope nor the stack.
    pub unattributed_bytes: u64,
    /// The error of those bytes.
    pub unattributed_bytes_error: Option<ErrorAnswer>,
}

impl TopReport {
    /// Returns the report as `memtrack top --json` prints it.
    pub fn answer(&self) -> RankingAnswer {
        let exact = |count: u64| self.statistics.counted.then_some(count);
        let [annotated, named, unattributed] = &self.attribution_errors;
        RankingAnswer {
            device: self.device_answer(),
            by: self.by.name(),
            at: self.at.map(|moment| moment.name()),
            growth_since_seconds: self.growth_since_seconds,
            rows: self.row_answers(),
            rows_in_all: self.rows_in_all,
            totals: TotalsAnswer {
                requested_bytes: self.totals.allocated_bytes,
                requested_bytes_error: self.totals.bytes_error.answer(),
                count: self.totals.count,
                count_error: self.totals.count_error.answer(),
                estimated: self.totals.estimated,
            },
            complete: self.complete,
            exact_scopes: self.exact_scopes,
            sums_at_seconds: self.sums_at_seconds,
            folded_scopes: self.folded_scopes,
            folded: self.folded,
            attribution: AttributionAnswer {
                annotated_bytes: self.attribution.annotated,
                annotated_bytes_error: annotated.answer(),
                named_from_stacks_bytes: self.attribution.named_from_stacks,
                named_from_stacks_bytes_error: named.answer(),
                unattributed_bytes: self.attribution.unattributed,
                unattributed_bytes_error: unattributed.answer(),
            },
            peak: self.peak.answer(self.peak_phase_and_operator.as_ref()),
            recorded_events: self.statistics.recorded,
            dropped_events: self.statistics.dropped,
            exact_requested_bytes: exact(self.statistics.allocated_bytes),
            exact_allocations: exact(self.statistics.allocations),
            sample_threshold_bytes: self.sample_threshold_bytes,
            sample_mean_bytes: self.sample_mean_bytes,
            sample_block_bytes: self.sample_block_bytes,
            budget: self.budget,
            sampling: self.sampling,
            detection_limit_bytes: self.detection_limit_bytes,
            explained: None,
        }
    }

    /// Returns the report as JSON, with the same content as [`Self::answer`].
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self.answer()).unwrap_or_default()
    }

    /// Returns the device for JSON.
    pub(in crate::analysis) fn device_answer(&self) -> DeviceAnswer {
        DeviceAnswer::new(self.device, &self.device_name, self.is_host, self.is_pinned)
    }

    /// Returns the rows for JSON.
    pub(in crate::analysis) fn row_answers(&self) -> Vec<RowAnswer> {
        self.rows.iter().map(|row| self.row_answer(row)).collect()
    }
}

impl TopReport {
    fn row_answer(&self, row: &TopRow) -> RowAnswer {
        let by = self.by;
        let address = |line: &StackLine| if self.has_addresses { line.address } else { 0 };
        let has_stack = !row.stack.is_empty();
        let part = |one: &RowText| {
            let known = |number: u64| (!row.estimated).then_some(number);
            let (requested_bytes, count) = (known(one.bytes), known(one.blocks));
            PartAnswer { name: NameAnswer::from_text(&one.text).name, requested_bytes, count }
        };
        let text = |one: &RowText| TextAnswer {
            text: one.text.clone(),
            requested_bytes: one.bytes,
            count: one.blocks,
        };
        let has_texts = !row.texts.is_empty();
        RowAnswer {
            name: NameAnswer::from_text(&row.name),
            requested_bytes: row.allocated_bytes,
            requested_bytes_error: row.errors.allocated_bytes.answer(),
            live_at_peak_bytes: row.live_at_peak_bytes,
            live_at_peak_bytes_error: row.errors.live_at_peak_bytes.answer(),
            count: row.count,
            count_error: row.errors.count.answer(),
            largest_bytes: row.largest_bytes,
            share: row.share,
            estimated: row.estimated,
            live_at_peak_estimated: row.live_estimated,
            stack: has_stack.then(|| {
                row.stack.iter().map(|line| FrameAnswer::from(&line.frame).at(address(line))).collect()
            }),
            stacks: has_stack.then_some(row.stacks),
            mine: row.owned.mine.as_ref().map(FrameAnswer::from),
            calls: row.owned.called.as_ref().map(FrameAnswer::from),
            freed_at: row.freed_at.as_ref().map(FrameAnswer::from),
            trend: TrendAnswer::of(row),
            called: (by == By::Line).then(|| row.called.iter().map(part).collect()),
            called_in_all: (by == By::Line).then_some(row.called_in_all),
            user_metadata: has_texts.then(|| row.texts.iter().map(text).collect()),
            user_metadata_in_all: has_texts.then_some(row.texts_in_all),
        }
    }
}

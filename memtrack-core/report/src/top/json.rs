//! A ranking as JSON, with bytes as integers, addresses as `"0x…"`, shares from 0 to 1, and times in seconds. Bytes are
//! requested bytes. Unknown numbers are null, such as exact counts that the recorder did not keep.

use super::{By, RowText, StackLine, TopReport, TopRow, TrendAnswer};
use memtrack_blocks::peak::PeakAnswer;
use memtrack_frames::ownership::Explanation;
use memtrack_model::answer::{DeviceAnswer, ErrorAnswer, FrameAnswer, NameAnswer};
use memtrack_model::snapshot::{Folded, Sampling};
use serde::Serialize;
use serde_json::Value;

/// The ranking of one device's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RankingAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// The key by which memory is grouped into rows, named as for `--by`.
    pub by: &'static str,
    /// The moment at which live blocks are counted; null if all allocations are counted.
    pub at: Option<String>,
    /// The time from which growth is measured, in seconds since the same origin as the peak's. It is halfway between
    /// the device's first event and the moment `at`. Null if rows have no growth.
    pub growth_since_seconds: Option<f64>,
    /// The rows with the most requested bytes, largest first.
    pub rows: Vec<RowAnswer>,
    /// The total number of rows, including those beyond the limit.
    pub rows_in_all: usize,
    /// Sums over all rows, including those beyond the limit.
    pub totals: TotalsAnswer,
    /// Whether the recording is complete. If not, the numbers for all allocations, for the end and for the peak are
    /// lower bounds.
    pub complete: bool,
    /// Whether the sums of scopes are the recorder's own, which are exact.
    pub exact_scopes: bool,
    /// The time at which the recorder's sums of scopes were taken, in seconds since the start; null unless the program
    /// exited without finishing its recording.
    pub sums_at_seconds: Option<f64>,
    /// The number of entries into scopes that did not fit in the recorder's tables.
    pub folded_scopes: u64,
    /// Counts of everything else that did not fit in the recorder's tables.
    pub folded: Folded,
    /// Bytes by the source of their operator's name.
    pub attribution: AttributionAnswer,
    /// The moment when the most bytes were live on the device.
    pub peak: PeakAnswer,
    /// The number of the device's recorded events.
    pub recorded_events: u64,
    /// The number of older events that the recorder dropped.
    pub dropped_events: u64,
    /// The requested bytes of all allocations by the recorder's own count; null if the recorder did not count them.
    pub exact_requested_bytes: Option<u64>,
    /// The number of all allocations by the recorder's own count; null if the recorder did not count them.
    pub exact_allocations: Option<u64>,
    /// The size in bytes below which blocks were sampled; 0 if none were.
    pub sample_threshold_bytes: u64,
    /// The mean number of bytes between two samples; 0 if it was adjusted during the recording.
    pub sample_mean_bytes: u64,
    /// The number of bytes that were added to the size of each small block when samples were selected.
    pub sample_block_bytes: u64,
    /// The share of the threads' CPU time that recording was allowed to use; 0 if there was no such budget.
    pub budget: f64,
    /// The way in which small blocks were sampled; null if unknown.
    pub sampling: Option<Sampling>,
    /// Because small blocks are sampled, a row with less than this many bytes in small blocks has a chance of at least
    /// 5 % of having no sample at all and so being missing; 0 if every block was recorded.
    pub detection_limit_bytes: u64,
    /// The rules that determined the lines of the first rows; null without `--explain`.
    pub explained: Option<Vec<Explanation>>,
}

/// A row in a ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RowAnswer {
    /// The row's operator, module path, phase or other key; for a stack, the function that requested the memory.
    #[serde(flatten)]
    pub name: NameAnswer,
    /// The requested bytes of the row's blocks. In a ranking at a given moment, only blocks that were live then count.
    pub requested_bytes: u64,
    /// The margin of error of the row's requested bytes; null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The row's part of the requested bytes that were live at the device's peak.
    pub live_at_peak_bytes: u64,
    /// The margin of error of the row's bytes that were live at the peak; null if they are exact.
    pub live_at_peak_bytes_error: Option<ErrorAnswer>,
    /// The number of the row's blocks. In a ranking at a given moment, only blocks that were live then count.
    pub count: u64,
    /// The margin of error of the number of blocks; null if it is exact.
    pub count_error: Option<ErrorAnswer>,
    /// The size in bytes of the largest block in the row.
    pub largest_bytes: u64,
    /// The row's share of all requested bytes, from 0 to 1.
    pub share: f64,
    /// Whether the row's requested bytes, count and share include sampled blocks.
    pub estimated: bool,
    /// Whether the row's bytes that were live at the peak include sampled blocks.
    pub live_at_peak_estimated: bool,
    /// The stack, innermost frame first; null in rankings without stacks.
    pub stack: Option<Vec<FrameAnswer>>,
    /// The number of distinct stacks in the row; null in rankings without stacks.
    pub stacks: Option<usize>,
    /// The innermost line in the user's code in the row's stack; null if there is none, and in rankings without stacks.
    pub mine: Option<FrameAnswer>,
    /// The function that the line `mine` called, or null if that line allocated the memory itself. If `mine` is null, this
    /// is the function that stands for the row's stack instead. Null in rankings without stacks.
    pub calls: Option<FrameAnswer>,
    /// The line that freed the row's blocks, if they were allocated before the trace started, at an unknown line; null
    /// otherwise.
    pub freed_at: Option<FrameAnswer>,
    /// The age of the row's blocks, and the row's growth, at a given moment.
    #[serde(flatten)]
    pub trend: TrendAnswer,
    /// The functions that the row's line called, with their bytes, up to ten; null in rankings that are not by line.
    pub called: Option<Vec<PartAnswer>>,
    /// The total number of functions that the row's line called; null in rankings that are not by line.
    pub called_in_all: Option<usize>,
    /// The program's own texts for the row's blocks (PyTorch's `user_metadata`), up to ten; null if there are none.
    pub user_metadata: Option<Vec<TextAnswer>>,
    /// The total number of the program's own texts for the row's blocks; null if there are none.
    pub user_metadata_in_all: Option<usize>,
}

/// The part of a row's blocks that was allocated below one function. The bytes and the count are null if the row
/// includes sampled blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PartAnswer {
    /// The function's name; null if there is none.
    pub name: Option<String>,
    /// The requested bytes of the blocks allocated below the function; null if the row includes sampled blocks.
    pub requested_bytes: Option<u64>,
    /// The number of blocks allocated below the function; null if the row includes sampled blocks.
    pub count: Option<u64>,
}

/// The part of a row's blocks to which the program attached the same text (PyTorch's `user_metadata`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TextAnswer {
    /// The text that the program attached to the blocks.
    pub text: String,
    /// The requested bytes of the blocks with this text.
    pub requested_bytes: u64,
    /// The number of blocks with this text.
    pub count: u64,
}

/// Sums over all rows of a ranking, including those beyond the limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TotalsAnswer {
    /// The requested bytes of all rows.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes of all rows; null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// The number of blocks in all rows.
    pub count: u64,
    /// The margin of error of the number of blocks in all rows; null if it is exact.
    pub count_error: Option<ErrorAnswer>,
    /// Whether the sums include sampled blocks.
    pub estimated: bool,
}

/// Requested bytes by the source of their operator's name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct AttributionAnswer {
    /// Bytes allocated inside operator scopes.
    pub annotated_bytes: u64,
    /// The margin of error of the bytes allocated inside operator scopes; null if they are exact.
    pub annotated_bytes_error: Option<ErrorAnswer>,
    /// Bytes whose operator is named by a stack frame.
    pub named_from_stacks_bytes: u64,
    /// The margin of error of the bytes whose operator is named by a stack frame; null if they are exact.
    pub named_from_stacks_bytes_error: Option<ErrorAnswer>,
    /// Bytes whose operator is named by neither a scope nor the stack.
    pub unattributed_bytes: u64,
    /// The margin of error of the bytes whose operator is named by neither a scope nor the stack; null if they are
    /// exact.
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
    pub(crate) fn device_answer(&self) -> DeviceAnswer {
        DeviceAnswer::new(self.device, &self.device_name, self.kind)
    }

    /// Returns the rows for JSON.
    pub(crate) fn row_answers(&self) -> Vec<RowAnswer> {
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

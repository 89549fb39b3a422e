//! The ranking: which operators, modules, stacks or phases made the memory of a device. The command `memtrack top`
//! and programs call [`top`]; `rows` computes, `text` and `json` print.
//!
//! Bytes are requested ones, as a trace's sizes have them; what an allocator rounds them up to is the segments' to say.
//! Bytes and counts are those of the events that the recording holds; live bytes at the peak also know blocks from before.
//! Where sampled blocks went in, a row is an estimate and marked so; but what scopes allocated the recorder has summed up
//! exactly, and rows that scopes alone decide are those sums.

mod exact;
mod folded;
pub(super) mod frames;
mod groups;
mod json;
pub(super) mod rows;
pub(super) mod stacks;
mod text;
mod texts;

pub(super) use folded::folded;

use super::attribution::AttributedBytes;
use super::estimate::Estimate;
use super::moment::Moment;
use super::patterns::Patterns;
use super::peak::Peak;
use memtrack_model::Frame;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{DeviceStatistics, Folded, Sampling, ScopeKind, Snapshot};
use memtrack_symbols::Symbolizer;

/// What the rows of a ranking are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// Operators by full name: `{module path}.{phase}.{operator}`, all calls in one row.
    Operator,
    /// Module paths.
    Module,
    /// Stacks, without their leading frames that say nothing.
    Stack,
    /// Phases.
    Phase,
    /// The first frame of the stack that says something: function, file and line.
    Frame,
    /// The file of that frame.
    File,
    /// What a profile says the memory was for.
    Category,
    /// Streams, by their raw handles.
    Stream,
    /// Memory pools.
    Pool,
    /// The program's own texts: PyTorch's `user_metadata`.
    Metadata,
    /// Blocks of equal size.
    Size,
}

impl By {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Operator,
        Self::Module,
        Self::Stack,
        Self::Phase,
        Self::Frame,
        Self::File,
        Self::Category,
        Self::Stream,
        Self::Pool,
        Self::Metadata,
        Self::Size,
    ];

    /// What the rows are, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Operator => "Operators, all calls in one row",
            Self::Module => "Module paths",
            Self::Stack => "Stacks",
            Self::Phase => "forward, backward, optimizer",
            Self::Frame => "Lines that asked for the memory: Python's where there are any",
            Self::File => "Files of those lines",
            Self::Category => "What a profile says the memory was for",
            Self::Stream => "Streams",
            Self::Pool => "Memory pools",
            Self::Metadata => "What the program said of itself (user_metadata)",
            Self::Size => "Blocks of equal size",
        }
    }

    /// What suits a snapshot: operators where it has their scopes, else stacks.
    pub fn suited_to(snapshot: &Snapshot) -> Self {
        let has_operators = snapshot
            .scopes
            .rows
            .iter()
            .skip(1)
            .any(|scope| scope.kind == ScopeKind::Operator && !scope.name.is_empty());
        if has_operators { Self::Operator } else { Self::Stack }
    }

    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Module => "module",
            Self::Stack => "stack",
            Self::Phase => "phase",
            Self::Frame => "frame",
            Self::File => "file",
            Self::Category => "category",
            Self::Stream => "stream",
            Self::Pool => "pool",
            Self::Metadata => "metadata",
            Self::Size => "size",
        }
    }
}

/// How to rank.
#[derive(Clone, Debug)]
pub struct TopOptions {
    /// Rows to show at most.
    pub limit: usize,
    /// What names operators where no scope does.
    pub patterns: Patterns,
    /// Count the blocks that are live at a moment instead of all that were allocated.
    pub at: Option<Moment>,
}

impl Default for TopOptions {
    /// 20 rows, and the built-in patterns.
    fn default() -> Self {
        Self { limit: 20, patterns: Patterns::default(), at: None }
    }
}

/// One row of a ranking.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopRow {
    /// The operator, module path or phase; for a stack its first function that says something.
    pub name: String,
    /// Bytes requested; with [`TopOptions::at`], those of them that were live at that moment.
    pub allocated_bytes: u64,
    /// Of the bytes live at the device's peak, those of this row.
    pub live_at_peak_bytes: u64,
    /// Blocks allocated.
    pub count: u64,
    /// Size of the largest block allocated, in bytes.
    pub largest_bytes: u64,
    /// Its share of all bytes requested, 0 to 1.
    pub share: f64,
    /// Whether bytes, count and share are estimates: sampled blocks went in. Where scopes alone decide the row, its bytes and
    /// count are the recorder's exact sums.
    pub estimated: bool,
    /// Whether the bytes live at the peak are an estimate.
    pub live_estimated: bool,
    /// How far the numbers may be off.
    pub errors: RowErrors,
    /// The stack, innermost first, from the first function that says something; empty for other rankings.
    pub stack: Vec<StackLine>,
    /// What the program said of these blocks (PyTorch's `user_metadata`), the largest first and at most ten texts; only of
    /// stacks at a moment, and not what memtrack writes there itself.
    pub texts: Vec<RowText>,
    /// How many texts there are in all.
    pub texts_in_all: usize,
}

/// What the program said of blocks of a [`TopRow`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowText {
    /// The text.
    pub text: String,
    /// Requested bytes of those blocks.
    pub bytes: u64,
    /// How many blocks.
    pub blocks: u64,
}

/// How far the numbers of a [`TopRow`] may be off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowErrors {
    /// Of the bytes allocated.
    pub allocated_bytes: Estimate,
    /// Of the bytes live at the peak.
    pub live_at_peak_bytes: Estimate,
    /// Of the blocks allocated.
    pub count: Estimate,
}

/// One function of a row's stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackLine {
    /// The return address; functions inlined into one another share it.
    pub address: u64,
    /// The function.
    pub frame: Frame,
}

/// Sums over all rows, also those beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Bytes requested.
    pub allocated_bytes: u64,
    /// Blocks allocated.
    pub count: u64,
    /// Whether they are estimates: sampled blocks went in, or small ones may have been passed over.
    pub estimated: bool,
    /// How far the bytes may be off.
    pub bytes_error: Estimate,
    /// How far the count may be off.
    pub count_error: Estimate,
}

/// The ranking of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct TopReport {
    /// The device's ordinal in reports.
    pub device: u16,
    /// What it is called: `device 0`, `host heap` or `pinned host memory`.
    pub device_name: String,
    /// Whether it is the host heap.
    pub is_host: bool,
    /// Whether it is pinned host memory.
    pub is_pinned: bool,
    /// What the rows are.
    pub by: By,
    /// The moment whose live blocks are counted; none when all allocations are.
    pub at: Option<Moment>,
    /// The first rows, by requested bytes descending; of equal ones by what was live at the peak, then by name.
    pub rows: Vec<TopRow>,
    /// How many rows there are without the limit.
    pub rows_in_all: usize,
    /// Sums over all rows.
    pub totals: Totals,
    /// Whether any of the numbers rests on samples, or small blocks may have gone by unrecorded.
    pub estimated: bool,
    /// Of the blocks allocated those that were not recorded one by one: their bytes and their number. They are exact, and
    /// all that samples stand for; none where nobody counted.
    pub sampled: Option<(u64, u64)>,
    /// Whether the sums of scopes are the recorder's own, exact ones of the whole session, also of events that were dropped:
    /// then rows that scopes alone decide, the totals and the annotated bytes are exact.
    pub exact_scopes: bool,
    /// Of when the sums of scopes are, in seconds from the start, where the program ended without ending its recording;
    /// `None` where it was ended, or where there are none.
    pub sums_at_seconds: Option<f64>,
    /// How often a scope was entered that did not fit the recorder's tables ([`ScopeSums::folded`](memtrack_model::snapshot::ScopeSums::folded)).
    pub folded_scopes: u64,
    /// What else did not fit the recorder's tables.
    pub folded: Folded,
    /// Bytes by how their operator was found.
    pub attribution: AttributedBytes,
    /// How far those may be off: annotated, named from stacks, unattributed.
    pub attribution_errors: [Estimate; 3],
    /// The peak.
    pub peak: Peak,
    /// The phase and the operator of the event that reached the peak; none when it was reached before.
    pub peak_place: Option<(String, String)>,
    /// The recorder's counts of the device, among them dropped events; exact where they are
    /// [`counted`](DeviceStatistics::counted).
    pub statistics: DeviceStatistics,
    /// Below this size in bytes host blocks were sampled; 0: none were.
    pub sample_threshold_bytes: u64,
    /// The mean gap in bytes between two samples where it was fixed.
    pub sample_mean_bytes: u64,
    /// What each sampled block counted for in bytes beside its own when it was picked.
    pub sample_block_bytes: u64,
    /// The share of the threads' processor time that recording might take; 0: there was no such budget.
    pub budget: f64,
    /// How the host's small blocks were sampled, where that is known.
    pub sampling: Option<Sampling>,
    /// Who allocated less than so many bytes in small blocks may have left no sample, and then no row (in 5 of 100
    /// cases); 0 where every block was recorded.
    pub detection_limit_bytes: u64,
}

/// Ranks who allocated on `device`, naming stacks from the binaries at their recorded paths. [`top_with`] takes
/// binaries from elsewhere.
pub fn top(snapshot: &Snapshot, by: By, device: DeviceId, options: &TopOptions) -> TopReport {
    top_with(snapshot, &mut Symbolizer::of(snapshot), by, device, options)
}

/// [`top`] with the names of `symbols`.
pub fn top_with(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    by: By,
    device: DeviceId,
    options: &TopOptions,
) -> TopReport {
    rows::rank(snapshot, symbols, by, device, options)
}

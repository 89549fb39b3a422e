//! Ranks the operators, modules, stacks or phases that allocated a device's memory. The `memtrack top` command and
//! programs call [`top`].
//!
//! Bytes are requested bytes, like the sizes in a trace; the allocator's rounding is known only from the segments.
//! Bytes and counts cover the events in the recording, while the bytes live at the peak include older blocks. A row
//! that includes sampled blocks is an estimate and is marked as such. The recorder keeps exact sums of the memory that
//! was allocated in each scope, and rows that depend on scopes alone use these sums.
//!
//! **Why `forward.op` and not PyTorch's `.forward.op`?** Rankings drop the root's leading dot; the tracker keeps it,
//! because PyTorch reads the tracker's files.

mod age;
#[cfg(test)]
mod coverage;
mod default_grouping;
mod exact;
mod fold;
mod folded;
pub(crate) mod frames;
pub(super) mod groups;
pub(super) mod json;
pub(crate) mod rows;
#[cfg(test)]
mod sampled_peak;
pub(super) mod stacks;
mod text;
mod texts;

pub use age::{Age, RowAge, RowGrowth, TrendAnswer};
pub(super) use folded::folded_notes;
pub use json::{AttributionAnswer, PartAnswer, RankingAnswer, RowAnswer, TextAnswer, TotalsAnswer};
pub(super) use rows::strip_types;
pub(crate) use text::NOT_ENDED_NOTE;

use memtrack_blocks::estimate::Estimate;
use memtrack_blocks::moment::Moment;
use memtrack_blocks::peak::Peak;
use memtrack_frames::attribution::AttributedBytes;
use memtrack_frames::framework_operators::Patterns;
use memtrack_frames::ownership::{Rules, StackOwner};
use memtrack_model::Frame;
use memtrack_model::event::{DeviceId, DeviceKind};
use memtrack_model::snapshot::{DeviceStatistics, Folded, Sampling, Snapshot};
use memtrack_symbols::Symbolizer;

/// The key by which a ranking groups memory into rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum By {
    /// Operators by full name: `{module path}.{phase}.{operator}`, all calls in one row.
    Operator,
    /// Module paths.
    Module,
    /// Lines in the user's code, each with the function that it called ([`ownership`](memtrack_frames::ownership)).
    Line,
    /// Stacks, without the leading frames that only perform an allocation.
    Stack,
    /// Python stacks, without C++ frames.
    Python,
    /// Phases.
    Phase,
    /// The frame that requested the memory: function, file and line.
    Frame,
    /// The file of the frame that requested the memory.
    File,
    /// The category from a profile.
    Category,
    /// Streams, by their raw handles.
    Stream,
    /// Memory pools.
    Pool,
    /// The text that the program attached to its allocations (PyTorch's `user_metadata`).
    Metadata,
    /// Blocks of the same size.
    Size,
}

impl By {
    /// All groupings.
    pub const ALL: [Self; 13] = [
        Self::Operator,
        Self::Module,
        Self::Line,
        Self::Stack,
        Self::Python,
        Self::Phase,
        Self::Frame,
        Self::File,
        Self::Category,
        Self::Stream,
        Self::Pool,
        Self::Metadata,
        Self::Size,
    ];

    /// Returns a short description of the rows.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Operator => "Operators, all calls in one row",
            Self::Module => "Module paths",
            Self::Line => "Lines of your own code, with what each called",
            Self::Stack => "Stacks",
            Self::Python => "Python stacks, without C++ frames",
            Self::Phase => "forward, backward, optimizer",
            Self::Frame => "Lines that requested the memory: Python's where there are any",
            Self::File => "Files of those lines",
            Self::Category => "Memory categories from a profile",
            Self::Stream => "Streams",
            Self::Pool => "Memory pools",
            Self::Metadata => "The program's own metadata (user_metadata)",
            Self::Size => "Blocks of equal size",
        }
    }

    /// Returns the name of the grouping in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Module => "module",
            Self::Line => "line",
            Self::Stack => "stack",
            Self::Python => "python",
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

/// Options for a ranking.
///
/// ```
/// # use memtrack_report::top::TopOptions;
/// let options = TopOptions::new().limit(5);
/// # assert_eq!((options.limit, options.at), (5, None));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopOptions {
    /// The maximum number of rows.
    pub limit: usize,
    /// The patterns that name operators when no scope does.
    pub patterns: Patterns,
    /// The moment at which live blocks are counted, instead of all allocations.
    pub at: Option<Moment>,
    /// The rules that decide which frames are the user's.
    pub rules: Rules,
    /// Whether stacks that look the same share a row. If so, frames below a Python line, frames that only forward a
    /// call, and type arguments are ignored; if not, all stacks are distinguished.
    pub fold_hidden: bool,
    /// Whether the rows will be matched with those of another file. If so, ages are omitted, and blocks of unknown
    /// origin share a row, because the stack that frees such a block depends on when the trace ends.
    pub(super) for_matching: bool,
}

impl Default for TopOptions {
    /// Returns options for 20 rows, with the built-in patterns and rules, and with stacks folded.
    fn default() -> Self {
        let (patterns, rules) = (Patterns::default(), Rules::new());
        Self { limit: 20, patterns, at: None, rules, fold_hidden: true, for_matching: false }
    }
}

impl TopOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of rows.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the patterns that name operators when no scope does.
    #[must_use]
    pub fn patterns(mut self, patterns: Patterns) -> Self {
        self.patterns = patterns;
        self
    }

    /// Sets the rules that decide which frames are the user's.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets whether stacks that look the same share a row.
    #[must_use]
    pub fn fold_hidden(mut self, fold: bool) -> Self {
        self.fold_hidden = fold;
        self
    }

    /// Prepares the rows for being matched with those of another file.
    #[cfg(feature = "compare")]
    pub(super) fn prepare_for_matching(mut self) -> Self {
        self.for_matching = true;
        self
    }

    /// Counts the blocks that are live at the given moment instead of all allocations; `None` means all allocations.
    #[must_use]
    pub fn at(mut self, moment: impl Into<Option<Moment>>) -> Self {
        self.at = moment.into();
        self
    }
}

/// A row in a ranking.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TopRow {
    /// The operator, module path or phase; for a stack, the function that requested the memory.
    pub name: String,
    /// Requested bytes; with [`TopOptions::at`], the bytes that were live at that moment.
    pub allocated_bytes: u64,
    /// The row's part of the bytes that were live at the device's peak.
    pub live_at_peak_bytes: u64,
    /// The number of blocks allocated.
    pub count: u64,
    /// The size in bytes of the largest block that was counted.
    pub largest_bytes: u64,
    /// The row's share of all requested bytes, from 0 to 1.
    pub share: f64,
    /// Whether the bytes, count and share are estimates because they include sampled blocks. If the row depends on
    /// scopes alone, its bytes and count are the recorder's exact sums.
    pub estimated: bool,
    /// Whether the bytes live at the peak are an estimate.
    pub live_estimated: bool,
    /// The errors of the numbers.
    pub errors: RowErrors,
    /// The stack, innermost frame first, starting at the function that requested the memory; empty in rankings without
    /// stacks.
    pub stack: Vec<StackLine>,
    /// The number of distinct stacks in the row. [`Self::stack`] is the first of them or, for a line, the first one
    /// through the function that allocated most of the line's bytes. 0 in rankings without stacks.
    pub stacks: usize,
    /// The row's line in the user's code, and the function that it called. In a ranking by line, this is the function
    /// with most of the line's bytes, or no function if the line itself allocated most. Empty except in rankings by
    /// line, stack and Python.
    pub owned: StackOwner,
    /// The functions that the line called, with their bytes, largest first, at most ten. Empty except in rankings by
    /// line.
    pub called: Vec<RowText>,
    /// The total number of functions that the line called.
    pub called_in_all: usize,
    /// If the blocks were allocated before the trace started, at an unknown line, the line that freed them.
    pub freed_at: Option<Frame>,
    /// The age of the row's blocks at the moment [`TopOptions::at`]. `None` if there is no such moment, if no time
    /// passed between the device's first event and that moment, or if no age is known.
    pub age: Option<RowAge>,
    /// The row's growth in bytes from halfway between the device's first event and the moment [`TopOptions::at`] until
    /// that moment. `None` if there is no such moment or if the memory that was live halfway is unknown.
    pub growth: Option<RowGrowth>,
    /// The program's own texts for the row's blocks (PyTorch's `user_metadata`), largest first, at most ten. Only for
    /// stacks at a given moment, and without memtrack's own texts.
    pub texts: Vec<RowText>,
    /// The total number of the program's texts for the row's blocks, including any beyond the ten in [`Self::texts`].
    pub texts_in_all: usize,
}

/// A part of a [`TopRow`]'s blocks: those with one of the program's texts, or those allocated below one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowText {
    /// The program's text, or the function.
    pub text: String,
    /// The requested bytes of those blocks.
    pub bytes: u64,
    /// The number of those blocks.
    pub blocks: u64,
}

/// The errors of the numbers in a [`TopRow`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RowErrors {
    /// The error of the allocated bytes.
    pub allocated_bytes: Estimate,
    /// The error of the bytes live at the peak.
    pub live_at_peak_bytes: Estimate,
    /// The error of the number of blocks.
    pub count: Estimate,
}

/// A function in a row's stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackLine {
    /// The return address; functions inlined into one another share it.
    pub address: u64,
    /// The function, with its file and line if they are known.
    pub frame: Frame,
}

/// Sums over all rows, including those beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// The requested bytes of all rows.
    pub allocated_bytes: u64,
    /// The number of blocks allocated.
    pub count: u64,
    /// Whether the sums are estimates because they include sampled blocks or small blocks may be missing.
    pub estimated: bool,
    /// The error of the bytes.
    pub bytes_error: Estimate,
    /// The error of the count.
    pub count_error: Estimate,
}

impl Totals {
    fn exact(allocated_bytes: u64, count: u64) -> Self {
        Self {
            allocated_bytes,
            count,
            estimated: false,
            bytes_error: Estimate::exact(allocated_bytes as f64),
            count_error: Estimate::exact(count as f64),
        }
    }
}

/// The ranking of one device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TopReport {
    /// The device's ordinal in reports.
    pub device: u16,
    /// The device's name, which is `device 0`, `host heap`, `mapped memory` or `pinned host memory`.
    pub device_name: String,
    /// The kind of the memory.
    pub kind: DeviceKind,
    /// The key by which memory is grouped into rows.
    pub by: By,
    /// The moment at which live blocks are counted; `None` if all allocations are counted.
    pub at: Option<Moment>,
    /// The time from which growth is measured, which is halfway between the device's first event and [`Self::at`], in
    /// seconds since [`Peak::since`]; `None` if rows have no growth.
    pub growth_since_seconds: Option<f64>,
    /// The reason why allocations have no stacks, with the option that would record them.
    pub missing_stacks: Option<String>,
    /// Whether the file lacks times, so that no ages are known.
    pub lacks_times: bool,
    /// The first rows, sorted by requested bytes in descending order. Rows with equal bytes are sorted by their live
    /// bytes at the peak, then by name.
    pub rows: Vec<TopRow>,
    /// The total number of rows, including those beyond the limit.
    pub rows_in_all: usize,
    /// Sums over all rows.
    pub totals: Totals,
    /// Whether any of the numbers is based on samples or small blocks may be missing.
    pub estimated: bool,
    /// Whether the recording is complete. If not, the numbers for all allocations, for the end and for the peak are
    /// lower bounds.
    pub complete: bool,
    /// The bytes and the number of allocated blocks that were not recorded individually but are represented by samples;
    /// both numbers are exact. `None` if the recorder did not count these blocks.
    pub sampled: Option<(u64, u64)>,
    /// Whether the sums of scopes are the recorder's own, which are exact for the whole session, including dropped
    /// events. If so, the totals, the annotated bytes and the rows that depend on scopes alone are exact.
    pub exact_scopes: bool,
    /// When the sums of scopes were taken, in seconds since the start, if the program exited without finishing its
    /// recording; `None` if the recording was finished or there are no such sums.
    pub sums_at_seconds: Option<f64>,
    /// The number of entries into scopes that did not fit in the recorder's tables
    /// ([`ScopeSums::folded`](memtrack_model::snapshot::ScopeSums::folded)).
    pub folded_scopes: u64,
    /// Counts of everything else that did not fit in the recorder's tables.
    pub folded: Folded,
    /// Bytes by the source of their operator's name.
    pub attribution: AttributedBytes,
    /// The errors of [`Self::attribution`], in the order annotated, named from stacks, unattributed.
    pub attribution_errors: [Estimate; 3],
    /// The peak of the device's live bytes.
    pub peak: Peak,
    /// The phase and operator of the event that reached the peak; `None` if the peak was before the first event.
    pub peak_phase_and_operator: Option<(String, String)>,
    /// Whether the addresses in stacks are the program's; PyTorch's files number their frames instead.
    pub has_addresses: bool,
    /// The recorder's counts for the device, including dropped events; they are exact if
    /// [`counted`](DeviceStatistics::counted) is set.
    pub statistics: DeviceStatistics,
    /// The size in bytes below which host blocks were sampled; 0 if none were.
    pub sample_threshold_bytes: u64,
    /// The mean number of bytes between samples, if that mean was constant throughout the recording; 0 if it was
    /// adjusted.
    pub sample_mean_bytes: u64,
    /// The number of bytes that were added to the size of each small block when samples were selected.
    pub sample_block_bytes: u64,
    /// The share of the threads' CPU time that recording was allowed to use; 0 if there was no such budget.
    pub budget: f64,
    /// How the host's small blocks were sampled, if known.
    pub sampling: Option<Sampling>,
    /// Rows with fewer bytes than this in small blocks may have no sample and so be missing (with 5 % probability); 0
    /// if every block was recorded.
    pub detection_limit_bytes: u64,
}

/// Ranks the memory that was allocated on `device`, using names from the binaries at their recorded paths. To use
/// binaries from elsewhere, call [`top_with`].
pub fn top(snapshot: &Snapshot, by: By, device: DeviceId, options: &TopOptions) -> TopReport {
    top_with(snapshot, &mut Symbolizer::of(snapshot), by, device, options)
}

/// Ranks memory like [`top`], using the function names that `symbols` finds.
pub fn top_with(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    by: By,
    device: DeviceId,
    options: &TopOptions,
) -> TopReport {
    rows::rank(snapshot, symbols, by, device, options)
}

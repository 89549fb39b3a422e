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
mod json;
mod rank;
pub(crate) mod rows;
#[cfg(test)]
mod sampled_peak;
pub(super) mod stacks;
mod text;
mod texts;

pub use age::{Age, RowAge, RowGrowth, Trend};
pub(super) use folded::folded_notes;
pub(super) use rows::strip_types;
pub(crate) use text::NOT_ENDED_NOTE;

use memtrack_blocks::estimate::Estimate;
use memtrack_blocks::moment::Moment;
use memtrack_blocks::peak::Peak;
use memtrack_frames::framework_operators::Patterns;
use memtrack_frames::ownership::{Explanation, Rules, StackOwner};
use memtrack_model::Frame;
#[cfg(feature = "schema")]
use memtrack_model::answer::NameAnswer;
use memtrack_model::answer::{
    DeviceAnswer, FrameAnswer, serialize_as_name, serialize_only_name, serialize_unless_empty,
};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::{DeviceStatistics, Folded, Sampling, Snapshot};
use memtrack_symbols::Symbolizer;
use serde::Serialize;

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
    /// Tasks of the program, all of one place in one row.
    Task,
    /// Memory pools.
    Pool,
    /// The text that the program attached to its allocations (PyTorch's `user_metadata`).
    Metadata,
    /// Blocks of the same size.
    Size,
}

impl By {
    /// All groupings.
    pub const ALL: [Self; 14] = [
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
        Self::Task,
        Self::Pool,
        Self::Metadata,
        Self::Size,
    ];

    /// Returns the name in lower case, the heading of the column, the title of the table, and a short description of the rows.
    const fn words(self) -> [&'static str; 4] {
        match self {
            Self::Operator => ["operator", "Operator", "operators", "Operators, all calls in one row"],
            Self::Module => ["module", "Module", "modules", "Module paths"],
            Self::Line => {
                ["line", "Line", "lines of your own code", "Lines of your own code, with what each called"]
            }
            Self::Stack => ["stack", "Stack", "stacks", "Stacks"],
            Self::Python => ["python", "Python stack", "Python stacks", "Python stacks, without C++ frames"],
            Self::Phase => ["phase", "Phase", "phases", "forward, backward, optimizer"],
            Self::Frame => {
                ["frame", "Frame", "frames", "Lines that requested the memory: Python's where there are any"]
            }
            Self::File => ["file", "File", "files", "Files of those lines"],
            Self::Category => ["category", "Category", "categories", "Memory categories from a profile"],
            Self::Stream => ["stream", "Stream", "streams", "Streams"],
            Self::Task => {
                ["task", "Task", "tasks", "Tasks of the program, all that one line makes in one row"]
            }
            Self::Pool => ["pool", "Pool", "pools", "Memory pools"],
            Self::Metadata => {
                ["metadata", "Text", "metadata texts", "The program's own metadata (user_metadata)"]
            }
            Self::Size => ["size", "Size", "sizes", "Blocks of equal size"],
        }
    }

    /// Returns the name of the grouping in lower case.
    pub const fn name(self) -> &'static str {
        self.words()[0]
    }

    /// Returns a short description of the rows.
    pub const fn about(self) -> &'static str {
        self.words()[3]
    }
}

memtrack_model::serialize_as!(By => &'static str: |by| by.name());

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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TopRow {
    /// The row's operator, module path, phase or other key; for a stack, the function that requested the memory.
    #[serde(flatten, serialize_with = "serialize_as_name")]
    #[cfg_attr(feature = "schema", schemars(with = "NameAnswer"))]
    pub name: String,
    /// The requested bytes of the row's blocks. In a ranking at a given moment, only blocks that were live then count.
    #[serde(rename = "requested_bytes")]
    pub allocated_bytes: u64,
    /// The margin of error of the row's requested bytes; null if they are exact. If the row depends on scopes alone, they are
    /// the recorder's exact sums.
    #[serde(rename = "requested_bytes_error")]
    pub allocated_error: Estimate,
    /// The row's part of the requested bytes that were live at the device's peak.
    pub live_at_peak_bytes: u64,
    /// The margin of error of the row's bytes that were live at the peak; null if they are exact.
    #[serde(rename = "live_at_peak_bytes_error")]
    pub live_at_peak_error: Estimate,
    /// The number of the row's blocks. In a ranking at a given moment, only blocks that were live then count.
    pub count: u64,
    /// The margin of error of the number of blocks; null if it is exact.
    pub count_error: Estimate,
    /// The size in bytes of the largest block in the row.
    pub largest_bytes: u64,
    /// The row's share of all requested bytes, from 0 to 1.
    pub share: f64,
    /// Whether the row's requested bytes, count and share include sampled blocks.
    pub estimated: bool,
    /// Whether the row's bytes that were live at the peak include sampled blocks.
    #[serde(rename = "live_at_peak_estimated")]
    pub live_estimated: bool,
    /// The stack, innermost frame first, starting at the function that requested the memory; null in rankings without stacks.
    #[serde(serialize_with = "serialize_unless_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<StackLine>>"))]
    pub stack: Vec<StackLine>,
    /// The number of distinct stacks in the row, of which `stack` is the first or, for a line, the first one through the
    /// function that allocated most of the line's bytes; null in rankings without stacks.
    #[serde(serialize_with = "serialize_unless_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<usize>"))]
    pub stacks: usize,
    /// The row's line in the user's code, and the function that it called. In a ranking by line, this is the function
    /// with most of the line's bytes, or no function if the line itself allocated most.
    #[serde(flatten)]
    pub owned: StackOwner,
    /// The line that freed the row's blocks, if they were allocated before the trace started, at an unknown line; null
    /// otherwise.
    pub freed_at: Option<Frame>,
    /// The age of the row's blocks, and the row's growth, at a given moment.
    #[serde(flatten)]
    pub trend: Trend,
    /// The functions that the row's line called, with their bytes, largest first, up to ten; null in rankings that are not by
    /// line.
    pub called: Option<Vec<CalledPart>>,
    /// The total number of functions that the row's line called; null in rankings that are not by line.
    pub called_in_all: Option<usize>,
    /// The program's own texts for the row's blocks (PyTorch's `user_metadata`), largest first, up to ten; null if there are none.
    /// Only for stacks at a given moment, and without memtrack's own texts.
    #[serde(rename = "user_metadata", serialize_with = "serialize_unless_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<RowText>>"))]
    pub texts: Vec<RowText>,
    /// The total number of the program's own texts for the row's blocks; null if there are none.
    #[serde(rename = "user_metadata_in_all", serialize_with = "serialize_unless_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<usize>"))]
    pub texts_in_all: usize,
}

/// The part of a row's blocks that was allocated below one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CalledPart {
    /// The function's name; null if there is none.
    #[serde(serialize_with = "serialize_only_name")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub name: String,
    /// The requested bytes of the blocks allocated below the function; null if the row includes sampled blocks.
    pub requested_bytes: Option<u64>,
    /// The number of blocks allocated below the function; null if the row includes sampled blocks.
    pub count: Option<u64>,
}

/// The part of a row's blocks to which the program attached the same text (PyTorch's `user_metadata`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RowText {
    /// The text that the program attached to the blocks.
    pub text: String,
    /// The requested bytes of the blocks with this text.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// The number of blocks with this text.
    #[serde(rename = "count")]
    pub blocks: u64,
}

/// A function in a row's stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackLine {
    /// The return address; functions inlined into one another share it. 0 for PyTorch's files, which number their frames instead.
    pub address: u64,
    /// The function, with its file and line if they are known.
    pub frame: Frame,
}

memtrack_model::serialize_as!(StackLine => FrameAnswer: |line| FrameAnswer::from(&line.frame).at(line.address));

/// Sums over all rows of a ranking, including those beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Totals {
    /// The requested bytes of all rows.
    #[serde(rename = "requested_bytes")]
    pub allocated_bytes: u64,
    /// The margin of error of the requested bytes of all rows; null if they are exact.
    #[serde(rename = "requested_bytes_error")]
    pub bytes_error: Estimate,
    /// The number of blocks in all rows.
    pub count: u64,
    /// The margin of error of the number of blocks in all rows; null if it is exact.
    pub count_error: Estimate,
    /// Whether the sums include sampled blocks, or small blocks may be missing.
    pub estimated: bool,
}

impl Totals {
    fn exact(allocated_bytes: u64, count: u64) -> Self {
        Self {
            allocated_bytes,
            bytes_error: Estimate::exact(allocated_bytes as f64),
            count,
            count_error: Estimate::exact(count as f64),
            estimated: false,
        }
    }
}

/// Requested bytes by the source of their operator's name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Attribution {
    /// Bytes allocated inside operator scopes.
    #[serde(rename = "annotated_bytes")]
    pub annotated: u64,
    /// The margin of error of the bytes allocated inside operator scopes; null if they are exact.
    #[serde(rename = "annotated_bytes_error")]
    pub annotated_error: Estimate,
    /// Bytes whose operator is named by a stack frame.
    #[serde(rename = "named_from_stacks_bytes")]
    pub named_from_stacks: u64,
    /// The margin of error of the bytes whose operator is named by a stack frame; null if they are exact.
    #[serde(rename = "named_from_stacks_bytes_error")]
    pub named_from_stacks_error: Estimate,
    /// Bytes whose operator is named by neither a scope nor the stack.
    #[serde(rename = "unattributed_bytes")]
    pub unattributed: u64,
    /// The margin of error of the bytes whose operator is named by neither a scope nor the stack; null if they are
    /// exact.
    #[serde(rename = "unattributed_bytes_error")]
    pub unattributed_error: Estimate,
}

/// The ranking of one device's memory, as `memtrack top --json` prints it: bytes are requested bytes, shares are from 0 to 1, and
/// unknown numbers are null.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TopReport {
    /// The device.
    pub device: DeviceAnswer,
    /// The key by which memory is grouped into rows, named as for `--by`.
    pub by: By,
    /// The moment at which live blocks are counted; null if all allocations are counted.
    pub at: Option<Moment>,
    /// The time from which growth is measured, in seconds since the same origin as the peak's. It is halfway between
    /// the device's first event and the moment `at`. Null if rows have no growth.
    pub growth_since_seconds: Option<f64>,
    /// The reason why allocations have no stacks, with the option that would record them.
    #[serde(skip)]
    pub missing_stacks: Option<String>,
    /// Whether the file lacks times, so that no ages are known.
    #[serde(skip)]
    pub lacks_times: bool,
    /// The rows with the most requested bytes, largest first. Rows with equal bytes are sorted by their live bytes at the peak,
    /// then by name.
    pub rows: Vec<TopRow>,
    /// The total number of rows, including those beyond the limit.
    pub rows_in_all: usize,
    /// Sums over all rows, including those beyond the limit.
    pub totals: Totals,
    /// Whether any of the numbers is based on samples or small blocks may be missing.
    #[serde(skip)]
    pub estimated: bool,
    /// Whether the recording is complete. If not, the numbers for all allocations, for the end and for the peak are
    /// lower bounds.
    pub complete: bool,
    /// The bytes and the number of allocated blocks that were not recorded individually but are represented by samples;
    /// both numbers are exact. `None` if the recorder did not count these blocks.
    #[serde(skip)]
    pub sampled: Option<(u64, u64)>,
    /// Whether the sums of scopes are the recorder's own, which are exact for the whole session, including dropped
    /// events. If so, the totals, the annotated bytes and the rows that depend on scopes alone are exact.
    pub exact_scopes: bool,
    /// The time at which the recorder's sums of scopes were taken, in seconds since the start; null unless the program
    /// exited without finishing its recording.
    pub sums_at_seconds: Option<f64>,
    /// The number of entries into scopes that did not fit in the recorder's tables.
    pub folded_scopes: u64,
    /// Counts of everything else that did not fit in the recorder's tables.
    pub folded: Folded,
    /// Bytes by the source of their operator's name.
    pub attribution: Attribution,
    /// The moment when the most bytes were live on the device.
    pub peak: Peak,
    /// The recorder's counts for the device, including dropped events; they are exact if
    /// [`counted`](DeviceStatistics::counted) is set.
    #[serde(flatten, serialize_with = "json::serialize_counts")]
    #[cfg_attr(feature = "schema", schemars(with = "json::Counts"))]
    pub statistics: DeviceStatistics,
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
    /// The rules that determined the lines of the first rows; null without `--explain`. [`top`] does not look for them.
    pub explained: Option<Vec<Explanation>>,
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
    rank::rank(snapshot, symbols, by, device, options)
}

//! The command's own output around the answers of memtrack-core.

use memtrack_core::analysis::at_peak::AtPeakAnswer;
use memtrack_core::analysis::diff::DiffAnswer;
use memtrack_core::analysis::holds::WhoHoldsAnswer;
use memtrack_core::analysis::leaks;
use memtrack_core::analysis::live_flame::FlameDevice;
use memtrack_core::analysis::summary::DeviceSummaryAnswer;
use memtrack_core::analysis::top::RankingAnswer;
use memtrack_core::answer::WideAnswer;
use memtrack_core::profile::reading::CategoryReading;
use memtrack_core::profile::report::TracedCategoriesAnswer;
use memtrack_core::tracker::Summary;
use memtrack_core::viz::UsageAnswer;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// The leaks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LeaksAnswer {
    /// Whether something leaks: memory that grows, or a cycle that nothing else holds.
    pub(crate) leaking: bool,
    /// The leaks of the recordings or snapshots; null where only graphs of references were given.
    pub(crate) memory: Option<leaks::LeaksAnswer>,
    /// The findings in the graphs of references, each as `memtrack cycles --json` prints them.
    pub(crate) cycles: Vec<Value>,
}

pub(crate) use memtrack_core::allocator::replay::ReplayAnswer;
pub(crate) use memtrack_core::analysis::check::FoundAnswer;
pub(crate) use memtrack_core::analysis::ranks::RanksAnswer;
#[cfg(feature = "gpus")]
pub(crate) use memtrack_core::cuda::GpusAnswer;
pub(crate) use memtrack_core::cycles::json::CyclesAnswer;
pub(crate) use memtrack_core::profile::advice::AdviceAnswer;
pub(crate) use memtrack_core::profile::modules::ModulesAnswer;
pub(crate) use memtrack_core::viz::{StatsAnswer, TraceAnswer};

/// The categories of memory.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CategoriesAnswer {
    /// The devices; for an operator trace one.
    pub(crate) devices: Vec<DeviceCategories>,
}

/// The categories of a device's memory.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum DeviceCategories {
    /// Those of an operator trace.
    Traced(TracedCategoriesAnswer),
    /// Those inferred from stacks and the order of events.
    Read(Box<CategoryReading>),
}

/// The segments that two snapshots do not share.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompareAnswer {
    /// The segments that only the earlier one has.
    pub(crate) only_before: CompareSideAnswer,
    /// The segments that only the later one has.
    pub(crate) only_after: CompareSideAnswer,
}

/// Segments that only one snapshot has.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompareSideAnswer {
    /// The bytes of their blocks.
    pub(crate) total_bytes: u64,
    /// The segments.
    pub(crate) segments: Vec<SegmentAnswer>,
    /// Their contents.
    pub(crate) usage: Vec<UsageAnswer>,
}

/// A segment.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SegmentAnswer {
    /// Its address, as `0x…`.
    pub(crate) address: String,
    /// Its bytes.
    pub(crate) total_bytes: WideAnswer,
}

/// The changes between two files.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FilesDiffAnswer {
    /// The earlier file.
    pub(crate) before: DiffFileAnswer,
    /// The later file.
    pub(crate) after: DiffFileAnswer,
    /// The changes.
    #[serde(flatten)]
    pub(crate) diff: DiffAnswer,
}

/// One of two files.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DiffFileAnswer {
    /// Its path; `-` for standard input.
    pub(crate) path: String,
    /// Whether it is PyTorch's own.
    pub(crate) is_pytorch: bool,
    /// Whether it is complete.
    pub(crate) complete: bool,
}

/// The memory that was live at the peak of each device.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PeakAnswer {
    /// The devices.
    pub(crate) devices: Vec<AtPeakAnswer>,
}

/// The settings that were tried.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DevicesReplayAnswer {
    /// The devices.
    pub(crate) devices: Vec<ReplayAnswer>,
}

/// The end of a program, and its recordings.
#[cfg(unix)]
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunAnswer {
    /// The program.
    pub(crate) program: String,
    /// The id of its process.
    pub(crate) process: u32,
    /// Its exit code; null where a signal ended it.
    pub(crate) exit_code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Its recording; null where it allocated no recorded memory.
    pub(crate) recording: Option<RecordingAnswer>,
    /// The recordings of programs that its process executed later.
    pub(crate) became: Vec<RecordingAnswer>,
    /// The recordings of its child processes.
    pub(crate) children: Vec<RecordingAnswer>,
}

/// A recording.
#[cfg(unix)]
#[derive(Serialize, JsonSchema)]
pub(crate) struct RecordingAnswer {
    /// Its path.
    pub(crate) path: String,
    /// Its size; null where the file is gone.
    pub(crate) size_bytes: Option<u64>,
}

/// The memory of each device.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SummaryAnswer {
    /// The devices.
    pub(crate) devices: Vec<DeviceSummaryAnswer>,
    /// The holders of memory in a recording that was not ended, or that ran out of memory; null for others.
    pub(crate) who_holds: Option<WhoHoldsAnswer>,
}

/// The ranking of allocations, or of the memory live at a moment.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TopAnswer {
    /// Whether the file is complete: a recording that was cut off is not.
    pub(crate) complete: bool,
    /// The devices.
    pub(crate) devices: Vec<RankingAnswer>,
}

/// The operators with which memory grew most.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TrackerAnswer {
    /// The number of times that the allocator had to empty its cache and try again.
    pub(crate) num_alloc_retries: u64,
    /// The number of operators requested.
    pub(crate) top: usize,
    /// The operators, largest growth first.
    pub(crate) operators: Vec<OperatorGrowthAnswer>,
    /// The number of earlier operators, which the file does not list one by one.
    pub(crate) folded_operators: u64,
}

/// The growth of memory with one operator.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OperatorGrowthAnswer {
    /// The operator's full name.
    pub(crate) operator: String,
    /// Allocated memory after the operator minus that before it; negative when it freed memory. Null where the file has
    /// no number. Files have MiB as floating-point numbers, from which this is rounded.
    pub(crate) growth_bytes: Option<i64>,
}

impl TrackerAnswer {
    /// Converts a summary.
    pub(crate) fn of(summary: &Summary) -> Self {
        let bytes = |mib: f64| (mib * f64::from(1 << 20)).round();
        Self {
            num_alloc_retries: summary.num_alloc_retries,
            top: summary.top,
            operators: summary
                .operators
                .iter()
                .map(|growth| OperatorGrowthAnswer {
                    operator: growth.operator.as_ref().to_owned(),
                    growth_bytes: growth.growth_mib.is_finite().then(|| bytes(growth.growth_mib) as i64),
                })
                .collect(),
            folded_operators: summary.folded_operators,
        }
    }
}

/// The contents of the segments.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UsageRowsAnswer {
    /// Bytes of each stream or segment, state, part and stack.
    pub(crate) rows: Vec<UsageAnswer>,
}

/// The contents of the segments, or with `--at` the memory live at a moment.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MemoryAnswer {
    /// Bytes of each stream, state, part and stack; null with `--at`.
    pub(crate) rows: Option<Vec<UsageAnswer>>,
    /// The memory live at the moment; null without `--at`.
    pub(crate) devices: Option<Vec<FlameDevice>>,
}

/// A file that was written.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WrittenAnswer {
    /// Its path; null for standard output.
    pub(crate) path: Option<String>,
    /// Its format: the suffix of such files.
    pub(crate) format: String,
    /// Its size; null for standard output.
    pub(crate) size_bytes: Option<u64>,
}

/// A data set that ranks were written to.
#[cfg(feature = "parquet")]
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct ExportAnswer {
    /// Its folder.
    pub(crate) folder: String,
    /// The ranks that were written.
    pub(crate) ranks: Vec<ExportedRank>,
    /// The files that were not written, and the reasons.
    pub(crate) failed: Vec<UnexportedFile>,
}

/// A rank that was written to a data set.
#[cfg(feature = "parquet")]
#[derive(Serialize, JsonSchema)]
pub(crate) struct ExportedRank {
    /// The file that it was made from.
    pub(crate) file: String,
    /// The job.
    pub(crate) job: String,
    /// The rank.
    pub(crate) rank: u64,
    /// Its folder.
    pub(crate) folder: String,
    /// Whether it replaced an earlier export.
    pub(crate) replaced: bool,
    /// Bytes of its files.
    pub(crate) size_bytes: u64,
}

/// A file that was not exported.
#[cfg(feature = "parquet")]
#[derive(Serialize, JsonSchema)]
pub(crate) struct UnexportedFile {
    /// The file.
    pub(crate) file: String,
    /// The reason.
    pub(crate) error: String,
}

/// The result of a query.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SqlAnswer {
    /// The columns, in order.
    pub(crate) columns: Vec<SqlColumn>,
    /// The rows, each an object with all columns by their names.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub(crate) rows: SqlRows,
}

/// A column of the rows.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SqlColumn {
    /// Its name; of two columns with the same name the second is called `NAME_2`.
    pub(crate) name: String,
    /// The SQL name of its type: `BIGINT`, `DOUBLE`, `STRING`, …
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

#[cfg(feature = "sql")]
use crate::sql::SqlRows;
/// Builds without `sql` have no rows.
#[cfg(not(feature = "sql"))]
type SqlRows = ();

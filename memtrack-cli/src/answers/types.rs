//! What the command itself puts around the answers of memtrack-core.

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

/// What leaks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LeaksAnswer {
    /// Whether something leaks: memory that grows, or a cycle that nothing else holds.
    pub(crate) leaking: bool,
    /// What the recordings or snapshots say; null where only graphs of references were given.
    pub(crate) memory: Option<leaks::LeaksAnswer>,
    /// What the graphs of references say, each as `memtrack cycles --json` does.
    pub(crate) cycles: Vec<Value>,
}

pub(crate) use memtrack_core::allocator::replay::ReplayAnswer;
pub(crate) use memtrack_core::analysis::limits::FoundAnswer;
pub(crate) use memtrack_core::analysis::ranks::RanksAnswer;
#[cfg(feature = "gpus")]
pub(crate) use memtrack_core::cuda::GpusAnswer;
pub(crate) use memtrack_core::cycles::json::CyclesAnswer;
pub(crate) use memtrack_core::profile::advice::AdviceAnswer;
pub(crate) use memtrack_core::profile::modules::ModulesAnswer;
pub(crate) use memtrack_core::viz::{StatsAnswer, TraceAnswer};

/// What memory is for.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CategoriesAnswer {
    /// The devices; of an operator trace one.
    pub(crate) devices: Vec<DeviceCategories>,
}

/// What a device's memory is for.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum DeviceCategories {
    /// By an operator trace.
    Traced(TracedCategoriesAnswer),
    /// As far as stacks and the order of events tell.
    Read(Box<CategoryReading>),
}

/// The segments that two snapshots do not share.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompareAnswer {
    /// What only the earlier has.
    pub(crate) only_before: CompareSideAnswer,
    /// What only the later has.
    pub(crate) only_after: CompareSideAnswer,
}

/// Segments that only one snapshot has.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompareSideAnswer {
    /// The bytes of their blocks.
    pub(crate) total_bytes: u64,
    /// The segments.
    pub(crate) segments: Vec<SegmentAnswer>,
    /// What they hold.
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

/// What changed between two files.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FilesDiffAnswer {
    /// The earlier file.
    pub(crate) before: DiffFileAnswer,
    /// The later file.
    pub(crate) after: DiffFileAnswer,
    /// What changed.
    #[serde(flatten)]
    pub(crate) diff: DiffAnswer,
}

/// One of two files.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DiffFileAnswer {
    /// Where it is; `-`: it came from standard input.
    pub(crate) path: String,
    /// Whether it is PyTorch's own.
    pub(crate) is_pytorch: bool,
    /// Whether it has its end.
    pub(crate) complete: bool,
}

/// What was live at the peak of each device.
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

/// How a program ended, and what was recorded of it.
#[cfg(unix)]
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunAnswer {
    /// The program.
    pub(crate) program: String,
    /// The number of its process.
    pub(crate) process: u32,
    /// Its exit code; null where a signal ended it.
    pub(crate) exit_code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Its recording; null where it took no memory that is recorded.
    pub(crate) recording: Option<RecordingAnswer>,
    /// The recordings of programs that its process became.
    pub(crate) became: Vec<RecordingAnswer>,
    /// The recordings of its child processes.
    pub(crate) children: Vec<RecordingAnswer>,
}

/// A recording.
#[cfg(unix)]
#[derive(Serialize, JsonSchema)]
pub(crate) struct RecordingAnswer {
    /// Where it is.
    pub(crate) path: String,
    /// Its size; null where it is gone.
    pub(crate) size_bytes: Option<u64>,
}

/// What each device holds.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SummaryAnswer {
    /// The devices.
    pub(crate) devices: Vec<DeviceSummaryAnswer>,
    /// Who held the memory of a recording that was not ended, or that ran out of memory; null of others.
    pub(crate) who_holds: Option<WhoHoldsAnswer>,
}

/// Who allocated, or what is live at a moment.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TopAnswer {
    /// Whether the file has its end: a recording that was cut off has not.
    pub(crate) complete: bool,
    /// The devices.
    pub(crate) devices: Vec<RankingAnswer>,
}

/// The operators with which memory grew most.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TrackerAnswer {
    /// How often the allocator had to empty its cache and try again.
    pub(crate) num_alloc_retries: u64,
    /// How many operators were asked for.
    pub(crate) top: usize,
    /// The operators, largest growth first.
    pub(crate) operators: Vec<OperatorGrowthAnswer>,
    /// How many operators ran before those that the file kept one by one.
    pub(crate) folded_operators: u64,
}

/// How much memory grew with one operator.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OperatorGrowthAnswer {
    /// The operator's full name.
    pub(crate) operator: String,
    /// Allocated memory after it less before it; negative when it gave memory back. Null where the file has no number. Files
    /// have MiB as floating-point numbers, which this is rounded from.
    pub(crate) growth_bytes: Option<i64>,
}

impl TrackerAnswer {
    /// Of a summary.
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

/// What the segments hold.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UsageRowsAnswer {
    /// Bytes of each stream or segment, state, part and stack.
    pub(crate) rows: Vec<UsageAnswer>,
}

/// What the segments hold, or with `--at` what was live at a moment.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MemoryAnswer {
    /// Bytes of each stream, state, part and stack; null with `--at`.
    pub(crate) rows: Option<Vec<UsageAnswer>>,
    /// What was live at the moment; null without `--at`.
    pub(crate) devices: Option<Vec<FlameDevice>>,
}

/// A file that was written.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WrittenAnswer {
    /// Where it is; null: it went to standard output.
    pub(crate) path: Option<String>,
    /// Its format: what the names of such files end with.
    pub(crate) format: String,
    /// Its size; null where it went to standard output.
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
    /// The files that were not, and why.
    pub(crate) failed: Vec<UnexportedFile>,
}

/// A rank that was written to a data set.
#[cfg(feature = "parquet")]
#[derive(Serialize, JsonSchema)]
pub(crate) struct ExportedRank {
    /// The file that it was made of.
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
    /// Why.
    pub(crate) error: String,
}

/// The rows that answer a query.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SqlAnswer {
    /// The columns, in their order.
    pub(crate) columns: Vec<SqlColumn>,
    /// The rows, each an object with all columns by their names.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub(crate) rows: SqlRows,
}

/// A column of the rows.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SqlColumn {
    /// Its name; of two columns of one name the second is called `NAME_2`.
    pub(crate) name: String,
    /// What SQL calls its type: `BIGINT`, `DOUBLE`, `STRING`, …
    #[serde(rename = "type")]
    pub(crate) kind: String,
}

#[cfg(feature = "sql")]
use crate::sql::SqlRows;
/// Nobody makes any.
#[cfg(not(feature = "sql"))]
type SqlRows = ();

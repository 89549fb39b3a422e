//! The JSON output types that only the command has. Those from memtrack-core are re-exported.

use memtrack_core::allocator::replay::ReplayReport;
use memtrack_core::analysis::at_peak::AtPeak;
use memtrack_core::analysis::diff::DiffAnswer;
use memtrack_core::analysis::holds::WhoHolds;
use memtrack_core::analysis::leaks;
use memtrack_core::analysis::live_flame::FlameDevice;
use memtrack_core::analysis::process_memory::ProcessMemoryAnswer;
use memtrack_core::analysis::summary::DeviceSummaryAnswer;
use memtrack_core::analysis::top::TopReport;
use memtrack_core::answer::WideAnswer;
use memtrack_core::profile::reading::CategoryReading;
use memtrack_core::profile::report::CategoryReport;
use memtrack_core::tracker::Summary;
use memtrack_core::viz::UsageAnswer;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// The findings of `memtrack leaks`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LeaksAnswer {
    /// Whether something leaks: memory that grows, or a cycle that nothing else holds.
    pub(crate) leaking: bool,
    /// The leaks in the recordings or snapshots; null if only reference graphs were given.
    pub(crate) memory: Option<leaks::LeaksAnswer>,
    /// The findings in the reference graphs, each as `memtrack cycles --json` prints it.
    pub(crate) cycles: Vec<Value>,
}

pub(crate) use memtrack_core::analysis::check::FoundAnswer;
pub(crate) use memtrack_core::analysis::processes::ProcessesAnswer;
pub(crate) use memtrack_core::analysis::ranks::RanksAnswer;
#[cfg(feature = "gpus")]
pub(crate) use memtrack_core::cuda::Gpus;
pub(crate) use memtrack_core::cycles::json::CyclesAnswer;
pub(crate) use memtrack_core::profile::advice::Advice;
pub(crate) use memtrack_core::profile::modules::ModuleReport;
pub(crate) use memtrack_core::viz::{StatsAnswer, TraceAnswer};

/// The categories of memory.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CategoriesAnswer {
    /// The devices; only one for an operator trace.
    pub(crate) devices: Vec<DeviceCategories>,
}

/// The categories of a device's memory.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum DeviceCategories {
    /// The categories of an operator trace.
    Traced(CategoryReport),
    /// Categories inferred from stacks and the order of events.
    Read(Box<CategoryReading>),
}

/// The segments that two snapshots do not share.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompareAnswer {
    /// The segments that only the earlier snapshot has.
    pub(crate) only_before: CompareSideAnswer,
    /// The segments that only the later snapshot has.
    pub(crate) only_after: CompareSideAnswer,
}

/// Segments that only one snapshot has.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CompareSideAnswer {
    /// The total number of bytes in the blocks of these segments.
    pub(crate) total_bytes: u64,
    /// The segments, each with its address and size.
    pub(crate) segments: Vec<SegmentAnswer>,
    /// The bytes in these segments by state, part and stack.
    pub(crate) usage: Vec<UsageAnswer>,
}

/// A segment of an allocator's memory.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SegmentAnswer {
    /// The segment's address, as `0x…`.
    pub(crate) address: String,
    /// The segment's size in bytes.
    pub(crate) total_bytes: WideAnswer,
}

/// The changes between two files.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FilesDiffAnswer {
    /// The earlier file.
    pub(crate) before: DiffFileAnswer,
    /// The later file.
    pub(crate) after: DiffFileAnswer,
    /// The changes from the earlier file to the later one.
    #[serde(flatten)]
    pub(crate) diff: DiffAnswer,
}

/// One of the two compared files.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DiffFileAnswer {
    /// The file's path; `-` for standard input.
    pub(crate) path: String,
    /// Whether the file is a PyTorch snapshot.
    pub(crate) is_pytorch: bool,
    /// Whether the file is complete; false for a recording that was cut off.
    pub(crate) complete: bool,
}

/// The memory that was live at the peak of each device.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PeakAnswer {
    /// The devices, each with the memory that was live at its peak.
    pub(crate) devices: Vec<AtPeak>,
}

/// The replays of each device's requests with other allocator settings.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DevicesReplayAnswer {
    /// The devices, each with the replays of its requests.
    pub(crate) devices: Vec<ReplayReport>,
}

/// The exit status of a program, and the recording of its process and its child processes.
#[cfg(unix)]
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunAnswer {
    /// The program's name.
    pub(crate) program: String,
    /// The id of the program's process.
    pub(crate) process: u32,
    /// The exit code; null if a signal ended the process, or if it is not known (`--exec` before Linux 6.15).
    pub(crate) exit_code: Option<i32>,
    /// The signal that ended the process; null if it exited.
    pub(crate) signal: Option<i32>,
    /// The recording; null if nothing was recorded.
    pub(crate) recording: Option<RecordingAnswer>,
    /// The number of recorded processes, which `memtrack processes` lists.
    pub(crate) processes: usize,
    /// The id of the process that reports describe by default; null if nothing was recorded.
    pub(crate) main_process: Option<u32>,
}

/// A recording.
#[cfg(unix)]
#[derive(Serialize, JsonSchema)]
pub(crate) struct RecordingAnswer {
    /// The recording's path.
    pub(crate) path: String,
    /// The recording's size in bytes; null if the file no longer exists.
    pub(crate) size_bytes: Option<u64>,
}

/// The memory of each device.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SummaryAnswer {
    /// The host memory of the process as a whole; null if the file has none.
    pub(crate) process: Option<ProcessMemoryAnswer>,
    /// The devices.
    pub(crate) devices: Vec<DeviceSummaryAnswer>,
    /// What held the memory, if the recording was cut off or the program ran out of memory; null otherwise.
    pub(crate) who_holds: Option<WhoHolds>,
}

/// The ranking of allocations, or of the memory live at a moment.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TopAnswer {
    /// Whether the file is complete; false for a recording that was cut off.
    pub(crate) complete: bool,
    /// The devices, each with its ranking.
    pub(crate) devices: Vec<TopReport>,
}

/// The operators during which memory grew most.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TrackerAnswer {
    /// The number of times the allocator had to empty its cache and try again.
    pub(crate) num_alloc_retries: u64,
    /// The maximum number of operators to list, as requested.
    pub(crate) top: usize,
    /// The operators, largest growth first.
    pub(crate) operators: Vec<OperatorGrowthAnswer>,
    /// The number of earlier operators, which the file does not list individually.
    pub(crate) folded_operators: u64,
}

/// The growth of memory during one operator.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OperatorGrowthAnswer {
    /// The operator's full name.
    pub(crate) operator: String,
    /// The allocated memory after the operator minus the allocated memory before it, in bytes, rounded from the
    /// floating-point MiB in the file. Negative if the operator freed memory; null if the file has no number.
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
    /// The bytes for each combination of stream or segment, state, part and stack.
    pub(crate) rows: Vec<UsageAnswer>,
}

/// The contents of the segments, or with `--at` the memory live at a moment.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MemoryAnswer {
    /// The bytes for each combination of stream, state, part and stack; null with `--at`.
    pub(crate) rows: Option<Vec<UsageAnswer>>,
    /// The devices, each with the memory that was live at the moment given by `--at`; null without `--at`.
    pub(crate) devices: Option<Vec<FlameDevice>>,
}

/// A file that was written.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WrittenAnswer {
    /// The file's path; null for standard output.
    pub(crate) path: Option<String>,
    /// The file's format, as a file name suffix.
    pub(crate) format: String,
    /// The file's size in bytes; null for standard output.
    pub(crate) size_bytes: Option<u64>,
}

/// A data set that ranks were written to.
#[cfg(feature = "parquet")]
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct ExportAnswer {
    /// The folder of the data set.
    pub(crate) folder: String,
    /// The ranks that were written.
    pub(crate) ranks: Vec<ExportedRank>,
    /// The files that were not exported, and why.
    pub(crate) failed: Vec<UnexportedFile>,
}

/// A rank that was written to a data set.
#[cfg(feature = "parquet")]
#[derive(Serialize, JsonSchema)]
pub(crate) struct ExportedRank {
    /// The file that the rank was read from.
    pub(crate) file: String,
    /// The name of the job that the rank belongs to.
    pub(crate) job: String,
    /// The number of the rank.
    pub(crate) rank: u64,
    /// The folder that the rank was written to.
    pub(crate) folder: String,
    /// Whether this export replaced an earlier export of the rank.
    pub(crate) replaced: bool,
    /// The total size of the rank's files in bytes.
    pub(crate) size_bytes: u64,
}

/// A file that was not exported.
#[cfg(feature = "parquet")]
#[derive(Serialize, JsonSchema)]
pub(crate) struct UnexportedFile {
    /// The path of the file.
    pub(crate) file: String,
    /// Why the file was not exported.
    pub(crate) error: String,
}

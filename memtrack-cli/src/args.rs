//! The command line: its verbs, and the groups of arguments that several of them share. To add a verb, add a variant of
//! [`Command`], a struct of arguments beside it, and a file in `commands/`.

mod advice;
mod allocator;
mod analysis;
mod completions;
mod cycles;
#[cfg(feature = "parquet")]
mod dataset;
pub(crate) mod device;
mod diff;
mod export;
mod leaks;
mod memory;
mod ownership;
mod page;
mod processes;
mod profile;
mod rank;
mod ranks;
#[cfg(unix)]
mod run;
mod schema;
mod scrub;
mod viz;

use crate::sizes::parse_bytes;
use clap::{Args, Parser, Subcommand};
use memtrack_core::analysis::layout::DEFAULT_FRAMES;
use memtrack_core::exports::EXPORTS;
use memtrack_core::snapshot::recording::{ProcessChoice, ReadReport};
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use advice::{AdviseArgs, ModulesArgs};
pub(crate) use allocator::{ReplayArgs, SimulateArgs};
pub(crate) use analysis::{CheckArgs, PeakArgs, PeakOf, SummaryArgs};
pub(crate) use completions::{CompletionsArgs, ManArgs};
pub(crate) use cycles::CyclesArgs;
#[cfg(feature = "parquet")]
pub(crate) use dataset::ExportArgs;
pub(crate) use diff::DiffArgs;
pub(crate) use export::ExportScriptArgs;
pub(crate) use leaks::LeaksArgs;
pub(crate) use memory::MemoryArgs;
pub(crate) use ownership::{OwnershipArgs, RulesArgs};
pub(crate) use page::{PageArgs, TracePlotArgs, ViewPageArgs};
pub(crate) use processes::ProcessesArgs;
pub(crate) use profile::{AtMoment, CategoriesArgs, TimelineArgs, TraceArgs};
pub(crate) use rank::{At, RankArgs};
pub(crate) use ranks::RanksArgs;
#[cfg(unix)]
pub(crate) use run::{RunArgs, SnapshotOn};
pub(crate) use schema::SchemaArgs;
pub(crate) use scrub::ScrubArgs;
pub(crate) use viz::{CompareArgs, UsageArgs, ViewArgs};

/// Where did my device memory go?
#[derive(Debug, Parser)]
#[command(
    name = "memtrack",
    version,
    about,
    after_help = "\
Examples:
  memtrack run -- python3 train.py                   record a program's CUDA memory
  memtrack run --host -- ./server                    record its heap too
  memtrack summary snapshot.pickle                   one page about a PyTorch snapshot, or about a recording
  memtrack peak snapshot.pickle                      everything that was live at the peak
  memtrack top train.memtrack                        who allocated, in a recording
  memtrack diff before.pickle after.pickle           which of two is worse, and why
  memtrack leaks server.memtrack                     what grows and is never freed
  memtrack view snapshot.pickle -o page.html         look at it in the browser
  memtrack tracker stats.pickle -o figures.html      PyTorch's MemoryTracker summary, and its figures

Exit codes: 0 success, 1 a limit of `check` is exceeded or something leaks, 2 wrong usage, 3 unreadable input or unwritable output."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The command line if its verb is `run`.
#[cfg(unix)]
#[derive(Debug, Parser)]
#[command(name = "memtrack", version)]
struct RunCli {
    #[command(subcommand)]
    command: RunCommand,
}

/// The verb `run`, as in [`Command`].
#[cfg(unix)]
#[derive(Debug, Subcommand)]
enum RunCommand {
    /// Record any program, unchanged: the CUDA memory it allocates, and with --host its heap, which needs no GPU
    Run(RunArgs),
}

impl Cli {
    /// Parses a command line, which starts with the program's name.
    ///
    /// `run` is parsed without the other verbs: defining all their arguments takes a third of a millisecond, which would delay the
    /// program.
    ///
    /// # Errors
    /// Fails when the command line is invalid, or asks for help or the version.
    pub(crate) fn parse_line(arguments: &[OsString]) -> Result<Self, clap::Error> {
        #[cfg(unix)]
        if arguments.get(1).is_some_and(|verb| verb == "run") {
            let RunCommand::Run(run) = RunCli::try_parse_from(arguments)?.command;
            return Ok(Self { command: Command::Run(run) });
        }
        Self::try_parse_from(arguments)
    }
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Find what would lower the peak, and by how much: memory obtained early, freed late, idle, or worth recomputing
    Advise(AdviseArgs),
    /// Write a snapshot or recording in another format: .pickle, .json or .memtrack, or for pprof, speedscope and other tools
    Convert(ConvertArgs),
    /// Show what a training run's memory is for: parameters, gradients, activations and more
    Categories(CategoriesArgs),
    /// Fail if a recording or snapshot exceeds limits for its peak, leaks or fragmentation: for CI
    Check(CheckArgs),
    /// Show which segments two snapshots do not share, in PyTorch's text format; `diff` shows what grew and why
    Compare(CompareArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
    /// Show which Rust or Python references keep memory alive: the cycles, what each holds, and which reference to make weak
    Cycles(CyclesArgs),
    /// Show what changed between two snapshots or recordings: which lines, modules or operators grew, shrank, are new or gone
    Diff(DiffArgs),
    /// Write snapshots as a data set of Parquet files with a folder for each rank: for DuckDB, Spark and other engines
    #[cfg(feature = "parquet")]
    Export(ExportArgs),
    /// Print the Python script that turns a PyTorch profile into an operator trace
    #[command(alias = "export_script")]
    ExportScript(ExportScriptArgs),
    /// Show the machine's NVIDIA devices: used and free memory, pools, processes (needs the NVIDIA driver)
    #[cfg(feature = "gpus")]
    Gpus(GpusArgs),
    /// Find what leaks: which lines grow from period to period and are never freed, or what each step left behind
    Leaks(LeaksArgs),
    /// Write the manual: one man page per command
    Man(ManArgs),
    /// Draw what each stream holds, or what was live at a moment, as a flame graph, or print the folded lines
    Memory(MemoryArgs),
    /// Show a model's memory module by module: before and after its forward and backward pass, and at their peak
    Modules(ModulesArgs),
    /// List everything that was live at the peak, by stack, largest first
    Peak(PeakArgs),
    /// List the processes of a run that `memtrack run` recorded: the peak of each and of all together, and how they ended
    Processes(ProcessesArgs),
    /// Show a profile's memory over time by category, as one HTML page (PyTorch's verb)
    #[command(alias = "profile_plot", after_help = page::PLOT_HELP)]
    ProfilePlot(PageArgs),
    /// Compare the ranks of a job: which holds more than the others, why, and how far they drift apart from step to step
    Ranks(RanksArgs),
    /// Run the recorded requests with other settings of PyTorch's allocator, without a GPU, and rank the settings
    Replay(ReplayArgs),
    /// Record any program, unchanged: the CUDA memory it allocates, and with --host its heap, which needs no GPU
    #[cfg(unix)]
    Run(RunArgs),
    /// Print the JSON Schema of a verb's --json output, or list the verbs that have one
    Schema(SchemaArgs),
    /// Draw what each segment holds, as a flame graph, or print PyTorch's folded lines
    Segments(UsageArgs),
    /// Show the allocator's events, segments and blocks, as one HTML page (PyTorch's verb)
    #[command(alias = "segment_plot", after_help = page::PLOT_HELP)]
    SegmentPlot(PageArgs),
    /// Run a sequence of requests through PyTorch's caching allocator, on a simulated GPU
    Simulate(SimulateArgs),
    /// Show how full the segments are, in PyTorch's text format
    #[command(after_help = viz::STATS_HELP)]
    Stats(ViewArgs),
    /// Summarise each device, including the host heap: what it holds, its peak, and what to look at first
    Summary(SummaryArgs),
    /// Write what memory was for over time: PyTorch's exports, a picture, a page or a snapshot, from an operator trace
    Timeline(TimelineArgs),
    /// Rank who allocated, on the heap or a device, or what is live at a moment, by line, stack, operator and more
    Top(RankArgs),
    /// List every event, in PyTorch's text format
    #[command(after_help = viz::TRACE_HELP)]
    Trace(ViewArgs),
    /// Show what was allocated over time, as one HTML page (PyTorch's verb)
    #[command(alias = "trace_plot", after_help = page::PLOT_HELP)]
    TracePlot(TracePlotArgs),
    /// Show which operators made memory grow, from the statistics of PyTorch's MemoryTracker
    Tracker(TrackerArgs),
    /// View a snapshot or recording in the browser: one HTML page that needs no network
    View(ViewPageArgs),
}

/// Arguments for `memtrack tracker`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack tracker stats.pickle                      the 20 operators that added most memory
  memtrack tracker stats.pickle --top 5 --json       the same as JSON, five of them
  memtrack tracker stats.pickle -o figures.html      and the figures, as one page
  memtrack tracker stats.pickle -o figures.svg       figures-all.svg, -allocated, -active, -reserved
  cat stats.pickle | memtrack tracker -              from a pipe

Reads the files of PyTorch's MemoryTracker.save_stats and of memtrack, compressed or not; nothing in them is ever executed.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct TrackerArgs {
    /// The statistics file; `-` reads standard input
    #[arg(value_name = "STATS.pickle")]
    pub(crate) stats: PathBuf,
    #[command(flatten)]
    pub(crate) top: TopArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments for `memtrack gpus`.
#[cfg(feature = "gpus")]
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack gpus                                      each device: used, free, pools, processes
  memtrack gpus --json                               the same as JSON

Queries NVML, which uses no device memory, or without it the CUDA driver, which needs a context on each device.
Exit codes: 0 success, 2 wrong usage, 3 no driver, or one that does not respond.")]
pub(crate) struct GpusArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Formats the examples and the list of the registry's export formats.
fn format_convert_help() -> String {
    let formats = EXPORTS.iter().filter(|export| export.missing_feature.is_none()).map(|export| {
        let endings: Vec<String> = export.suffixes.iter().map(|suffix| format!(".{suffix}")).collect();
        format!("  {:<13} {:<19} {}\n", export.name, endings.join(" "), export.about)
    });
    format!(
        "\
Examples:
  memtrack convert train.memtrack train.pickle       for pytorch.org/memory_viz
  memtrack convert snapshot.pickle.gz snapshot.json  for scripts
  memtrack convert - small.pickle.zst < big.pickle   from a pipe, packed
  memtrack convert train.memtrack - --to json | jq   to a pipe
  memtrack convert snapshot.pickle end.pb.gz --at end
                                                     for go tool pprof: what is in use at the end
  memtrack convert train.memtrack blocks.csv --device host
                                                     a table of the heap's blocks
  memtrack convert train.memtrack events.parquet     a table of all events, for DuckDB, pandas or Spark
  memtrack convert train.memtrack for-you.pickle --scrub --scrub-key \"$(cat key)\"
                                                     with pseudonyms, for others to read

For other tools:
{}
The output's suffix or --to selects the format; .gz or .zst after it compresses the file. A PyTorch snapshot loses
nothing, unknown keys included; a recording loses what PyTorch's format cannot express. memtrack does not read files for
other tools back; the documentation describes what each contains and how to open it.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.",
        formats.collect::<String>()
    )
}

/// Arguments for `memtrack convert`.
#[derive(Clone, Debug, Args)]
#[command(after_help = format_convert_help())]
pub(crate) struct ConvertArgs {
    /// The recording or PyTorch snapshot; `-` reads standard input
    #[arg(value_name = "IN")]
    pub(crate) file: PathBuf,
    /// The file to write; `-` is standard output
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) written: WrittenArgs,
    /// The format, regardless of the output's name: pickle, json, memtrack or a format from the list below; .gz or .zst after it
    /// compresses the file
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<String>,
    /// For other tools: write the memory live at peak, end, oom (the last) or the event with this number [default: peak]
    #[arg(long, value_name = "MOMENT", value_parser = rank::parse_at, allow_hyphen_values = true)]
    pub(crate) at: Option<At>,
    #[command(flatten)]
    pub(crate) device: device::DeviceArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Replace the output if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

/// Where to find a recording's binaries.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SymbolsArgs {
    /// Also search this folder for binaries, by build id, or use this binary
    #[arg(long = "symbols", value_name = "DIR")]
    pub(crate) places: Vec<PathBuf>,
}

/// The limits of an input, and what is read of it.
#[derive(Clone, Debug, Args)]
pub(crate) struct InputArgs {
    #[command(flatten)]
    pub(crate) size: InputSizeArgs,
    /// In the recording of a run, the process to report on, by id, name or command line [default: the program]; `memtrack processes`
    /// lists them
    #[arg(long, value_name = "PID|NAME")]
    pub(crate) process: Option<String>,
    /// In the recording of a run, report on all processes together, on one clock
    #[arg(long, conflicts_with = "process")]
    pub(crate) all: bool,
    /// The process that the command itself has chosen.
    #[arg(skip)]
    pub(crate) chosen: Option<ProcessChoice>,
}

impl InputArgs {
    /// Returns which processes of a run to read.
    pub(crate) fn process_choice(&self) -> ProcessChoice {
        match (&self.chosen, &self.process) {
            (Some(chosen), _) => chosen.clone(),
            _ if self.all => ProcessChoice::All,
            (_, Some(name)) => ProcessChoice::Named(name.clone()),
            _ => ProcessChoice::Program,
        }
    }

    /// Returns the arguments for reading another run to compare with. They select the process with the same command line. If
    /// the user chose the process by name, that name applies to both runs.
    pub(crate) fn matching(&self, report: Option<&ReadReport>) -> Self {
        let is_by_name = self.process.as_ref().is_some_and(|process| process.parse::<u32>().is_err());
        let report = report.filter(|_| !is_by_name && !self.all);
        let chosen = report.and_then(ReadReport::chosen_process);
        Self { chosen: chosen.map(|row| ProcessChoice::Like(row.short_command_line())), ..self.clone() }
    }
}

/// The maximum size of an input.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct InputSizeArgs {
    /// Refuse inputs that are larger than this once unpacked
    #[arg(long, value_name = "SIZE", default_value = "64GiB", value_parser = parse_bytes)]
    pub(crate) max_input: u64,
}

/// The recording or snapshot that a verb reads.
#[derive(Clone, Debug, Args)]
pub(crate) struct FileArgs {
    /// The recording or PyTorch snapshot; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
}

/// The number of rows that a report shows.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RowsArgs {
    /// How many rows to show; 0 shows all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = parse_count, allow_hyphen_values = true)]
    rows: usize,
}

impl RowsArgs {
    /// Returns the maximum number of rows to show.
    pub(crate) fn limit(self) -> usize {
        if self.rows == 0 { usize::MAX } else { self.rows }
    }
}

/// The number of rows that a tracker's summary shows.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TopArgs {
    /// How many rows to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = parse_count, allow_hyphen_values = true)]
    pub(crate) top: usize,
}

/// Parses a count. The error message describes the expected value.
fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a whole number, 0 or more".into())
}

/// The format of the output on standard output.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FormatArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whether a verb that writes a file prints what it wrote as JSON.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WrittenArgs {
    /// Print what was written as JSON, on standard error if the data goes to standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much of names and stacks the text output shows.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TextArgs {
    /// How many frames of a stack to show, leaving out internal ones; 0 shows all
    #[arg(long, value_name = "N", default_value_t = DEFAULT_FRAMES, value_parser = parse_count, allow_hyphen_values = true)]
    pub(crate) frames: usize,
    /// Do not shorten names; by default, lines are as wide as COLUMNS, else the terminal, else 120 characters
    #[arg(long)]
    pub(crate) wide: bool,
}

/// The output files.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Also write figures; the suffix selects the format: .html, .svg or .png
    #[arg(short, long, value_name = "FIGURES")]
    pub(crate) output: Option<PathBuf>,
    /// Replace output files that exist
    #[arg(long)]
    pub(crate) force: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn pytorch_verb_names_are_accepted() {
        let command = Cli::command();
        for verb in ["stats", "trace", "segments", "memory", "compare"] {
            assert!(command.find_subcommand(verb).is_some(), "{verb}");
        }
        // PyTorch's multi-word names have underscores. memtrack's have hyphens, and accept underscores as aliases.
        for verb in command.get_subcommands().filter(|verb| verb.get_name().contains('-')) {
            let alias = verb.get_name().replace('-', "_");
            assert!(verb.get_all_aliases().any(|known| known == alias), "{alias}");
        }
        command.debug_assert();
    }
}

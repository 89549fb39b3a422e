//! `memtrack export`: writes snapshots as a data set of Parquet files, with a folder for each rank.

use super::prelude::*;
use crate::load::load_on_thread;
use crate::many::{digest_options, expand, read_all};
use crate::scrub::mention_key;
use memtrack_core::analysis::ranks::{DigestOptions, RankDigest, RankName};
use memtrack_core::analysis::top::By;
use memtrack_core::analysis::units::{human_bytes, printable};
use memtrack_core::dataset::{WriteError, WriteOptions, rank_contents, rank_folder, write_rank};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

/// Write snapshots as a data set of Parquet files with a folder for each rank: for DuckDB, Spark and other engines
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack export --parquet memory run/rank*.pickle         every rank a folder: memory/job=run/rank=0, …
  memtrack export --parquet memory --job 17 --rank 3 a.pickle    the file's job and rank, stated
  memtrack export --parquet memory --events rank0.pickle    its events too
  duckdb -c \"SELECT rank, max(peak_bytes) FROM 'memory/job=*/rank=*/devices.parquet' GROUP BY rank\"

Each rank is a folder of Parquet files, which appears as a whole: another rank is another folder, and exporting a file again
replaces its own. The tables are runs, devices, timeline, groups, steps, out_of_memory, live, stacks, frames and events. The
documentation describes their columns, and the repository has queries for DuckDB, Spark and DataFusion. A file that cannot be
read is named, and the others are exported.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct ExportArgs {
    /// Recordings and PyTorch snapshots, one per rank: files, folders and patterns such as 'run/rank*.pickle'
    #[arg(value_name = "FILES", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Search subfolders too
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Write a data set of Parquet files to this folder, or add to it
    #[arg(long, value_name = "DIR", required = true)]
    pub(crate) parquet: PathBuf,
    /// The job of the ranks [default: from the file or its path (job=17), else the name of its folder]
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    /// The file's rank [default: from the file or its path (rank3.pickle, rank=3/); 0 for a single file without one]
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u64>,
    /// Refuse a file without a rank, even a single one; use this when many processes export the same job
    #[arg(long, conflicts_with = "rank")]
    pub(crate) require_rank: bool,
    /// Write every event too, with its stack
    #[arg(long)]
    pub(crate) events: bool,
    /// Number of equal intervals in the timeline
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) bins: u32,
    /// How to group memory at the peak and at the end
    #[arg(long, default_value = "line", value_parser = by_parser())]
    pub(crate) by: By,
    /// What the steps are called: the name of a mark or a profiler range [default: any name that looks like a step]
    #[arg(long, value_name = "NAME")]
    pub(crate) per: Option<String>,
    /// How many files to read at a time [default: the number of cores]
    #[arg(short, long, value_name = "N", value_parser = parse_jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Replace a rank that comes from another file or is damaged
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) patterns: PatternsArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

pub(super) const ANSWER: Answer<ExportAnswer> = Answer::new("export", 1);

/// A data set that ranks were written to.
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
#[derive(Serialize, JsonSchema)]
pub(crate) struct UnexportedFile {
    /// The path of the file.
    pub(crate) file: String,
    /// Why the file was not exported.
    pub(crate) error: String,
}

/// The state shared by the threads, each of which exports files.
struct SharedState<'a> {
    args: &'a ExportArgs,
    options: DigestOptions,
    /// Whether this command exports only one file.
    alone: bool,
    /// For each job and rank, the file that this command exports as that rank.
    claimed: Mutex<HashMap<(String, u64), PathBuf>>,
}

/// The result for one file: the rank that was written, and warnings about the file.
type ExportResult = Result<(ExportedRank, Vec<String>), CliError>;

/// Exports the files in parallel, by default as many at a time as there are cores. If a file fails, the failure is
/// reported and the other files are still exported; the command exits with the code of the first failure.
pub(super) fn run(args: &ExportArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    check_args(args)?;
    let files = expand(&args.files, args.recursive)?;
    if args.rank.is_some() && files.len() > 1 {
        return Err(CliError::Usage("--rank is for one file: each rank has its own".into()));
    }
    let options = digest_options(args.by, args.per.as_deref(), &args.rules, &args.patterns)?;
    let options = options.bins(args.bins as usize);
    let shared = SharedState { args, options, alone: files.len() == 1, claimed: Mutex::default() };
    let mut all: Vec<ExportResult> = read_all(&files, args.jobs, |file| export(file, &shared));
    if shared.alone && all.first().is_some_and(Result::is_err) {
        return all.remove(0).map(|_| Exit::Success);
    }
    let mut answer =
        ExportAnswer { folder: args.parquet.to_string_lossy().into_owned(), ..Default::default() };
    let mut exit = Exit::Success;
    mention_key(&args.scrub, streams);
    for (file, result) in files.iter().zip(all) {
        match result {
            Ok((rank, warnings)) => {
                for line in warnings {
                    streams.note(format_args!("memtrack: warning: {}", printable(&line)));
                }
                if !args.format.json {
                    let size = human_bytes(rank.size_bytes);
                    streams.note(format_args!("wrote {} ({size})", rank.folder));
                }
                answer.ranks.push(rank);
            }
            Err(error) => {
                streams.note(format_args!("memtrack: {error}"));
                if exit == Exit::Success {
                    exit = error.exit_code();
                }
                let file = file.to_string_lossy().into_owned();
                answer.failed.push(UnexportedFile { file, error: error.to_string() });
            }
        }
    }
    if args.format.json {
        ANSWER.print(&answer, streams)?;
    }
    Ok(exit)
}

/// Rejects invalid arguments before any file is read.
fn check_args(args: &ExportArgs) -> Result<(), CliError> {
    check_places(&args.symbols)?;
    if args.job.as_deref() == Some("") {
        return Err(CliError::Usage("--job needs a name".into()));
    }
    check_folder(&args.parquet)
}

fn export(file: &Path, shared: &SharedState<'_>) -> ExportResult {
    let args = shared.args;
    let (mut loaded, warning) = load_on_thread(file, &args.input, &args.symbols)?;
    let mut odd: Vec<String> =
        warning.map(|warning| format!("{}: {warning}", file.display())).into_iter().collect();
    let complete = loaded.report.as_ref().is_none_or(|report| report.complete);
    if !loaded.snapshot.order_by_time().is_empty() {
        odd.push(format!(
            "{}: its events are not in order of time; they are read, and numbered, in that order",
            file.display()
        ));
    }
    // Determine the rank before names are replaced with pseudonyms, because it may be part of a name.
    let mut name = RankName::of(&loaded.snapshot, &absolute_path(file));
    let mut pseudonyms = scrub::from_args_keeping(&args.scrub, args.per.as_deref());
    loaded.snapshot = scrub::scrub_snapshot_with(loaded.snapshot, pseudonyms.as_mut());
    let mut hidden = |path: &Path| scrub::shown_path(path, pseudonyms.as_mut());
    let job = args.job.clone().unwrap_or_else(|| {
        let job = name.job.take().unwrap_or_else(|| job_from_folder(file));
        hidden(Path::new(&job))
    });
    let snapshot = &loaded.snapshot;
    if args.events || args.by == By::Category {
        memtrack_core::profile::recorded::categories(snapshot);
    }
    let mut symbols = Symbolizer::of(snapshot);
    let mut digest = RankDigest::of(snapshot, &mut symbols, &canonical_path(file), complete, &shared.options);
    digest.file = hidden(&canonical_path(file));
    (digest.rank, digest.job, digest.world) = (name.rank, name.job, name.world);
    let rank = claim_rank(file, &job, digest.rank, shared)?;
    let folder = rank_folder(&args.parquet, &job, rank);
    let in_the_way = |why: &str| {
        CliError::Usage(format!(
            "{} {why}; add --force to replace it, or choose another --job or --rank",
            folder.display()
        ))
    };
    // Check here to fail early; `write_rank` checks again.
    let refusal = rank_contents(&args.parquet, &job, rank).refusal(&digest.file);
    if let Some(why) = refusal.filter(|_| !args.force) {
        return Err(in_the_way(&why));
    }
    let options = WriteOptions::new().events(args.events).force(args.force);
    let written = write_rank(&args.parquet, &job, rank, snapshot, &digest, &mut symbols, options);
    let written = written.map_err(|error| match error {
        WriteError::Occupied(why) => in_the_way(&why),
        error => CliError::output(&folder, error),
    })?;
    let rank = ExportedRank {
        file: file.to_string_lossy().into_owned(),
        job,
        rank,
        folder: written.folder.to_string_lossy().into_owned(),
        replaced: written.replaced,
        size_bytes: written.size_bytes,
    };
    Ok((rank, odd))
}

/// Determines the rank of a file in `job`, and reserves that rank for the file.
fn claim_rank(
    file: &Path,
    job: &str,
    stated: Option<u64>,
    shared: &SharedState<'_>,
) -> Result<u64, CliError> {
    let rank = shared.args.rank.or(stated).or((shared.alone && !shared.args.require_rank).then_some(0)).ok_or_else(|| {
        CliError::Usage(format!(
            "cannot determine the rank of {}: call it rank3.pickle, put it into a folder rank=3, or export \
             it alone with --rank",
            file.display()
        ))
    })?;
    let mut claimed = shared.claimed.lock().unwrap_or_else(PoisonError::into_inner);
    match claimed.entry((job.to_owned(), rank)) {
        Entry::Vacant(free) => {
            free.insert(file.to_owned());
            Ok(rank)
        }
        Entry::Occupied(other) => Err(CliError::Usage(format!(
            "{} and {} are both rank {rank} of job {job}: export one of them alone, with another --job or --rank",
            other.get().display(),
            file.display()
        ))),
    }
}

/// Returns the file's canonical path, which identifies the file when it is exported again.
fn canonical_path(file: &Path) -> PathBuf {
    std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned())
}

/// Returns the file's absolute path without resolving links, since the name of a link may contain the rank.
fn absolute_path(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

/// Returns the name of the file's folder, which serves as the job name if the file does not contain one.
fn job_from_folder(file: &Path) -> String {
    let folder = canonical_path(file)
        .parent()
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned());
    folder.filter(|name| !name.is_empty()).unwrap_or_else(|| "run".into())
}

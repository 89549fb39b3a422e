//! `memtrack export`: snapshots as a data set of Parquet files, a folder for each rank.

use crate::Streams;
use crate::answers::{self, ExportAnswer, ExportedRank, UnexportedFile};
use crate::args::ExportArgs;
use crate::error::{CliError, Exit};
use crate::load::load;
use crate::ownership::rules;
use crate::report::mention_reordered;
use memtrack_core::analysis::ranks::{DigestOptions, RankDigest};
use memtrack_core::analysis::units::human_bytes;
use memtrack_core::dataset::{Present, present, rank_folder, write_rank};
use memtrack_core::stack::symbols::Symbolizer;
use std::path::{Path, PathBuf};

/// Exports one file after another. One that fails is named, and the next is read; the first failure is the command's.
pub(crate) fn run(args: &ExportArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    if args.rank.is_some() && args.files.len() > 1 {
        return Err(CliError::Usage("--rank is for one file: each rank has its own".into()));
    }
    if args.job.as_deref() == Some("") {
        return Err(CliError::Usage("--job needs a name".into()));
    }
    if args.parquet.symlink_metadata().is_ok() && !args.parquet.is_dir() {
        return Err(CliError::Usage(format!("{} is no folder: choose another name", args.parquet.display())));
    }
    let rules = rules(&args.rules)?;
    let mut options = DigestOptions::new().by(args.by).rules(rules).bins(args.bins as usize);
    if let Some(name) = &args.per {
        options = options.per(name);
    }
    let mut answer =
        ExportAnswer { folder: args.parquet.to_string_lossy().into_owned(), ..Default::default() };
    let mut first = None;
    for file in &args.files {
        match export(file, args, &options, &answer.ranks, streams) {
            Ok(rank) => {
                if !args.format.json {
                    // A hint; when nobody can read it, the files are there all the same.
                    let _ =
                        writeln!(streams.stderr, "wrote {} ({})", rank.folder, human_bytes(rank.size_bytes));
                }
                answer.ranks.push(rank);
            }
            Err(error) if args.files.len() == 1 => return Err(error),
            Err(error) => {
                let _ = writeln!(streams.stderr, "memtrack: {error}");
                answer.failed.push(UnexportedFile {
                    file: file.to_string_lossy().into_owned(),
                    error: error.to_string(),
                });
                first.get_or_insert(error.exit_code());
            }
        }
    }
    if args.format.json {
        answers::EXPORT.print(&answer, streams)?;
    }
    Ok(first.unwrap_or(Exit::Fine))
}

/// Exports one file; `done` are the ranks that this command has written.
fn export(
    file: &Path,
    args: &ExportArgs,
    options: &DigestOptions,
    done: &[ExportedRank],
    streams: &mut Streams<'_>,
) -> Result<ExportedRank, CliError> {
    let loaded = load(file, args.input, streams)?;
    let complete = loaded.report.as_ref().is_none_or(|report| report.complete);
    let mut snapshot = loaded.snapshot;
    mention_reordered(snapshot.order_by_time(), streams);
    let symbols = Symbolizer::of(&snapshot);
    let mut symbols = args.symbols.iter().fold(symbols, |symbols, folder| symbols.with_folder(folder));
    let digest = RankDigest::of(&snapshot, &mut symbols, &whole(file), complete, options);
    let job = args.job.clone().or_else(|| digest.name.job.clone()).unwrap_or_else(|| job_of(file));
    let rank = match args.rank.or(digest.name.rank) {
        Some(rank) => rank,
        None if args.files.len() == 1 => 0,
        None => {
            return Err(CliError::Usage(format!(
                "cannot tell which rank {} is: call it rank3.pickle, or put it into a folder rank=3, or export it alone with --rank",
                file.display()
            )));
        }
    };
    let folder = rank_folder(&args.parquet, &job, rank);
    if let Some(other) = done.iter().find(|other| other.rank == rank && other.job == job) {
        return Err(CliError::Usage(format!(
            "{} and {} are both rank {rank} of job {job}: export them with a --job of their own",
            other.file,
            file.display()
        )));
    }
    let in_the_way = match present(&args.parquet, &job, rank) {
        Present::Rank { source } if source != digest.file => Some(format!("has rank {rank} from {source}")),
        Present::Other(why) => Some(format!("is in the way ({why})")),
        _ => None,
    };
    if let Some(why) = in_the_way.filter(|_| !args.force) {
        return Err(CliError::Usage(format!(
            "{} {why}: add --force to replace it, or choose another --job or --rank",
            folder.display()
        )));
    }
    let written = write_rank(&args.parquet, &job, rank, &snapshot, &digest, &mut symbols, args.events)
        .map_err(|error| CliError::output(&folder, error))?;
    Ok(ExportedRank {
        file: file.to_string_lossy().into_owned(),
        job,
        rank,
        folder: written.folder.to_string_lossy().into_owned(),
        replaced: written.replaced,
        size_bytes: written.size_bytes,
    })
}

/// The file's whole path, by which it is known when it is exported again.
fn whole(file: &Path) -> PathBuf {
    std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned())
}

/// What the job of a file is called that does not say it: the name of its folder.
fn job_of(file: &Path) -> String {
    let folder =
        whole(file).parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    folder.filter(|name| !name.is_empty()).unwrap_or_else(|| "run".into())
}

//! `memtrack ranks`: compares the ranks of a job.

use super::prelude::*;
use super::ranks_pages::{RankPages, check_page};
use crate::load::load_on_thread;
use crate::many::{digest_options, expand, read_all};
use crate::output::write_file;
use crate::page::{page_name, page_with_categories};
use crate::scrub::mention_key;
use memtrack_core::analysis::ranks::heat::MAX_COLUMNS;
use memtrack_core::analysis::ranks::{DigestOptions, RankDigest, RankName, Ranks, Unread};
use memtrack_core::analysis::top::By;
use memtrack_core::analysis::units::{counted, printable};
use memtrack_core::page::ranks::html;
use std::collections::HashMap;
use std::io::BufWriter;
use std::num::NonZero;

/// Compare the ranks of a job: which holds more than the others, why, and how far they drift apart from step to step
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack ranks run/rank*.pickle                    who holds more than the others, and why
  memtrack ranks 'run/rank*.pickle'                  the same where there are too many files for the shell
  memtrack ranks run/                                the snapshots and recordings in a folder, compressed or not
  memtrack ranks run/ --recursive                    … and in the folders in it: run/rank3/snapshot.pickle
  memtrack ranks run/ --per epoch                    how far they drift apart from epoch to epoch
  memtrack ranks run/ --by stack                     … explained by whole stacks
  memtrack ranks run/ -n 0 --json                    everything, as JSON
  memtrack ranks run/ -o ranks.html                  … and as a page: who, why, and since when, over time
  memtrack ranks run/ -o ranks.html --pages ranks/   … with each rank's own page behind a click

The rank is the one in the file (a key rank beside PyTorch's, or in user_metadata), else the number after rank in its name or
its folder's. A rank is odd if it is off the median by more than 5 scaled median absolute deviations, more than 5 % and more than
1 MiB, and where blocks were sampled by more than its error. Steps are what memtrack_core::mark(\"step\") and torch.profiler mark.
Each file is read on one core and dropped before the next is read: memtrack holds one file per core, with --pages also its page.
Exit codes: 0 success, even if some files could not be read (they are named); 2 wrong usage, or files of different jobs;
3 no file could be read, or unwritable output.")]
pub(crate) struct RanksArgs {
    /// Files, folders and patterns such as 'run/rank*.pickle'
    #[arg(value_name = "FILES", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Search subfolders too
    #[arg(short, long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// How to group memory to explain the outliers among the ranks
    #[arg(long, value_parser = by_parser(), default_value = "line")]
    pub(crate) by: By,
    /// What the steps are called: a mark or a PyTorch profiler range, without the number at its end [default: step, ProfilerStep,
    /// or anything with step or iteration in its name]
    #[arg(long, value_name = "NAME")]
    pub(crate) per: Option<String>,
    /// How many files to read at a time [default: the number of cores]
    #[arg(short, long, value_name = "N", value_parser = parse_jobs)]
    pub(crate) jobs: Option<NonZero<usize>>,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    /// Do not leave out columns or shorten names; by default, lines are as wide as COLUMNS, else the terminal, else 120
    /// characters
    #[arg(long)]
    pub(crate) wide: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Also write a page that compares the odd ranks with the others and shows all of them over time
    #[arg(short, long, value_name = "FILE.html")]
    pub(crate) output: Option<PathBuf>,
    /// With -o: also write each rank's own page, as `memtrack view` does, to this folder; the page links to them
    #[arg(long, value_name = "DIR", requires = "output")]
    pub(crate) pages: Option<PathBuf>,
    /// Replace pages that exist
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) symbols: SymbolsArgs,
    #[command(flatten)]
    pub(crate) patterns: PatternsArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

pub(super) const ANSWER: Answer<Ranks> = Answer::new("ranks", 3);

/// The maximum number of warnings to print individually.
const MAX_WARNINGS: usize = 5;

/// The state shared by the threads, each of which reads files.
struct SharedState<'a> {
    args: &'a RanksArgs,
    options: DigestOptions,
    /// The path of each rank's page, if pages are requested.
    pages: RankPages,
}

/// The result of reading one file.
struct RankResult {
    digest: RankDigest,
    /// Warnings about the file.
    warnings: Vec<String>,
    /// The link to the rank's page, or why the page could not be written.
    page: Option<Result<String, CliError>>,
}

/// Reads the files, compares them, prints the report, and writes the requested pages.
pub(super) fn run(args: &RanksArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    check_places(&args.symbols)?;
    let options = digest_options(args.by, args.per.as_deref(), &args.rules, &args.patterns)?;
    // Only the page shows memory over time.
    let options = options.bins(if args.output.is_some() { MAX_COLUMNS } else { 1 });
    check_page(args)?;
    let files = expand(&args.files, args.recursive)?;
    let shared = SharedState { args, options, pages: RankPages::plan(args, &files)? };
    let all: Vec<Result<RankResult, CliError>> = read_all(&files, args.jobs, |file| read(file, &shared));
    let (mut digests, mut unread, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    let (mut links, mut failed) = (HashMap::new(), None);
    for (file, result) in files.iter().zip(all) {
        match result {
            Ok(read) => {
                match read.page {
                    Some(Ok(link)) => {
                        links.insert(read.digest.file.clone(), link);
                    }
                    // One error is enough, because other pages mostly fail for the same reason.
                    Some(Err(error)) => {
                        failed.get_or_insert(error);
                    }
                    None => {}
                }
                digests.push(read.digest);
                warnings.extend(read.warnings);
            }
            Err(error) => unread.push(Unread {
                path: file.to_string_lossy().into_owned(),
                why: failure_reason(file, &error),
            }),
        }
    }
    print_warnings(&warnings, streams);
    if digests.is_empty() {
        return Err(no_file_read_error(&unread));
    }
    let ranks = Ranks::of(digests, args.by, unread).map_err(|error| CliError::Usage(error.to_string()))?;
    if let Some(name) =
        args.per.as_deref().filter(|_| ranks.ranks.iter().all(|rank| rank.step_name.is_none()))
    {
        return Err(CliError::Usage(format!("--per {name}: no interval has this name in any of the files")));
    }
    let links: Vec<Option<String>> = ranks.ranks.iter().map(|rank| links.remove(&rank.file)).collect();
    let ranks = match scrub::from_args_keeping(&args.scrub, args.per.as_deref()) {
        Some(mut scrub) => ranks.renamed(|name| scrub.file(Path::new(name))),
        None => ranks,
    };
    mention_key(&args.scrub, streams);
    if args.format.json {
        ANSWER.print(&ranks, streams)?;
    } else {
        let width = width(args.wide);
        write!(streams.stdout, "{}", ranks.to_text(width, args.rows.limit()))?;
    }
    if !ranks.unread.is_empty() {
        // Standard output lists these files too, for scripts that read nothing else.
        let files = counted(ranks.unread.len() as u64, "file");
        streams
            .note(format_args!("memtrack: warning: {files} could not be read; the report covers the rest"));
    }
    if let Some(output) = &args.output {
        write_files(&[(output.clone(), html(&ranks, &links).into_bytes())])?;
        mention_written(output, streams);
        let pages = links.iter().flatten().count();
        if let Some(folder) = args.pages.as_ref().filter(|_| pages > 0) {
            let pages = counted(pages as u64, "page");
            streams.note(format_args!("wrote {pages} to {}", folder.display()));
        }
    }
    failed.map_or(Ok(Exit::Success), Err)
}

/// Reads a file, reduces it to a digest, and writes the rank's page if requested.
fn read(file: &Path, shared: &SharedState<'_>) -> Result<RankResult, CliError> {
    let args = shared.args;
    let (mut loaded, warning) = load_on_thread(file, &args.input, &args.symbols)?;
    let mut warnings: Vec<String> = Vec::new();
    // Incomplete recordings need no warning, because the report itself lists them.
    let complete = loaded.report.as_ref().is_none_or(|report| report.complete);
    warnings.extend(warning.filter(|_| complete).map(|warning| format!("{}: {warning}", file.display())));
    if !loaded.snapshot.order_by_time().is_empty() {
        warnings.push(format!(
            "{}: its events are not in order of time; they are read in that order",
            file.display()
        ));
    }
    // Determine the rank before names are replaced with pseudonyms, because it may be part of a name.
    let name = RankName::of(&loaded.snapshot, file);
    let snapshot = scrub::scrub_snapshot_with(
        loaded.snapshot,
        scrub::from_args_keeping(&args.scrub, args.per.as_deref()).as_mut(),
    );
    let page = shared.pages.page_of(file);
    if args.by == By::Category || page.is_some() {
        memtrack_core::profile::recorded::categories(&snapshot);
    }
    let mut symbols = Symbolizer::of(&snapshot);
    let mut digest = RankDigest::of(&snapshot, &mut symbols, file, complete, &shared.options);
    (digest.rank, digest.job, digest.world) = (name.rank, name.job, name.world);
    // The page for all ranks shows live memory, not reserved memory.
    digest.devices.iter_mut().for_each(|device| device.timeline.reserved_bytes = None);
    let page = page.map(|(target, link)| {
        let page = page_with_categories(&snapshot, &scrub::scrub_name(page_name(file), &args.scrub));
        shared.pages.make_folder()?;
        write_file(target, |out| page.write(BufWriter::with_capacity(1 << 18, out)))?;
        Ok(link.to_owned())
    });
    Ok(RankResult { digest, warnings, page })
}

/// Returns why a file could not be read, without the file's name, which the report prints next to the reason.
fn failure_reason(file: &Path, error: &CliError) -> String {
    let line = error.to_string();
    let named = format!("cannot read {}: ", file.display());
    line.strip_prefix(&named).map_or_else(|| line.clone(), str::to_owned)
}

/// Returns the error to report if no file could be read.
fn no_file_read_error(unread: &[Unread]) -> CliError {
    let first = unread.first();
    let first = first.map_or(String::new(), |file| format!("cannot read {}: {}", file.path, file.why));
    CliError::Io(match unread.len() {
        0 | 1 => first,
        files => format!("none of the {files} files could be read; the first: {first}"),
    })
}

fn print_warnings(warnings: &[String], streams: &mut Streams<'_>) {
    for warning in warnings.iter().take(MAX_WARNINGS) {
        streams.note(format_args!("memtrack: warning: {}", printable(warning)));
    }
    let more = warnings.len().saturating_sub(MAX_WARNINGS);
    if more > 0 {
        streams.note(format_args!("memtrack: … and {}", counted(more as u64, "more warning")));
    }
}

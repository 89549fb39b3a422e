//! `memtrack ranks`: the ranks of a job, compared.

use super::top::check_folders;
use crate::Streams;
use crate::answers;
use crate::args::RanksArgs;
use crate::error::{CliError, Exit};
use crate::load::load_one;
use crate::many::{expand, read_all};
use crate::ownership::rules;
use memtrack_core::analysis::patterns::Patterns;
use memtrack_core::analysis::ranks::{DigestOptions, RankDigest, Ranks};
use memtrack_core::analysis::top::By;
use memtrack_core::analysis::units::{counted, printable};
use memtrack_core::stack::symbols::Symbolizer;
use std::path::Path;

/// Warnings that are told one by one.
const WARNINGS: usize = 5;

/// What one file comes to: its digest with what is odd about it, or why there is none.
type One = Result<(RankDigest, Vec<String>), CliError>;

/// Reads the files, compares them, and prints the answer.
pub(crate) fn run(args: &RanksArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    check_folders(&args.symbols)?;
    let options = options(args)?;
    let files = expand(&args.files, args.recursive)?;
    let all: Vec<One> = read_all(&files, args.jobs, |file| digest(file, args, &options));
    let (mut digests, mut unread, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    for (file, one) in files.iter().zip(all) {
        match one {
            Ok((digest, odd)) => {
                digests.push(digest);
                warnings.extend(odd);
            }
            Err(error) => unread.push((file.to_string_lossy().into_owned(), why(file, &error))),
        }
    }
    mention(&warnings, streams);
    if digests.is_empty() {
        return Err(none_read(&unread));
    }
    let ranks = Ranks::of(digests, args.by, unread).map_err(|error| CliError::Usage(error.to_string()))?;
    if let Some(name) =
        args.per.as_deref().filter(|_| ranks.ranks.iter().all(|rank| rank.step_name.is_none()))
    {
        return Err(CliError::Usage(format!("--per {name}: nothing is called so in any of the files")));
    }
    if args.format.json {
        answers::RANKS.print(&ranks.answer(), streams)?;
    } else {
        let width = (!args.wide).then(memtrack_core::__report_width);
        write!(streams.stdout, "{}", ranks.to_text(width, args.rows.limit()))?;
    }
    if !ranks.unread.is_empty() {
        // Whoever reads standard output alone, as a script does, finds it there too.
        let files = counted(ranks.unread.len() as u64, "file");
        let _ = writeln!(
            streams.stderr,
            "memtrack: warning: {files} could not be read; the answer is about the rest"
        );
    }
    Ok(Exit::Fine)
}

fn options(args: &RanksArgs) -> Result<DigestOptions, CliError> {
    let patterns = args.patterns.iter().fold(Patterns::default(), |patterns, glob| patterns.with(glob));
    let options = DigestOptions::new().by(args.by).rules(rules(&args.rules)?).patterns(patterns);
    Ok(match &args.per {
        Some(name) => options.per(name),
        None => options,
    })
}

/// Reads a file and reduces it.
fn digest(file: &Path, args: &RanksArgs, options: &DigestOptions) -> One {
    let (mut loaded, warning) = load_one(file, args.input)?;
    let mut odd: Vec<String> = Vec::new();
    // That a recording has no end, the report says.
    let complete = loaded.report.as_ref().is_none_or(|report| report.complete);
    odd.extend(warning.filter(|_| complete).map(|warning| format!("{}: {warning}", file.display())));
    if !loaded.snapshot.order_by_time().is_empty() {
        odd.push(format!(
            "{}: its events are not in order of time; they are read in that order",
            file.display()
        ));
    }
    if args.by == By::Category {
        memtrack_core::profile::recorded::categories(&loaded.snapshot);
    }
    let symbols = Symbolizer::of(&loaded.snapshot);
    let mut symbols = args.symbols.iter().fold(symbols, |symbols, folder| symbols.with_folder(folder));
    Ok((RankDigest::of(&loaded.snapshot, &mut symbols, file, complete, options), odd))
}

/// Why a file could not be read, without its name, which stands beside it.
fn why(file: &Path, error: &CliError) -> String {
    let line = error.to_string();
    let named = format!("cannot read {}: ", file.display());
    line.strip_prefix(&named).map_or_else(|| line.clone(), str::to_owned)
}

/// That no file could be read.
fn none_read(unread: &[(String, String)]) -> CliError {
    let first = unread.first().map_or(String::new(), |(file, why)| format!("cannot read {file}: {why}"));
    CliError::Io(match unread.len() {
        0 | 1 => first,
        files => format!("none of the {files} files could be read; the first: {first}"),
    })
}

fn mention(warnings: &[String], streams: &mut Streams<'_>) {
    for warning in warnings.iter().take(WARNINGS) {
        // A warning; when nobody can read it, the report is right all the same.
        let _ = writeln!(streams.stderr, "memtrack: warning: {}", printable(warning));
    }
    let more = warnings.len().saturating_sub(WARNINGS);
    if more > 0 {
        let _ = writeln!(streams.stderr, "memtrack: … and {}", counted(more as u64, "more warning"));
    }
}

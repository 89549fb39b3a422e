//! A snapshot as one HTML page, which `memtrack view` and PyTorch's verbs for figures write.

use crate::answers::Answer;
use crate::args::{FileArgs, InputArgs, ScrubArgs, WrittenArgs};
use crate::error::{CliError, Exit};
use crate::load::load_file;
use crate::output::{WrittenAnswer, check_output, write_output};
use crate::{Streams, scrub};
use clap::Args;
use memtrack_core::page::Page;
use memtrack_core::profile::reading::inferred;
use memtrack_core::snapshot::recording::{ProcessChoice, ReadReport};
use memtrack_core::snapshot::{ProcessEnd, ProcessRow, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// The text at the end of `memtrack help trace-plot` and of similar help pages.
pub(crate) const PLOT_HELP: &str = "\
Examples:
  memtrack trace-plot snapshot.pickle                    writes output.html: what was allocated over time
  memtrack trace-plot snapshot.pickle --segments         segments instead of blocks
  memtrack segment-plot snapshot.pickle -o state.html    segments and blocks at every event
  memtrack profile-plot profile.pickle -o profile.html   what was allocated over time, by category

The page holds everything, needs no network, and shows what `memtrack view` shows: these verbs differ in what it shows first.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.";

/// The input and the page.
#[derive(Clone, Debug, Args)]
pub(crate) struct PageArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// The page to write; `-` is standard output
    #[arg(short, long, value_name = "FILE.html", default_value = "output.html")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) written: WrittenArgs,
    /// Replace the page if it exists
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
}

/// The maximum number of processes that a page shows in addition to the program that was run.
const MAX_OTHER_PROCESSES: usize = 8;

/// Writes a page to the requested file, as `with_view` returns it.
pub(crate) fn write_page(
    args: &PageArgs,
    answer: Answer<WrittenAnswer>,
    streams: &mut Streams<'_>,
    with_view: impl FnOnce(Page) -> Page,
) -> Result<Exit, CliError> {
    check_output(&args.output, args.force)?;
    let page = with_view(load_page(args, streams)?);
    write_output(&args.output, streams, |out| page.write(BufWriter::with_capacity(1 << 18, out)))?;
    answer.report_written(&args.output, "html", args.written, streams)?;
    Ok(Exit::Success)
}

/// Reads the file and returns its page. The page of a run also shows the run's other processes, each with its own
/// devices.
pub(crate) fn load_page(args: &PageArgs, streams: &mut Streams<'_>) -> Result<Page, CliError> {
    let loaded = load_file(&args.file, streams)?;
    let name = scrub::scrub_name(page_name(&args.file.path), &args.scrub);
    let report = loaded.report.unwrap_or_default();
    let page = |snapshot, streams: &mut Streams<'_>| {
        let snapshot = scrub::scrub_snapshot(snapshot, &args.scrub, streams);
        page_with_categories(&snapshot, &name)
    };
    let mut all = page(loaded.snapshot, streams);
    let others = other_processes(&report, args);
    if let Some(main) = report.chosen_process().filter(|_| !others.is_empty()) {
        all = all.of_process(&process_name(main, args));
    }
    for row in &others {
        let chosen = Some(ProcessChoice::Number(row.number));
        let input = InputArgs { chosen, ..args.file.input.clone() };
        let snapshot = load_file(&FileArgs { input, ..args.file.clone() }, streams)?.snapshot;
        all = all.with_process(page(snapshot, streams).of_process(&process_name(row, args)));
    }
    Ok(all)
}

/// Returns the name of a process on a page. Every process of the page has a different name.
fn process_name(row: &ProcessRow, args: &PageArgs) -> String {
    let name = if args.scrub.scrub { String::new() } else { format!(" ({})", row.name()) };
    let pid = if args.scrub.scrub { row.number } else { row.pid };
    match row.end {
        ProcessEnd::Replaced => format!("process {pid}{name}, before exec ({})", row.number),
        _ => format!("process {pid}{name}"),
    }
}

/// Returns the other processes that the page of a run shows: the largest of those that held at least 1 % of the memory
/// of all processes.
fn other_processes(report: &ReadReport, args: &PageArgs) -> Vec<ProcessRow> {
    let is_chosen = args.file.input.process.is_some() || args.file.input.all;
    // The file is read again for each of these processes, which standard input does not allow.
    if is_chosen || args.file.path == Path::new("-") {
        return Vec::new();
    }
    let all: u64 = report.processes.iter().fold(0, |sum, row| sum.saturating_add(row.held_bytes));
    let is_shown = |row: &&ProcessRow| !report.chosen.contains(&row.number) && row.held_bytes >= all / 100;
    let mut shown: Vec<ProcessRow> = report.processes.iter().filter(is_shown).cloned().collect();
    shown.sort_by_key(|row| std::cmp::Reverse(row.held_bytes));
    shown.truncate(MAX_OTHER_PROCESSES);
    shown.sort_by_key(|row| row.number);
    shown
}

/// Returns the page for a snapshot, with inferred categories for its blocks.
pub(crate) fn page_with_categories(snapshot: &Snapshot, name: &str) -> Page {
    Page::with_inferred(snapshot, name, &inferred(snapshot, &mut Symbolizer::of(snapshot)))
}

/// Returns the name that the page shows for the file.
pub(crate) fn page_name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

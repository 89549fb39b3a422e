//! `memtrack view`, `trace-plot`, `segment-plot` and `profile-plot`: a snapshot as one HTML page.

use crate::Streams;
use crate::answers::{self, Answer, WrittenAnswer};
use crate::args::{FileArgs, InputArgs, PageArgs, TracePlotArgs, ViewPageArgs};
use crate::error::{CliError, Exit};
use crate::load::{convert_to_pytorch, load_file};
use crate::output::check_targets;
use crate::scrub;
use crate::serve::Server;
use memtrack_core::__ReplacingFile as ReplacingFile;
use memtrack_core::page::{Page, View};
use memtrack_core::profile::reading::inferred;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_core::snapshot::recording::{ProcessChoice, ReadReport};
use memtrack_core::snapshot::{ProcessEnd, ProcessRow};
use memtrack_core::stack::symbols::Symbolizer;
use std::io::BufWriter;
use std::path::Path;

/// The maximum number of processes that a page shows in addition to the program that was run.
const MAX_OTHER_PROCESSES: usize = 8;

/// Writes the page for `memtrack segment-plot`.
pub(crate) fn run_segment_plot(args: &PageArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write(args, answers::SEGMENT_PLOT, streams, |page| page.showing(View::State))
}

/// Writes the page for `memtrack trace-plot`, which has the same options as PyTorch's command of that name.
pub(crate) fn run_trace_plot(args: &TracePlotArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write(&args.page, answers::TRACE_PLOT, streams, |page| {
        let page = page.showing(if args.segments { View::Segments } else { View::Timeline });
        if args.filter_freed { page.without_freed() } else { page }
    })
}

/// Writes the page for `memtrack profile-plot`, which shows each category's memory over time. PyTorch's command of that
/// name stacks blocks in the colours of their categories; files without recorded categories are shown that way, with
/// inferred categories.
pub(crate) fn run_profile_plot(args: &PageArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write(args, answers::PROFILE_PLOT, streams, |page| {
        let view = if page.has_categories() { View::Categories } else { View::Timeline };
        page.showing(view)
    })
}

fn write(
    args: &PageArgs,
    answer: Answer<WrittenAnswer>,
    streams: &mut Streams<'_>,
    with_view: impl FnOnce(Page) -> Page,
) -> Result<Exit, CliError> {
    let output = &args.target.output;
    let to_stdout = output == Path::new("-");
    if !to_stdout {
        check_targets([output.as_path()], args.target.force)?;
    }
    let page = with_view(load_page(args, streams)?);
    if to_stdout {
        page.write(BufWriter::new(&mut *streams.stdout))?;
        answer.report_written(output, "html", args.target.written, streams)?;
        return Ok(Exit::Success);
    }
    save(&page, output)?;
    answer.report_written(output, "html", args.target.written, streams)?;
    Ok(Exit::Success)
}

/// Writes a page to a file.
///
/// # Errors
/// Fails if the file cannot be written, in which case an existing file is left unchanged.
pub(super) fn save(page: &Page, target: &Path) -> Result<(), CliError> {
    let failed = |error| CliError::output(target, error);
    let mut file = ReplacingFile::create(target).map_err(failed)?;
    page.write(BufWriter::with_capacity(1 << 18, &mut file)).map_err(failed)?;
    file.commit().map_err(failed)
}

/// Writes the page for `memtrack view`, or serves it until the process is stopped.
pub(crate) fn run_view(args: &ViewPageArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    if !args.serve {
        return write(&args.page, answers::VIEW, streams, |page| page.showing(args.show.into()));
    }
    let page = load_page(&args.page, streams)?.showing(args.show.into());
    let server = Server::new(page, args.port)?;
    writeln!(streams.stdout, "{}", server.url())?;
    streams.stdout.flush()?;
    let _ = writeln!(streams.stderr, "serving to this machine only; press Ctrl-C to end");
    server.run()?;
    Ok(Exit::Success)
}

/// Reads the file and returns its page. The page of a run also shows the run's other processes, each with its own
/// devices.
fn load_page(args: &PageArgs, streams: &mut Streams<'_>) -> Result<Page, CliError> {
    let loaded = load_file(&args.file, streams)?;
    let name = scrub::scrub_name(page_name(&args.file.path), &args.scrub);
    let report = loaded.report.unwrap_or_default();
    let page = |snapshot, streams: &mut Streams<'_>| {
        let snapshot = convert_to_pytorch(scrub::scrub_snapshot(snapshot, &args.scrub, &[], streams));
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
pub(super) fn page_with_categories(snapshot: &PytorchSnapshot, name: &str) -> Page {
    Page::with_inferred(snapshot, name, &inferred(snapshot, &mut Symbolizer::of(snapshot)))
}

/// Returns the name that the page shows for the file.
pub(super) fn page_name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

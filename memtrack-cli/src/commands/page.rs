//! `memtrack view`, `trace-plot`, `segment-plot` and `profile-plot`: a snapshot as one HTML page.

use crate::Streams;
use crate::answers::{self, Answer, WrittenAnswer};
use crate::args::{PageArgs, TracePlotArgs, ViewPageArgs};
use crate::error::{CliError, Exit};
use crate::load::{in_pytorch_form, load_file};
use crate::output::check_targets;
use crate::scrub;
use crate::serve::Server;
use memtrack_core::__ReplacingFile as ReplacingFile;
use memtrack_core::page::{Page, View};
use memtrack_core::profile::reading::inferred;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_core::stack::symbols::Symbolizer;
use std::io::BufWriter;
use std::path::Path;

/// Loads the snapshot, and writes its page.
pub(crate) fn segment_plot(args: &PageArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write(args, answers::SEGMENT_PLOT, streams, |page| page.showing(View::State))
}

/// Does the same for PyTorch's verb, with its options.
pub(crate) fn trace_plot(args: &TracePlotArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write(&args.page, answers::TRACE_PLOT, streams, |page| {
        let page = page.showing(if args.segments { View::Segments } else { View::Timeline });
        if args.filter_freed { page.without_freed() } else { page }
    })
}

/// Does the same for a profile. PyTorch's verb stacks blocks, in the colours of their categories; it is used to see how
/// much of each category there is. A file without categories is shown as PyTorch would, in the colours of the inferred
/// ones.
pub(crate) fn profile_plot(args: &PageArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write(args, answers::PROFILE_PLOT, streams, |page| {
        let view = if page.has_categories() { View::Categories } else { View::Timeline };
        page.showing(view)
    })
}

fn write(
    args: &PageArgs,
    answer: Answer<WrittenAnswer>,
    streams: &mut Streams<'_>,
    shown: impl FnOnce(Page) -> Page,
) -> Result<Exit, CliError> {
    let output = &args.target.output;
    let to_stdout = output == Path::new("-");
    if !to_stdout {
        check_targets([output.as_path()], args.target.force)?;
    }
    let page = shown(page_of(args, streams)?);
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
/// Fails when it cannot be written; an existing file is then unchanged.
pub(super) fn save(page: &Page, target: &Path) -> Result<(), CliError> {
    let failed = |error| CliError::output(target, error);
    let mut file = ReplacingFile::create(target).map_err(failed)?;
    page.write(BufWriter::with_capacity(1 << 18, &mut file)).map_err(failed)?;
    file.commit().map_err(failed)
}

/// Does the same, or serves the page until the process is ended.
pub(crate) fn view(args: &ViewPageArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    if !args.serve {
        return write(&args.page, answers::VIEW, streams, |page| page.showing(args.show.into()));
    }
    let page = page_of(&args.page, streams)?.showing(args.show.into());
    let server = Server::new(page, args.port)?;
    writeln!(streams.stdout, "{}", server.url())?;
    streams.stdout.flush()?;
    let _ = writeln!(streams.stderr, "serving to this machine only; press Ctrl-C to end");
    server.run()?;
    Ok(Exit::Success)
}

fn page_of(args: &PageArgs, streams: &mut Streams<'_>) -> Result<Page, CliError> {
    let loaded = load_file(&args.file, streams)?;
    let snapshot = in_pytorch_form(scrub::snapshot(loaded.snapshot, &args.scrub, &[], streams));
    Ok(with_categories(&snapshot, &scrub::name(name(&args.file.path), &args.scrub)))
}

/// Returns the page of a snapshot, with the categories that can be inferred for its blocks.
pub(super) fn with_categories(snapshot: &PytorchSnapshot, name: &str) -> Page {
    Page::with_inferred(snapshot, name, &inferred(snapshot, &mut Symbolizer::of(snapshot)))
}

/// Returns the name of the file on the page.
pub(super) fn name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

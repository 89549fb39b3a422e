//! `memtrack view`, `trace-plot`, `segment-plot` and `profile-plot`: a snapshot as one HTML page.

use crate::Streams;
use crate::args::{FileArgs, PageArgs, TracePlotArgs, ViewPageArgs};
use crate::error::{CliError, Exit};
use crate::load::load_pytorch;
use crate::output::check_targets;
use crate::serve::Server;
use memtrack_core::ReplacingFile;
use memtrack_core::page::{Page, View};
use std::io::BufWriter;
use std::path::Path;

/// Loads the snapshot, and writes its page.
pub(crate) fn run(args: &PageArgs, view: View, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write(args, streams, |page| page.showing(view))
}

/// The same for PyTorch's verb, with its options.
pub(crate) fn trace_plot(args: &TracePlotArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write(&args.page, streams, |page| {
        let page = page.showing(if args.segments { View::Segments } else { View::Timeline });
        if args.filter_freed { page.without_freed() } else { page }
    })
}

/// The same for a profile. PyTorch's verb stacks blocks, in the colours of their categories; what it is called for is how
/// much of each category there is. A file without categories is shown as PyTorch would.
pub(crate) fn profile_plot(args: &PageArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    write(args, streams, |page| {
        let view = if page.has_categories() { View::Categories } else { View::Timeline };
        page.showing(view)
    })
}

fn write(
    args: &PageArgs,
    streams: &mut Streams<'_>,
    shown: impl FnOnce(Page) -> Page,
) -> Result<Exit, CliError> {
    let output = &args.target.output;
    let to_stdout = output == Path::new("-");
    if !to_stdout {
        check_targets([output.as_path()], args.target.force)?;
    }
    let page = shown(page_of(&args.file, streams)?);
    if to_stdout {
        page.write(BufWriter::new(&mut *streams.stdout))?;
        return Ok(Exit::Fine);
    }
    let failed = |error| CliError::output(output, error);
    let mut file = ReplacingFile::create(output).map_err(failed)?;
    page.write(BufWriter::with_capacity(1 << 18, &mut file)).map_err(failed)?;
    file.commit().map_err(failed)?;
    // A hint; when nobody can read it, the file is there all the same.
    let _ = writeln!(streams.stderr, "wrote {}", output.display());
    Ok(Exit::Fine)
}

/// The same, or serves the page until the process is ended.
pub(crate) fn view(args: &ViewPageArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    if !args.serve {
        return run(&args.page, args.show.into(), streams);
    }
    let page = page_of(&args.page.file, streams)?.showing(args.show.into());
    let server = Server::new(page, args.port)?;
    writeln!(streams.stdout, "{}", server.url())?;
    streams.stdout.flush()?;
    let _ = writeln!(streams.stderr, "serving to this machine only; press Ctrl-C to end");
    server.run()?;
    Ok(Exit::Fine)
}

fn page_of(file: &FileArgs, streams: &mut Streams<'_>) -> Result<Page, CliError> {
    let snapshot = load_pytorch(&file.path, file.input, streams)?;
    Ok(Page::of(&snapshot, &name(&file.path)))
}

/// What the page calls its file.
pub(super) fn name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

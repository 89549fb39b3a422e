//! `memtrack view`, `trace-plot`, `segment-plot` and `profile-plot`: a snapshot as one HTML page.

use crate::Streams;
use crate::args::PageArgs;
use crate::error::{CliError, Exit};
use crate::load::load;
use crate::output::check_targets;
use memtrack_core::ReplacingFile;
use memtrack_core::page::{Page, View};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::stack::symbols::Symbolizer;
use std::io::BufWriter;
use std::path::Path;

/// Loads the snapshot, and writes its page.
pub(crate) fn run(args: &PageArgs, view: View, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (path, output) = (&args.file.path, &args.target.output);
    let to_stdout = output == Path::new("-");
    if !to_stdout {
        check_targets([output.as_path()], args.target.force)?;
    }
    let snapshot = load(path, args.file.input, streams)?.snapshot;
    let mut symbols = Symbolizer::of(&snapshot);
    let snapshot = snapshot.into_pytorch(&mut symbols);
    let page = Page::of(&snapshot, &mut symbols, &name(path)).showing(view);
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

/// What the page calls its file.
fn name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

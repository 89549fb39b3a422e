//! Loads the snapshot of every verb: from a file of any kind or standard input, with a bound on its size, a progress
//! bar, and a warning when a recording is incomplete.

use crate::Streams;
use crate::args::{FileArgs, InputArgs, SymbolsArgs};
use crate::error::CliError;
use crate::neighbours::{Kind, head_of, head_of_stdin, refused};
use indicatif::{ProgressBar, ProgressStyle};
use memtrack_core::analysis::not_recorded::recording_was_off;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_core::snapshot::{Loaded, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Loads that take less time show no progress.
const PATIENCE: Duration = Duration::from_millis(700);

/// The kinds of files that this reads.
const OWN: [Kind; 2] = [Kind::Recording, Kind::Snapshot];

/// Reads the snapshot at `path`, or for `-` from standard input.
///
/// # Errors
/// Fails when it cannot be read, is larger than `--max-input`, or is no snapshot.
pub(crate) fn load(path: &Path, input: InputArgs, streams: &mut Streams<'_>) -> Result<Loaded, CliError> {
    let loaded = read(path, input, true, streams)?;
    if let Some(why) = recording_was_off(&loaded.snapshot) {
        let name = if path == Path::new("-") { "standard input".into() } else { path.to_string_lossy() };
        // A hint; the report is right without it.
        let _ = writeln!(streams.stderr, "memtrack: {name}: {why}");
    }
    Ok(loaded)
}

fn read(path: &Path, input: InputArgs, events: bool, streams: &mut Streams<'_>) -> Result<Loaded, CliError> {
    let from_stdin = path == Path::new("-");
    let total = if from_stdin { None } else { path.metadata().ok().map(|file| file.len()) };
    let mut progress = Progress { total, start: Instant::now(), bar: None };
    // The progress bar is for people in front of a terminal only.
    let watched = std::io::stderr().is_terminal();
    let (head, stdin) = match from_stdin {
        true => head_of_stdin(&mut *streams.stdin).map(|(head, stdin)| (head, Some(stdin)))?,
        false => (head_of(path), None),
    };
    // Its list of nodes looks like one of segments.
    if Kind::of(path, &head) == Some(Kind::Graph) {
        return Err(refused(path, &head, &OWN, ""));
    }
    let loaded = {
        let mut report = |bytes| progress.show(bytes);
        let mut options = LoadOptions::new().max_input(input.max_input).events(events);
        if watched {
            options = options.progress(&mut report);
        }
        match stdin {
            Some(stdin) => Snapshot::open_stream(stdin, options),
            None => Snapshot::open(path, options),
        }
    };
    if let Some(bar) = progress.bar {
        bar.finish_and_clear();
    }
    let loaded = loaded.map_err(|error| refused(path, &head, &OWN, error))?;
    if let Some(warning) = warning(&loaded) {
        // A warning; if it cannot be printed, the report is right all the same.
        let name = if from_stdin { "standard input".into() } else { path.to_string_lossy() };
        let _ = writeln!(streams.stderr, "memtrack: warning: {name}: {warning}");
    }
    // For a recording that has operators, every verb knows the categories of memory.
    memtrack_core::profile::recorded::categories(&loaded.snapshot);
    Ok(loaded)
}

/// Reads the snapshot of a verb's only file, and remembers where its binaries are.
///
/// # Errors
/// As [`load`]; a usage error where a place of binaries does not exist.
pub(crate) fn load_file(file: &FileArgs, streams: &mut Streams<'_>) -> Result<Loaded, CliError> {
    load_with(&file.path, file.input, &file.symbols, streams)
}

/// Does the same for one of several files.
///
/// # Errors
/// As [`load_file`].
pub(crate) fn load_with(
    path: &Path,
    input: InputArgs,
    symbols: &SymbolsArgs,
    streams: &mut Streams<'_>,
) -> Result<Loaded, CliError> {
    check_places(symbols)?;
    let mut loaded = load(path, input, streams)?;
    loaded.snapshot.symbol_folders.clone_from(&symbols.places);
    Ok(loaded)
}

/// Refuses places of binaries that do not exist.
///
/// # Errors
/// A usage error that names the first.
pub(crate) fn check_places(symbols: &SymbolsArgs) -> Result<(), CliError> {
    match symbols.places.iter().find(|place| !place.exists()) {
        Some(missing) => {
            Err(CliError::Usage(format!("--symbols {}: there is no such folder or file", missing.display())))
        }
        None => Ok(()),
    }
}

/// Reads one of many files, on a separate thread: without a bar, and returns the warning.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_one(path: &Path, input: InputArgs) -> Result<(Loaded, Option<String>), CliError> {
    let head = head_of(path);
    if Kind::of(path, &head) == Some(Kind::Graph) {
        return Err(refused(path, &head, &OWN, ""));
    }
    let options = LoadOptions::new().max_input(input.max_input);
    let loaded = Snapshot::open(path, options).map_err(|error| refused(path, &head, &OWN, error))?;
    let warning = warning(&loaded);
    Ok((loaded, warning))
}

/// Returns remarks for a reader of a file that was read.
fn warning(loaded: &Loaded) -> Option<String> {
    let warning = loaded.report.as_ref().and_then(|report| report.warning());
    let checksum_error =
        loaded.checksum_error.as_ref().map(|why| format!("the snapshot was read, but {why}"));
    warning.or(checksum_error)
}

/// Reads a file as [`load_file`] does, in PyTorch's form, for any kind of file.
///
/// # Errors
/// As [`load_file`].
pub(crate) fn load_pytorch(file: &FileArgs, streams: &mut Streams<'_>) -> Result<PytorchSnapshot, CliError> {
    check_places(&file.symbols)?;
    // Without the hint of `load`: PyTorch's verbs print what PyTorch prints.
    let mut snapshot = read(&file.path, file.input, true, streams)?.snapshot;
    snapshot.symbol_folders.clone_from(&file.symbols.places);
    Ok(in_pytorch_form(snapshot))
}

/// Does the same for the segments alone: a PyTorch file's events are skipped, which is most of the work.
///
/// # Errors
/// As [`load_file`].
pub(crate) fn load_segments(
    path: &Path,
    input: InputArgs,
    symbols: &SymbolsArgs,
    streams: &mut Streams<'_>,
) -> Result<PytorchSnapshot, CliError> {
    check_places(symbols)?;
    let mut snapshot = read(path, input, false, streams)?.snapshot;
    snapshot.symbol_folders.clone_from(&symbols.places);
    Ok(in_pytorch_form(snapshot))
}

/// Returns a snapshot in PyTorch's form, from any kind of file.
pub(crate) fn in_pytorch_form(snapshot: Snapshot) -> PytorchSnapshot {
    let mut symbols = Symbolizer::of(&snapshot);
    snapshot.into_pytorch(&mut symbols)
}

/// The bar that shows how far a load is, once it is worth one.
struct Progress {
    total: Option<u64>,
    start: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn show(&mut self, bytes: u64) {
        if self.bar.is_none() && self.start.elapsed() < PATIENCE {
            return;
        }
        self.bar.get_or_insert_with(|| bar(self.total)).set_position(bytes);
    }
}

/// Creates a bar of the bytes of a file, or a spinner where their number is unknown. It draws on standard error, a few
/// times a second, and only on a terminal.
fn bar(total: Option<u64>) -> ProgressBar {
    let template = match total {
        Some(_) => "reading {wide_bar} {percent:>3} %  {bytes} of {total_bytes}",
        None => "reading {spinner} {bytes}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    total.map_or_else(ProgressBar::new_spinner, ProgressBar::new).with_style(style)
}

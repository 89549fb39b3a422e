//! Loads snapshots for the verbs from any kind of file or from standard input, with a size limit, a progress bar, and a warning
//! if a recording is incomplete.

use crate::Streams;
use crate::args::{FileArgs, InputArgs, InputSizeArgs, SymbolsArgs};
use crate::error::CliError;
use crate::neighbours::{Kind, open_head, read_head, unusable_file_error};
use crate::progress::Progress;
use memtrack_core::analysis::not_recorded::recording_was_off;
use memtrack_core::analysis::units::printable;
use memtrack_core::snapshot::pytorch::{LoadError, LoadOptions, PytorchSnapshot};
use memtrack_core::snapshot::recording::{
    ProcessChoice, ReadReport, RecordingError, open_parts, open_processes,
};
use memtrack_core::snapshot::{Loaded, ProcessRow, Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Symbolizer;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

/// The maximum number of characters of a command line in a hint.
const MAX_COMMAND: usize = 60;

/// The kinds of files that can be loaded as a snapshot.
const SNAPSHOT_KINDS: [Kind; 2] = [Kind::Recording, Kind::Snapshot];

/// Reads the snapshot for a verb that takes a single file.
///
/// # Errors
/// Fails in the same cases as [`load_with`].
pub(crate) fn load_file(file: &FileArgs, streams: &mut Streams<'_>) -> Result<Loaded, CliError> {
    load_with(&file.path, &file.input, &file.symbols, streams)
}

/// Reads the snapshot at `path`, or from standard input if `path` is `-`. Warns about a recording that is incomplete or was off.
///
/// # Errors
/// Fails if the file cannot be read, is larger than `--max-input`, or is not a snapshot, and with a usage error if a path in
/// `--symbols` does not exist.
pub(crate) fn load_with(
    path: &Path,
    input: &InputArgs,
    symbols: &SymbolsArgs,
    streams: &mut Streams<'_>,
) -> Result<Loaded, CliError> {
    let loaded = read(path, input, symbols, true, streams)?;
    let is_removed = loaded.report.as_ref().is_some_and(|report| !report.removed.is_empty());
    if let Some(why) = recording_was_off(&loaded.snapshot).filter(|_| !is_removed) {
        streams.note(format_args!("memtrack: {}: {why}", display_name(path)));
    }
    Ok(loaded)
}

/// Does the same as [`load_with`], without the hint that a recording was off. Without `events`, it skips the events of a PyTorch
/// snapshot, which account for most of the work.
fn read(
    path: &Path,
    input: &InputArgs,
    symbols: &SymbolsArgs,
    events: bool,
    streams: &mut Streams<'_>,
) -> Result<Loaded, CliError> {
    check_places(symbols)?;
    let mut loaded = {
        let total = path.metadata().ok().filter(|_| path != Path::new("-")).map(|file| file.len());
        let template = match total {
            Some(_) => "reading {wide_bar} {percent:>3} %  {bytes} of {total_bytes}",
            None => "reading {spinner} {bytes}",
        };
        let mut progress = Progress::new(template, total);
        let (head, stdin) = open_head(path, &mut *streams.stdin)?;
        check_kind(path, &head)?;
        let mut report = |bytes| progress.show(bytes);
        let mut options = load_options(input).events(events);
        if Progress::is_watched() {
            options = options.progress(&mut report);
        }
        let loaded = match stdin {
            Some(stdin) => Snapshot::open_stream(stdin, options),
            None => Snapshot::open(path, options),
        };
        loaded.map_err(|error| load_error(path, &head, error))?
    };
    check_process(&loaded, path, input)?;
    if let Some(which) = loaded.report.as_ref().and_then(|report| which_process(report, input)) {
        streams.note(format_args!("memtrack: {}: {which}", display_name(path)));
    }
    if let Some(warning) = load_warning(&loaded) {
        streams.note(format_args!("memtrack: warning: {}: {warning}", display_name(path)));
    }
    // Determine the categories of memory for every verb, if the recording has operators.
    memtrack_core::profile::recorded::categories(&loaded.snapshot);
    loaded.snapshot.symbol_folders.clone_from(&symbols.places);
    Ok(loaded)
}

/// Rejects reference graphs, whose list of nodes would pass for a list of segments.
fn check_kind(path: &Path, head: &[u8]) -> Result<(), CliError> {
    match Kind::detect(path, head) {
        Some(Kind::Graph) => Err(unusable_file_error(path, head, &SNAPSHOT_KINDS, "")),
        _ => Ok(()),
    }
}

fn load_options<'a>(input: &InputArgs) -> LoadOptions<'a> {
    LoadOptions::new().max_input(input.size.max_input).process(input.process_choice())
}

/// Returns the name that hints use for an input.
fn display_name(path: &Path) -> Cow<'_, str> {
    if path == Path::new("-") { "standard input".into() } else { path.to_string_lossy() }
}

/// Checks that all paths in `--symbols` exist.
///
/// # Errors
/// Returns a usage error that names the first missing path.
pub(crate) fn check_places(symbols: &SymbolsArgs) -> Result<(), CliError> {
    match symbols.places.iter().find(|place| !place.exists()) {
        Some(missing) => {
            Err(CliError::Usage(format!("--symbols {}: there is no such folder or file", missing.display())))
        }
        None => Ok(()),
    }
}

/// Reads one of many files on a worker thread. It shows no progress bar, and returns the warning instead of printing it.
///
/// # Errors
/// Fails in the same cases as [`load_with`].
pub(crate) fn load_on_thread(
    path: &Path,
    input: &InputArgs,
    symbols: &SymbolsArgs,
) -> Result<(Loaded, Option<String>), CliError> {
    let head = read_head(path);
    check_kind(path, &head)?;
    let mut loaded =
        Snapshot::open(path, load_options(input)).map_err(|error| load_error(path, &head, error))?;
    loaded.snapshot.symbol_folders.clone_from(&symbols.places);
    check_process(&loaded, path, input)?;
    let which = loaded.report.as_ref().and_then(|report| which_process(report, input));
    let warnings: Vec<String> = load_warning(&loaded).into_iter().chain(which).collect();
    let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
    Ok((loaded, warning))
}

fn load_error(path: &Path, head: &[u8], error: LoadError) -> CliError {
    match error {
        LoadError::Recording(error @ RecordingError::NoProcess { .. }) => {
            CliError::Usage(format!("--process: {}: {error}", path.display()))
        }
        error => unusable_file_error(path, head, &SNAPSHOT_KINDS, error),
    }
}

/// Returns a hint about which of several processes the report covers, unless the user has chosen that process by its id. With
/// `--all`, returns a hint about processes that were not recorded, if there are any.
fn which_process(report: &ReadReport, input: &InputArgs) -> Option<String> {
    let processes: BTreeSet<u32> = report.processes.iter().map(|row| row.pid).collect();
    if input.all {
        let unrecorded = report.unrecorded.count();
        return (unrecorded > 0).then(|| {
            let processes = counted_processes(unrecorded);
            format!("{processes} not recorded, so numbers over all processes are lower limits")
        });
    }
    let row = report.chosen_process()?;
    let is_chosen_by_id = input.process.as_ref().is_some_and(|process| process.parse() == Ok(row.pid));
    if processes.len() < 2 || is_chosen_by_id || matches!(input.chosen, Some(ProcessChoice::Number(_))) {
        return None;
    }
    let command: String = printable(&row.short_command_line()).chars().take(MAX_COMMAND).collect();
    let (pid, all) = (row.pid, processes.len());
    Some(format!(
        "about process {pid}, {command}, of {all}; --process PID or --all selects others, `memtrack processes` lists them"
    ))
}

/// Formats a number of processes with the verb that follows.
fn counted_processes(count: u64) -> String {
    if count == 1 { "1 process is".to_owned() } else { format!("{count} processes are") }
}

/// Checks the process that the user has chosen with `--process`. If the file does not list the processes of a run, it must be
/// the recording of the chosen process.
fn check_process(loaded: &Loaded, path: &Path, input: &InputArgs) -> Result<(), CliError> {
    let Some(wanted) = &input.process else { return Ok(()) };
    match &loaded.report {
        Some(report) if !report.processes.is_empty() => Ok(()),
        Some(_) => {
            let meta = &loaded.snapshot.meta;
            let row = ProcessRow { pid: meta.pid, program: meta.program.clone(), ..ProcessRow::default() };
            if wanted.parse() == Ok(row.pid) || row.is_named(wanted) {
                return Ok(());
            }
            let (name, pid, program) = (path.display(), row.pid, printable(&row.program));
            Err(CliError::Usage(format!(
                "--process {wanted}: {name} is the recording of one process, {pid} ({program})"
            )))
        }
        None => Err(CliError::Usage(format!(
            "--process {wanted}: {} is a snapshot of one process, and does not contain its id",
            path.display()
        ))),
    }
}

/// Reads all processes of the recording of a run, each as a separate snapshot.
///
/// # Errors
/// Fails if the file cannot be read, is larger than `--max-input`, or is not a recording.
pub(crate) fn read_processes(
    path: &Path,
    size: InputSizeArgs,
    streams: &mut Streams<'_>,
) -> Result<(Vec<(ProcessRow, Snapshot)>, ReadReport), CliError> {
    let (snapshots, report) = {
        let (head, stdin) = open_head(path, &mut *streams.stdin)?;
        let options = LoadOptions::new().max_input(size.max_input);
        let read = match stdin {
            Some(stdin) => open_processes(stdin, options),
            None => {
                open_parts(path).map_err(LoadError::from).and_then(|parts| open_processes(parts, options))
            }
        };
        let unusable =
            |error: &dyn std::fmt::Display| unusable_file_error(path, &head, &[Kind::Recording], error);
        let (snapshots, report) = read.map_err(|error| unusable(&error))?;
        if snapshots.is_empty() {
            return Err(unusable(&"it has no processes"));
        }
        (snapshots, report)
    };
    if let Some(warning) = report.warning() {
        streams.note(format_args!("memtrack: warning: {}: {warning}", display_name(path)));
    }
    Ok((snapshots, report))
}

/// Returns the warning about a loaded file if the recording is incomplete or a checksum is wrong.
fn load_warning(loaded: &Loaded) -> Option<String> {
    let warning = loaded.report.as_ref().and_then(|report| report.warning());
    let checksum_error =
        loaded.checksum_error.as_ref().map(|why| format!("the snapshot was read, but {why}"));
    warning.or(checksum_error)
}

/// Reads a file like [`load_file`] and converts the snapshot to PyTorch's form. It prints no hint that a recording was off, because
/// verbs that PyTorch also has print only what PyTorch prints.
///
/// # Errors
/// Fails in the same cases as [`load_with`].
pub(crate) fn load_pytorch(file: &FileArgs, streams: &mut Streams<'_>) -> Result<PytorchSnapshot, CliError> {
    let loaded = read(&file.path, &file.input, &file.symbols, true, streams)?;
    Ok(convert_to_pytorch(loaded.snapshot))
}

/// Reads only the segments of a file, in PyTorch's form.
///
/// # Errors
/// Fails in the same cases as [`load_with`].
pub(crate) fn load_segments(
    path: &Path,
    input: &InputArgs,
    symbols: &SymbolsArgs,
    streams: &mut Streams<'_>,
) -> Result<PytorchSnapshot, CliError> {
    Ok(convert_to_pytorch(read(path, input, symbols, false, streams)?.snapshot))
}

/// Converts a snapshot from any kind of file to PyTorch's form.
pub(crate) fn convert_to_pytorch(snapshot: Snapshot) -> PytorchSnapshot {
    let mut symbols = Symbolizer::of(&snapshot);
    snapshot.into_pytorch(&mut symbols)
}

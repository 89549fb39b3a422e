//! How every verb gets its snapshot: from a file of any kind or standard input, with a bound on its size, a progress
//! line for whoever waits, and a warning when a recording is not whole.

use crate::Streams;
use crate::args::InputArgs;
use crate::error::CliError;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::{Loaded, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Loads that take less time show no progress.
const PATIENCE: Duration = Duration::from_millis(700);
/// Between two progress lines.
const PAUSE: Duration = Duration::from_millis(100);

/// Reads the snapshot at `path`, or for `-` from standard input.
///
/// # Errors
/// When it cannot be read, is larger than `--max-input`, or is no snapshot.
pub(crate) fn load(path: &Path, input: InputArgs, streams: &mut Streams<'_>) -> Result<Loaded, CliError> {
    read(path, input, true, streams)
}

fn read(path: &Path, input: InputArgs, events: bool, streams: &mut Streams<'_>) -> Result<Loaded, CliError> {
    let from_stdin = path == Path::new("-");
    let total = if from_stdin { None } else { path.metadata().ok().map(|file| file.len()) };
    let mut progress = Progress { total, start: Instant::now(), next: PATIENCE, shown: false };
    // The progress line is for people in front of a terminal only.
    let watched = std::io::stderr().is_terminal();
    let loaded = {
        let stderr = &mut *streams.stderr;
        let mut report = |bytes| progress.show(bytes, stderr);
        let options = LoadOptions {
            max_input: input.max_input,
            progress: watched.then_some(&mut report as &mut dyn FnMut(u64)),
            events,
        };
        if from_stdin {
            Snapshot::open_stream(&mut *streams.stdin, options)
        } else {
            Snapshot::open(path, options)
        }
    };
    if progress.shown {
        let _ = write!(streams.stderr, "\r\x1b[K");
    }
    let loaded = loaded.map_err(|error| CliError::input(path, error))?;
    if let Some(warning) = loaded.report.as_ref().and_then(|report| report.warning()) {
        // A warning; when nobody can read it, the report is right all the same.
        let name = if from_stdin { "standard input".into() } else { path.to_string_lossy() };
        let _ = writeln!(streams.stderr, "memtrack: warning: {name}: {warning}");
    }
    Ok(loaded)
}

/// The same in PyTorch's form, whatever the file is.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_pytorch(
    path: &Path,
    input: InputArgs,
    streams: &mut Streams<'_>,
) -> Result<Snapshot, CliError> {
    Ok(in_pytorch_form(load(path, input, streams)?.snapshot))
}

/// The same for a question to the segments alone: a PyTorch file's events are passed over, which is most of the work.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_segments(
    path: &Path,
    input: InputArgs,
    streams: &mut Streams<'_>,
) -> Result<Snapshot, CliError> {
    Ok(in_pytorch_form(read(path, input, false, streams)?.snapshot))
}

fn in_pytorch_form(snapshot: Snapshot) -> Snapshot {
    if snapshot.pytorch.is_some() {
        return snapshot;
    }
    snapshot.as_pytorch(&mut Symbolizer::of(&snapshot))
}

/// The line that says how far a load is.
struct Progress {
    total: Option<u64>,
    start: Instant,
    next: Duration,
    shown: bool,
}

impl Progress {
    fn show(&mut self, bytes: u64, stderr: &mut dyn Write) {
        let elapsed = self.start.elapsed();
        if elapsed < self.next {
            return;
        }
        self.next = elapsed + PAUSE;
        self.shown = true;
        let mib = bytes >> 20;
        // Whether it can be shown does not matter to the load.
        let _ = match self.total {
            Some(total) if total > 0 => {
                let percent = bytes.min(total) * 100 / total;
                write!(stderr, "\rreading: {percent:3} %  {mib} of {} MiB\x1b[K", total >> 20)
            }
            _ => write!(stderr, "\rreading: {mib} MiB\x1b[K"),
        };
        let _ = stderr.flush();
    }
}

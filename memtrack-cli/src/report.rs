//! Output code shared by the reports: the terminal's width, and warnings on standard error.

use crate::Streams;
use crate::args::TextArgs;
use crate::error::CliError;
use memtrack_core::analysis::layout::Layout;
use memtrack_core::analysis::units::printable;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::viz::Inconsistencies;
use std::io;
use std::path::Path;

/// Returns the layout of a report: the number of frames, and the width.
pub(crate) fn layout(text: TextArgs) -> Layout {
    Layout::new().width(width(text.wide)).frames(text.frames)
}

/// Returns the width of a report according to `COLUMNS`, the terminal or, failing both, a default; `None` with `--wide`.
pub(crate) fn width(wide: bool) -> Option<usize> {
    (!wide).then(memtrack_core::__report_width)
}

/// Prints a report for each device, separated by blank lines, or a message if there is no device.
pub(crate) fn print_devices<T: std::fmt::Display>(
    devices: &[T],
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    if devices.is_empty() {
        writeln!(streams.stdout, "The snapshot holds no memory and no events.")?;
    }
    for (place, device) in devices.iter().enumerate() {
        let between = if place > 0 { "\n" } else { "" };
        write!(streams.stdout, "{between}{device}")?;
    }
    Ok(())
}

/// Warns on standard error about the inconsistencies in a file.
pub(crate) fn mention_inconsistencies(odd: &Inconsistencies, streams: &mut Streams<'_>) {
    for line in odd.lines() {
        streams.note(format_args!("memtrack: warning: {}", printable(&line)));
    }
}

/// Warns on standard error that sums over a file's blocks are estimates, for outputs that do not show errors.
pub(crate) fn mention_samples(snapshot: &Snapshot, streams: &mut Streams<'_>) {
    if snapshot.has_samples() {
        streams.note(format_args!(
            "memtrack: warning: small blocks were sampled: each sample is shown as large as all the blocks \
             it represents, and sums are estimates (`memtrack summary` reports their error)"
        ));
    }
}

/// Returns the error for a failed report, which states that the file at `path` is unsuitable or that the output cannot be
/// written.
pub(crate) fn report_error(path: &Path, error: io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::InvalidData => CliError::input(path, error),
        _ => error.into(),
    }
}

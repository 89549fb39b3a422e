//! Flame graphs of [`Usage`] by inferno. Nothing negative and nothing empty reaches it.

use super::{Grouping, Usage};
use crate::replacing_file::ReplacingFile;
use crate::snapshot::Snapshot;
use inferno::flamegraph::{Options, from_lines};
use std::io::{self, Write};
use std::path::Path;

/// Draws `lines`, each `frame;frame bytes` as [`Usage::lines`] has them, as an SVG image that needs nothing else. Equal
/// lines make equal images; no lines make one that says so.
///
/// # Errors
/// When `out` cannot be written, or a line does not end in a number.
pub fn flame_graph(title: &str, lines: &[String], out: &mut impl Write) -> io::Result<()> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = "bytes".to_owned();
    options.name_type = "Frame:".to_owned();
    options.deterministic = true;
    let nothing = ["(nothing to show) 1".to_owned()];
    let lines = if lines.is_empty() { &nothing } else { lines };
    from_lines(&mut options, lines.iter().map(String::as_str), out).map_err(io::Error::other)
}

/// Draws what the segments of a snapshot hold to `path`, replacing what is there: requested bytes under their stacks,
/// rounding apart, free blocks as free.
///
/// # Errors
/// When the snapshot is not in PyTorch's form, or the file cannot be written.
pub fn save_usage(snapshot: &Snapshot, grouping: Grouping, path: impl AsRef<Path>) -> io::Result<()> {
    let lines = Usage::of(snapshot, grouping)?.lines("");
    let mut file = ReplacingFile::create(path.as_ref())?;
    flame_graph(grouping.title(), &lines, &mut file)?;
    file.commit()
}

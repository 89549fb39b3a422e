//! Flame graphs by inferno. The verbs that draw segments give it lines of their own making; nothing negative and
//! nothing empty reaches it.

use crate::Streams;
use crate::error::CliError;
use crate::output::write_files;
use inferno::flamegraph::{Options, from_lines};
use std::path::Path;

/// Draws `lines` (`frame;frame bytes`) to `target`, and says so.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(
    target: &Path,
    title: &str,
    lines: &[String],
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = "bytes".to_owned();
    options.name_type = "Frame:".to_owned();
    options.deterministic = true;
    let mut svg = Vec::new();
    let nothing = ["(nothing to show) 1".to_owned()];
    let lines = if lines.is_empty() { &nothing } else { lines };
    from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| CliError::output(target, error))?;
    write_files(&[(target.to_owned(), svg)])?;
    // A hint; when nobody can read it, the file is there all the same.
    let _ = writeln!(streams.stderr, "wrote {}", target.display());
    Ok(())
}

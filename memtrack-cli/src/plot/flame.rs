//! Flame graphs as files: memtrack-core draws them.

use crate::Streams;
use crate::error::CliError;
use crate::output::write_files;
use memtrack_core::viz::flame_graph;
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
    let mut svg = Vec::new();
    flame_graph(title, lines, &mut svg).map_err(|error| CliError::output(target, error))?;
    write_files(&[(target.to_owned(), svg)])?;
    // A hint; when nobody can read it, the file is there all the same.
    let _ = writeln!(streams.stderr, "wrote {}", target.display());
    Ok(())
}

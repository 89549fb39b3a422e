//! Draws flame graphs with memtrack-core and writes them to files.

use crate::Streams;
use crate::error::CliError;
use crate::output::{check_targets, mention_written, write_files};
use memtrack_core::viz::flame_graph;
use std::path::Path;

/// Checks that a flame graph may be written to `target`.
///
/// # Errors
/// Fails if the suffix does not denote an SVG file, or if the file exists and `force` is not set.
pub(crate) fn check_target(target: &Path, force: bool) -> Result<(), CliError> {
    match target.extension() {
        Some(suffix) if suffix != "svg" => {
            Err(CliError::Usage(format!("flame graphs are SVG files: {} must end in .svg", target.display())))
        }
        _ => check_targets([target], force),
    }
}

/// Draws `lines` (`frame;frame bytes`) to `target` and reports that the file was written.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn write(
    target: &Path,
    title: &str,
    lines: &[String],
    streams: &mut Streams<'_>,
) -> Result<(), CliError> {
    let mut svg = Vec::new();
    flame_graph(title, lines, &mut svg).map_err(|error| CliError::output(target, error))?;
    write_files(&[(target.to_owned(), svg)])?;
    mention_written(target, streams);
    Ok(())
}

/// Joins the lines of a flame graph for other tools.
pub(crate) fn folded_text(lines: Vec<String>) -> Vec<u8> {
    lines.into_iter().flat_map(|line| (line + "\n").into_bytes()).collect()
}

//! `memtrack tracker`: the operators during which memory grew most.

use crate::Streams;
use crate::answers::{self, TrackerAnswer};
use crate::args::TrackerArgs;
use crate::error::{CliError, Exit};
use crate::neighbours::{Kind, read_head, read_stdin_head, unusable_file_error};
use crate::output::{check_targets, write_files};
use crate::plot::FigureFiles;
use memtrack_core::tracker::TrackerStats;
use std::path::Path;

/// Loads the statistics, writes the requested figures, and prints the summary.
pub(crate) fn run(args: &TrackerArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let figures = args.output.output.as_deref().map(FigureFiles::from_output).transpose()?;
    if let Some(figures) = &figures {
        check_targets(figures.targets(), args.output.force)?;
    }
    let stats = load(&args.stats, streams)?;
    let summary = stats.summary(args.top.top).map_err(|error| CliError::input(&args.stats, error))?;
    if let Some(figures) = &figures {
        write_files(&figures.render(&stats)?)?;
        for target in figures.targets() {
            // Ignore a failure to print this hint, because the files are complete without it.
            let _ = writeln!(streams.stderr, "wrote {}", target.display());
        }
    }
    if args.format.json {
        answers::TRACKER.print(&TrackerAnswer::of(&summary), streams)?;
    } else {
        writeln!(streams.stdout, "{summary}")?;
    }
    Ok(Exit::Success)
}

/// Reads the statistics from a file or, for `-`, from standard input.
fn load(path: &Path, streams: &mut Streams<'_>) -> Result<TrackerStats, CliError> {
    let own = [Kind::Statistics];
    if path == Path::new("-") {
        let (head, stdin) = read_stdin_head(&mut *streams.stdin)?;
        return TrackerStats::load_from(stdin).map_err(|error| unusable_file_error(path, &head, &own, error));
    }
    TrackerStats::load(path).map_err(|error| unusable_file_error(path, &read_head(path), &own, error))
}

//! `memtrack tracker`: which operators made memory grow.

use crate::Streams;
use crate::args::TrackerArgs;
use crate::error::{CliError, Exit};
use crate::output::{check_targets, write_files};
use crate::plot::FigureFiles;
use memtrack_core::tracker::TrackerStats;
use std::path::Path;

/// Loads the statistics, writes the figures that were asked for, prints the summary.
pub(crate) fn run(args: &TrackerArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let figures = args.output.output.as_deref().map(FigureFiles::for_output).transpose()?;
    if let Some(figures) = &figures {
        check_targets(figures.targets(), args.output.force)?;
    }
    let stats = load(&args.stats, streams)?;
    let summary = stats.summary(args.top.top).map_err(|error| CliError::input(&args.stats, error))?;
    if let Some(figures) = &figures {
        write_files(&figures.render(&stats)?)?;
        for target in figures.targets() {
            // A hint; when nobody can read it, the files are there all the same.
            let _ = writeln!(streams.stderr, "wrote {}", target.display());
        }
    }
    if args.format.json {
        serde_json::to_writer_pretty(&mut *streams.stdout, &summary).map_err(std::io::Error::from)?;
        writeln!(streams.stdout)?;
    } else {
        writeln!(streams.stdout, "{summary}")?;
    }
    Ok(Exit::Fine)
}

/// Reads the statistics from a file or, for `-`, from standard input.
fn load(path: &Path, streams: &mut Streams<'_>) -> Result<TrackerStats, CliError> {
    let stats = if path == Path::new("-") {
        TrackerStats::load_from(&mut *streams.stdin)
    } else {
        TrackerStats::load(path)
    };
    stats.map_err(|error| CliError::input(path, error))
}

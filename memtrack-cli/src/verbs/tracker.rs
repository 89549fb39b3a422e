//! `memtrack tracker`: the operators during which memory grew most.

use super::prelude::*;
use crate::png;
use memtrack_core::tracker::figures::{Figure, FigureError, render_html, render_svg};
use memtrack_core::tracker::{Summary, TrackerStats};

/// Show which operators made memory grow, from the statistics of PyTorch's MemoryTracker
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack tracker stats.pickle                      the 20 operators that added most memory
  memtrack tracker stats.pickle --top 5 --json       the same as JSON, five of them
  memtrack tracker stats.pickle -o figures.html      and the figures, as one page
  memtrack tracker stats.pickle -o figures.svg       figures-all.svg, -allocated, -active, -reserved
  cat stats.pickle | memtrack tracker -              from a pipe

Reads the files of PyTorch's MemoryTracker.save_stats and of memtrack, compressed or not; nothing in them is ever executed.
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct TrackerArgs {
    /// The statistics file; `-` reads standard input
    #[arg(value_name = "STATS.pickle")]
    pub(crate) stats: PathBuf,
    /// How many rows to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = parse_count, allow_hyphen_values = true)]
    pub(crate) top: usize,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// Also write figures; the suffix selects the format: .html, .svg or .png
    #[arg(short, long, value_name = "FIGURES")]
    pub(crate) output: Option<PathBuf>,
    /// Replace output files that exist
    #[arg(long)]
    pub(crate) force: bool,
}

pub(super) const ANSWER: Answer<Summary> = Answer::new("tracker", 1);

/// Loads the statistics, writes the requested figures, and prints the summary.
pub(super) fn run(args: &TrackerArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let figures = args.output.as_deref().map(figure_files).transpose()?.unwrap_or_default();
    check_targets(figures.iter().map(|(target, _)| &**target), args.force)?;
    let stats = read_file(&args.stats, &[Kind::Statistics], streams, |file| TrackerStats::load_from(file))?;
    let summary = stats.summary(args.top).map_err(|error| CliError::input(&args.stats, error))?;
    let mut files = Vec::new();
    for (target, draw) in &figures {
        let content = draw(&stats).map_err(|error| CliError::output(target, error))?;
        files.push((target.clone(), content));
    }
    write_files(&files)?;
    for (target, _) in &files {
        mention_written(target, streams);
    }
    if args.format.json {
        ANSWER.print(&summary, streams)?;
    } else {
        writeln!(streams.stdout, "{summary}")?;
    }
    Ok(Exit::Success)
}

/// Draws a figure, and returns the content of its file.
type Draw = Box<dyn Fn(&TrackerStats) -> Result<Vec<u8>, FigureError>>;

/// Returns the files for the output name `output`, and how each is drawn: one HTML page, or one file for each of
/// [`Figure::EACH`]. memtrack-core draws SVG and HTML; PNG is drawn here, because it needs a font.
///
/// # Errors
/// Returns a usage error if the suffix of `output` is unknown.
fn figure_files(output: &Path) -> Result<Vec<(PathBuf, Draw)>, CliError> {
    let suffix = output.extension().map(|suffix| suffix.to_string_lossy().to_ascii_lowercase());
    let each = |draw: fn(&TrackerStats, Figure) -> Result<Vec<u8>, FigureError>| {
        let file = |figure: Figure| -> (PathBuf, Draw) {
            (figure.path(output), Box::new(move |stats| draw(stats, figure)))
        };
        Ok(Figure::EACH.into_iter().map(file).collect())
    };
    match suffix.as_deref() {
        Some("html") => {
            let draw: Draw = Box::new(|stats| render_html(stats).map(String::into_bytes));
            Ok(vec![(output.to_owned(), draw)])
        }
        Some("svg") => each(|stats, figure| render_svg(stats, figure).map(String::into_bytes)),
        Some("png") => each(png::render),
        _ => Err(CliError::Usage(format!(
            "{}: unknown kind of figure; end the name in .html, .svg or .png",
            output.display()
        ))),
    }
}

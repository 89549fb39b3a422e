//! Writes a tracker's figures to files whose names are derived from the output's name. memtrack-core draws SVG and HTML; PNG is
//! drawn here, because it needs a font.

pub(crate) mod flame;
pub(crate) mod png;

use crate::error::CliError;
use memtrack_core::tracker::TrackerStats;
use memtrack_core::tracker::figures::{Figure, FigureError, render_html, render_svg};
use std::path::{Path, PathBuf};

/// The kinds of figure files, which are distinguished by suffix.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Html,
    Svg,
    Png,
}

/// The files that a tracker's figures are written to.
#[derive(Debug)]
pub(crate) struct FigureFiles {
    kind: Kind,
    /// One file for an HTML page, otherwise one for each of [`Figure::EACH`].
    targets: Vec<PathBuf>,
}

impl FigureFiles {
    /// Returns the files for the output name `output`.
    ///
    /// # Errors
    /// Returns a usage error if the suffix of `output` is unknown.
    pub(crate) fn from_output(output: &Path) -> Result<Self, CliError> {
        let suffix = output.extension().map(|suffix| suffix.to_string_lossy().to_ascii_lowercase());
        let kind = match suffix.as_deref() {
            Some("html") => Kind::Html,
            Some("svg") => Kind::Svg,
            Some("png") => Kind::Png,
            _ => {
                return Err(CliError::Usage(format!(
                    "{}: unknown kind of figure; end the name in .html, .svg or .png",
                    output.display()
                )));
            }
        };
        let targets = match kind {
            Kind::Html => vec![output.to_owned()],
            Kind::Svg | Kind::Png => Figure::EACH.iter().map(|figure| figure.path(output)).collect(),
        };
        Ok(Self { kind, targets })
    }

    /// Returns the paths of the files to write.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Path> {
        self.targets.iter().map(PathBuf::as_path)
    }

    /// Draws the figures and returns the path and content of each file.
    ///
    /// # Errors
    /// Fails if a figure cannot be drawn.
    pub(crate) fn render(&self, stats: &TrackerStats) -> Result<Vec<(PathBuf, Vec<u8>)>, CliError> {
        let figures = self.targets.iter().zip(Figure::EACH);
        let files = figures.map(|(target, figure)| {
            let content = match self.kind {
                Kind::Html => render_html(stats).map(String::into_bytes),
                Kind::Svg => render_svg(stats, figure).map(String::into_bytes),
                Kind::Png => png::render(stats, figure),
            };
            let content = content.map_err(|error: FigureError| CliError::output(target, error))?;
            Ok((target.clone(), content))
        });
        files.collect()
    }
}

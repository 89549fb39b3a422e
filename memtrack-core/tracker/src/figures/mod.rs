//! The four figures of PyTorch's `MemoryTracker.show_traces`: one of all counters together, and one of each counter
//! alone. memtrack draws step lines in MiB and also names the markers in the legend. The peak, which the series may
//! miss, is a separate line. The library writes SVG and HTML. [`draw`] accepts any plotters backend, and the command
//! uses it to write PNG.
//!
//! No code here measures text with a font, because SVG is drawn without fonts. The layout is therefore the same for all
//! backends.

mod chart;
mod html;
mod marks;
mod palette;
mod peak;
mod steps;

pub use chart::{HEIGHT, WIDTH, draw};
pub use html::render_html;

use super::TrackerStats;
use memtrack_file::ReplacingFile;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// One of the four figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Allocated, active and reserved memory together.
    All,
    /// Memory allocated by the program.
    Allocated,
    /// Memory allocated, or freed but still in use by a stream.
    Active,
    /// Memory obtained from the driver.
    Reserved,
}

impl Figure {
    /// All four figures, in PyTorch's order.
    pub const EACH: [Self; 4] = [Self::All, Self::Allocated, Self::Active, Self::Reserved];

    /// Returns the figure's name as it appears in file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Allocated => "allocated",
            Self::Active => "active",
            Self::Reserved => "reserved",
        }
    }

    /// Returns the figure's title.
    const fn title(self) -> &'static str {
        match self {
            Self::All => "Memory after each operator",
            Self::Allocated => "Allocated memory after each operator",
            Self::Active => "Active memory after each operator",
            Self::Reserved => "Reserved memory after each operator",
        }
    }

    /// Returns the path of this figure's file, in the same folder as `path`. For example, `run.svg` becomes
    /// `run-allocated.svg`.
    pub fn path(self, path: &Path) -> PathBuf {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push("-");
        name.push(self.name());
        if let Some(suffix) = path.extension() {
            name.push(".");
            name.push(suffix);
        }
        path.with_file_name(name)
    }
}

/// Renders a figure as an SVG image. Text remains text, which the viewer shows in its sans-serif font.
///
/// # Errors
/// Never fails in practice, because it draws to memory.
pub fn render_svg(stats: &TrackerStats, figure: Figure) -> Result<String, FigureError> {
    memtrack_figures::render_svg((WIDTH, HEIGHT), |root, scale| draw(stats, figure, root, scale))
        .map_err(FigureError::Draw)
}

/// Writes the figures and returns the paths of the files written. For `run.html`, this is one self-contained page; for
/// `run.svg`, it is the four files `run-all.svg`, `run-allocated.svg`, `run-active.svg` and `run-reserved.svg`.
/// Existing files are replaced. (PyTorch's `show_traces` draws its figures but leaves showing and saving them to the
/// caller.)
///
/// # Errors
/// Fails when the suffix is neither `.html` nor `.svg`, or a file cannot be written.
pub fn write_figures(stats: &TrackerStats, path: impl AsRef<Path>) -> Result<Vec<PathBuf>, FigureError> {
    let path = path.as_ref();
    let mut files = Vec::new();
    match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("html") => files.push((path.to_owned(), render_html(stats)?)),
        Some("svg") => {
            for figure in Figure::EACH {
                files.push((figure.path(path), render_svg(stats, figure)?));
            }
        }
        _ => return Err(FigureError::Suffix(path.to_owned())),
    }
    for (target, content) in &files {
        let written = ReplacingFile::create(target).and_then(|mut file| {
            file.write_all(content.as_bytes())?;
            file.commit()
        });
        written.map_err(|error| FigureError::Io(target.clone(), error))?;
    }
    Ok(files.into_iter().map(|(target, _)| target).collect())
}

/// The reason why figures could not be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum FigureError {
    /// The file's suffix is neither `.html` nor `.svg`.
    Suffix(PathBuf),
    /// The file cannot be written.
    Io(PathBuf, io::Error),
    /// The drawing backend failed.
    Draw(String),
}

impl fmt::Display for FigureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suffix(path) => {
                write!(f, "{}: the suffix is neither .html nor .svg; choose one of them", path.display())
            }
            Self::Io(path, error) => write!(f, "cannot write {}: {error}", path.display()),
            Self::Draw(error) => write!(f, "the figure cannot be drawn: {error}"),
        }
    }
}

impl std::error::Error for FigureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;

//! The elements of all figures: axes, a canvas and its colours. Nothing here measures text with a font: SVG is
//! drawn without any, and the layout is the same for all backends.

mod axis;
mod canvas;

pub use axis::Axis;
pub use canvas::{Canvas, Drawn, Font, LABEL, LEGEND, Point, TITLE, width_of};

use plotters::style::RGBColor;

/// The background of figures.
pub const BACKGROUND: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// The colour of text that is read first.
pub const TEXT: RGBColor = RGBColor(0x1f, 0x23, 0x28);
/// The colour of text that is read last.
pub const MUTED: RGBColor = RGBColor(0x57, 0x60, 0x6a);
/// The lines of a grid.
pub const GRID: RGBColor = RGBColor(0xe6, 0xe9, 0xed);
/// The lines of axes.
pub const AXIS: RGBColor = RGBColor(0x8c, 0x95, 0x9f);

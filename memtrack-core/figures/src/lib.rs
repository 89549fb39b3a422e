//! The building blocks of all figures: axes, a canvas and its colours. No code here measures text with a font, because
//! SVG is drawn without fonts. The layout is therefore the same for all backends.

mod axis;
mod canvas;

pub use axis::Axis;
pub use canvas::{
    Canvas, DrawResult, Font, LABEL_FONT, LEGEND_FONT, Point, TITLE_FONT, render_svg, text_width,
};

use plotters::style::RGBColor;

/// The background colour of figures.
pub const BACKGROUND: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// The colour of titles and legends.
pub const TEXT: RGBColor = RGBColor(0x1f, 0x23, 0x28);
/// The colour of labels, which are less prominent than [`TEXT`].
pub const MUTED: RGBColor = RGBColor(0x57, 0x60, 0x6a);
/// The colour of grid lines.
pub const GRID: RGBColor = RGBColor(0xe6, 0xe9, 0xed);
/// The colour of axes.
pub const AXIS: RGBColor = RGBColor(0x8c, 0x95, 0x9f);

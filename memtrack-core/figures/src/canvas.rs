//! The drawing primitives shared by all figures: lines, areas and text on any plotters backend.

use super::{BACKGROUND, MUTED, TEXT};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::element::{PathElement, Polygon, Rectangle, Text};
use plotters::prelude::{DrawingArea, DrawingBackend, IntoDrawingArea, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, IntoTextStyle, RGBColor, ShapeStyle, TextStyle,
};

/// A point in pixels.
pub type Point = (i32, i32);

/// A drawing area. Text, line and rectangle coordinates are in pixels at scale 1; path and area coordinates are in real
/// pixels.
pub struct Canvas<'a, DB: DrawingBackend> {
    root: &'a DrawingArea<DB, Shift>,
    scale: i32,
}

/// The result of a drawing operation.
pub type DrawResult<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// A font, given by its size in pixels at scale 1, its style and its colour.
pub type Font = (i32, FontStyle, RGBColor);

/// The font for tick and axis labels.
pub const LABEL_FONT: Font = (12, FontStyle::Normal, MUTED);
/// The font for legends.
pub const LEGEND_FONT: Font = (13, FontStyle::Normal, TEXT);
/// The font for titles.
pub const TITLE_FONT: Font = (16, FontStyle::Bold, TEXT);

impl<'a, DB: DrawingBackend> Canvas<'a, DB> {
    /// Creates a canvas that covers `root`, with `scale` real pixels per pixel at scale 1.
    pub const fn new(root: &'a DrawingArea<DB, Shift>, scale: u32) -> Self {
        Self { root, scale: scale as i32 }
    }

    /// Returns the number of real pixels per pixel at scale 1.
    pub const fn scale(&self) -> i32 {
        self.scale
    }

    /// Fills the background, which is `width` × `height` pixels at scale 1.
    ///
    /// # Errors
    /// Returns backend errors, as do all methods below.
    pub fn fill_background(&self, width: u32, height: u32) -> DrawResult<DB> {
        let corner = (width as i32 * self.scale, height as i32 * self.scale);
        self.root.draw(&Rectangle::new([(0, 0), corner], BACKGROUND.filled()))
    }

    /// Fills the polygon with the given corners, in real pixels. The opacity ranges from 0 to 1.
    pub fn fill_area(&self, points: Vec<Point>, color: RGBColor, opacity: f64) -> DrawResult<DB> {
        self.root.draw(&Polygon::new(points, color.mix(opacity).filled()))
    }

    /// Fills the rectangle between two corners, given in pixels at scale 1.
    pub fn fill_rectangle(&self, from: Point, to: Point, color: RGBColor, opacity: f64) -> DrawResult<DB> {
        let real = |point: Point| (point.0 * self.scale, point.1 * self.scale);
        self.root.draw(&Rectangle::new([real(from), real(to)], color.mix(opacity).filled()))
    }

    /// Draws a line through points given in real pixels. `width` is in half pixels at scale 1.
    pub fn draw_path(&self, points: Vec<Point>, color: RGBColor, width: i32) -> DrawResult<DB> {
        let style = ShapeStyle::from(color).stroke_width((width * self.scale / 2).max(1) as u32);
        self.root.draw(&PathElement::new(points, style))
    }

    /// Draws a straight line between two points given in pixels at scale 1. `width` is in half pixels.
    pub fn draw_line(&self, from: Point, to: Point, color: RGBColor, width: i32) -> DrawResult<DB> {
        let real = |point: Point| (point.0 * self.scale, point.1 * self.scale);
        self.draw_path(vec![real(from), real(to)], color, width)
    }

    /// Draws text that starts at, ends at or is centred on a point given in pixels at scale 1.
    pub fn draw_text(&self, text: &str, at: Point, horizontal: HPos, font: Font) -> DrawResult<DB> {
        let (size, style, color) = font;
        // plotters measures text by line height, which is 1.24 times the font size.
        let size = f64::from(size * self.scale) * 1.24;
        let style: TextStyle = FontDesc::new(FontFamily::SansSerif, size, style).into_text_style(self.root);
        // Backends differ by a pixel or two in where they place the vertical middle of text; they agree best on the
        // bottom of text.
        let style = style.color(&color).pos(Pos::new(horizontal, VPos::Bottom));
        let bottom = at.1 * self.scale + font.0 * self.scale * 66 / 100;
        self.root.draw(&Text::new(text.to_owned(), (at.0 * self.scale, bottom), style))
    }
}

/// Returns an upper bound on the width of a text, in pixels, for a font of the given `size`.
pub fn text_width(text: &str, size: i32) -> i32 {
    let ems: f64 = text.chars().map(|character| if character.is_ascii() { 0.64 } else { 1.05 }).sum();
    (ems * f64::from(size)).ceil() as i32
}

/// Renders a figure of `width` × `height` pixels as an SVG image. Text remains text, which the viewer shows in its
/// sans-serif font. `draw` receives a drawing area of that size times a scale, and the scale.
///
/// # Errors
/// Fails if `draw` does. Never fails in practice, because it draws to memory.
pub fn render_svg(
    (width, height): (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>, u32) -> DrawResult<SVGBackend<'static>>,
) -> Result<String, String> {
    // This backend has integer coordinates, so drawing at twice the size makes half pixels possible.
    const SCALE: u32 = 2;
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (width * SCALE, height * SCALE)).into_drawing_area();
    draw(&root, SCALE).map_err(|error| error.to_string())?;
    drop(root);
    let drawn = format!("width=\"{}\" height=\"{}\"", width * SCALE, height * SCALE);
    let shown = format!("role=\"img\" width=\"{width}\" height=\"{height}\"");
    Ok(svg.replacen(&drawn, &shown, 1))
}

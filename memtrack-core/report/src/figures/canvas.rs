//! The drawing primitives of all figures: lines, areas and text on any plotters backend.

use super::{BACKGROUND, MUTED, TEXT};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::element::{PathElement, Polygon, Rectangle, Text};
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, IntoTextStyle, RGBColor, ShapeStyle, TextStyle,
};

/// A point in pixels.
pub type Point = (i32, i32);

/// A drawing area. Coordinates of text and rectangles are in pixels of scale 1, those of paths and areas in real pixels.
pub struct Canvas<'a, DB: DrawingBackend> {
    root: &'a DrawingArea<DB, Shift>,
    scale: i32,
}

/// The result of drawing.
pub type DrawResult<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// A font: its size in pixels of scale 1, its style and its colour.
pub type Font = (i32, FontStyle, RGBColor);

/// The font for the labels of ticks and axes.
pub const LABEL: Font = (12, FontStyle::Normal, MUTED);
/// The font of a legend.
pub const LEGEND: Font = (13, FontStyle::Normal, TEXT);
/// The font of a title.
pub const TITLE: Font = (16, FontStyle::Bold, TEXT);

impl<'a, DB: DrawingBackend> Canvas<'a, DB> {
    /// Creates a canvas that covers `root`, with `scale` real pixels per pixel of scale 1.
    pub const fn new(root: &'a DrawingArea<DB, Shift>, scale: u32) -> Self {
        Self { root, scale: scale as i32 }
    }

    /// Returns the number of real pixels per pixel of scale 1.
    pub const fn scale(&self) -> i32 {
        self.scale
    }

    /// Fills the background: `width` × `height` pixels of scale 1.
    ///
    /// # Errors
    /// Returns the errors of the backend, like all methods below.
    pub fn background(&self, width: u32, height: u32) -> DrawResult<DB> {
        let corner = (width as i32 * self.scale, height as i32 * self.scale);
        self.root.draw(&Rectangle::new([(0, 0), corner], BACKGROUND.filled()))
    }

    /// Fills the polygon between points in real pixels, with an opacity from 0 to 1.
    pub fn area(&self, points: Vec<Point>, color: RGBColor, opacity: f64) -> DrawResult<DB> {
        self.root.draw(&Polygon::new(points, color.mix(opacity).filled()))
    }

    /// Fills a rectangle between two corners, in pixels of scale 1.
    pub fn rectangle(&self, from: Point, to: Point, color: RGBColor, opacity: f64) -> DrawResult<DB> {
        let real = |point: Point| (point.0 * self.scale, point.1 * self.scale);
        self.root.draw(&Rectangle::new([real(from), real(to)], color.mix(opacity).filled()))
    }

    /// Draws a line through points in real pixels; `width` is in half pixels of scale 1.
    pub fn path(&self, points: Vec<Point>, color: RGBColor, width: i32) -> DrawResult<DB> {
        let style = ShapeStyle::from(color).stroke_width((width * self.scale / 2).max(1) as u32);
        self.root.draw(&PathElement::new(points, style))
    }

    /// Draws a straight line between two points in pixels of scale 1; `width` is in half pixels.
    pub fn line(&self, from: Point, to: Point, color: RGBColor, width: i32) -> DrawResult<DB> {
        let real = |point: Point| (point.0 * self.scale, point.1 * self.scale);
        self.path(vec![real(from), real(to)], color, width)
    }

    /// Draws a text that begins, ends or is centred at a point in pixels of scale 1.
    pub fn text(&self, text: &str, at: Point, horizontal: HPos, font: Font) -> DrawResult<DB> {
        let (size, style, color) = font;
        // plotters' sizes are line heights, 1.24 times the size of the font.
        let size = f64::from(size * self.scale) * 1.24;
        let style: TextStyle = FontDesc::new(FontFamily::SansSerif, size, style).into_text_style(self.root);
        // Backends place the vertical middle of text differently by a pixel or two, but agree best on the bottom.
        let style = style.color(&color).pos(Pos::new(horizontal, VPos::Bottom));
        let bottom = at.1 * self.scale + font.0 * self.scale * 66 / 100;
        self.root.draw(&Text::new(text.to_owned(), (at.0 * self.scale, bottom), style))
    }
}

/// Returns an upper bound for the width of a text, in pixels, in a font of `size`.
pub fn width_of(text: &str, size: i32) -> i32 {
    let ems: f64 = text.chars().map(|character| if character.is_ascii() { 0.64 } else { 1.05 }).sum();
    (ems * f64::from(size)).ceil() as i32
}

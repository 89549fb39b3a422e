//! Figures as PNG images. memtrack-core draws them into a bitmap with a font embedded in the executable, so that they look the
//! same on every machine.

use memtrack_core::tracker::TrackerStats;
use memtrack_core::tracker::figures::{Figure, FigureError, HEIGHT, WIDTH, draw};
use plotters::coord::Shift;
use plotters::prelude::{BitMapBackend, DrawingArea, IntoDrawingArea};
use plotters::style::{FontStyle, register_font};
use std::sync::Once;

/// The number of image pixels per figure pixel in each direction, for sharp text on dense screens.
const SCALE: u32 = 2;

static NORMAL: &[u8] = include_bytes!("../assets/DejaVuSans.subset.ttf");
static BOLD: &[u8] = include_bytes!("../assets/DejaVuSans-Bold.subset.ttf");

/// Returns a tracker's figure as the bytes of a PNG file.
///
/// # Errors
/// Never fails in practice, because the figure is drawn to memory.
pub(crate) fn render(stats: &TrackerStats, figure: Figure) -> Result<Vec<u8>, FigureError> {
    render_image(WIDTH, HEIGHT, |root, scale| {
        draw(stats, figure, root, scale).map_err(|error| error.to_string())
    })
    .map_err(FigureError::Draw)
}

type Root<'a> = DrawingArea<BitMapBackend<'a>, Shift>;

/// Returns the image drawn by `draw` as the bytes of a PNG file. `draw` receives a drawing area of `width` × `height` multiplied
/// by a scale, and that scale.
///
/// # Errors
/// Fails if `draw` fails.
pub(crate) fn render_image(
    width: u32,
    height: u32,
    draw: impl FnOnce(&Root<'_>, u32) -> Result<(), String>,
) -> Result<Vec<u8>, String> {
    register_fonts();
    let (width, height) = (width * SCALE, height * SCALE);
    let mut pixels = vec![0; (width * height * 3) as usize];
    draw(&BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area(), SCALE)?;
    encode(&pixels, width, height).map_err(|error| error.to_string())
}

/// Registers the fonts with plotters.
fn register_fonts() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        for (style, font) in [(FontStyle::Normal, NORMAL), (FontStyle::Bold, BOLD)] {
            // The embedded fonts are valid; if one were not, drawing would fail for lack of a font.
            let _ = register_font("sans-serif", style, font);
        }
    });
}

/// Encodes RGB pixels as a PNG file.
fn encode(pixels: &[u8], width: u32, height: u32) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}

//! Encodes the cells of a heat map, both as the pixels of images and as the exact numbers of bytes that the script
//! shows.

use super::colours::{self, Colour, EMPTY};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use memtrack_report::ranks::heat::{HeatCell, HeatMap};
use std::io::{self, Write};

/// The largest integer that JavaScript represents exactly. Larger numbers of bytes are replaced with this one.
const MAX_EXACT: u64 = (1 << 53) - 1;

/// Returns the image of live bytes, as a `data:` URL.
pub(super) fn encode_bytes_image(heat: &HeatMap) -> String {
    let place = |_, cell: HeatCell| colours::bytes_index(cell.most, heat.most);
    encode_image(heat, &colours::bytes_palette(), place)
}

/// Returns the image of differences from the median, as a `data:` URL.
pub(super) fn encode_difference_image(heat: &HeatMap) -> String {
    let place = |column: usize, cell: HeatCell| {
        let median = heat.distributions[column].map_or(0, |known| known.median);
        colours::difference_index(cell.furthest, median, heat.furthest_off, cell.is_odd)
    };
    encode_image(heat, &colours::difference_palette(), place)
}

/// Returns an image with a pixel for each cell, as a `data:` URL.
fn encode_image(heat: &HeatMap, palette: &[Colour], place: impl Fn(usize, HeatCell) -> u8) -> String {
    let pixel = |(column, cell): (usize, &Option<HeatCell>)| cell.map_or(EMPTY, |cell| place(column, cell));
    let pixels: Vec<u8> = heat.rows.iter().flat_map(|row| row.cells.iter().enumerate().map(pixel)).collect();
    let mut file = Vec::new();
    // Writing to memory fails only if the size does not match the number of pixels, and here it does match.
    let _ = encode_png(&pixels, heat.columns.count(), heat.rows.len(), palette, &mut file);
    format!("data:image/png;base64,{}", STANDARD.encode(file))
}

fn encode_png(
    pixels: &[u8],
    columns: usize,
    rows: usize,
    palette: &[Colour],
    file: &mut Vec<u8>,
) -> Result<(), png::EncodingError> {
    let mut encoder = png::Encoder::new(file, columns as u32, rows as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(
        palette.iter().flat_map(|colour| [colour[0], colour[1], colour[2]]).collect::<Vec<u8>>(),
    );
    encoder.set_trns(palette.iter().map(|colour| colour[3]).collect::<Vec<u8>>());
    encoder.set_compression(png::Compression::High);
    // A filter stores differences between neighbouring values. These values are indices into a palette, so their
    // differences would not compress any better.
    encoder.set_filter(png::Filter::NoFilter);
    encoder.write_header()?.write_image_data(pixels)
}

/// Returns the bytes of all cells, row by row, packed for the script. The first sequence contains the highest value of
/// each cell. If ranks share rows, a second sequence contains the value of each cell that is furthest from the median.
/// An empty cell is encoded as 0, and any other cell as 1 plus the difference from the previous cell in the row, with
/// the sign in the lowest bit. Each number is a varint with seven bits per byte, lowest bits first, in which all bytes
/// but the last have the highest bit set.
pub(super) fn pack_cells(heat: &HeatMap) -> String {
    // Writing to memory does not fail.
    STANDARD.encode(deflate(heat).unwrap_or_default())
}

fn deflate(heat: &HeatMap) -> io::Result<Vec<u8>> {
    let mut out = DeflateEncoder::new(Vec::new(), Compression::best());
    let parts: &[fn(HeatCell) -> u64] = match heat.is_folded() {
        true => &[|cell| cell.most, |cell| cell.furthest],
        false => &[|cell| cell.most],
    };
    for part in parts {
        for row in &heat.rows {
            out.write_all(&encode_varints(row.cells.iter().map(|cell| cell.map(part))))?;
        }
    }
    out.finish()
}

fn encode_varints(cells: impl Iterator<Item = Option<u64>>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut before = 0i64;
    for cell in cells {
        let mut rest = cell.map_or(0, |bytes| {
            let bytes = bytes.min(MAX_EXACT) as i64;
            let by = bytes - std::mem::replace(&mut before, bytes);
            1 + ((by.unsigned_abs() << 1) | u64::from(by < 0))
        });
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_signed_differences_and_empty_ones_are_zero() {
        assert_eq!(
            encode_varints([Some(0), None, Some(3), Some(2), Some(130)].into_iter()),
            [1, 0, 7, 4, 0x81, 0x02]
        );
        assert_eq!(encode_varints([Some(u64::MAX)].into_iter()).len(), 8);
    }
}

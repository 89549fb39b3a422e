//! The colours of the figures, distinct also for colour-blind readers. Every role has its own colour, so that the HTML
//! page can replace each one on a dark screen.

use crate::figures::{AXIS, BACKGROUND, GRID, MUTED, TEXT};
use plotters::style::RGBColor;

pub(super) const ALLOCATED: RGBColor = RGBColor(0x00, 0x72, 0xb2);
pub(super) const ACTIVE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
pub(super) const RESERVED: RGBColor = RGBColor(0x00, 0x9e, 0x73);
pub(super) const PEAK: RGBColor = RGBColor(0x0a, 0x52, 0x94);
const BOUNDARY: RGBColor = RGBColor(0xcf, 0x22, 0x2e);
const START: RGBColor = RGBColor(0x10, 0x12, 0x14);
const OTHERS: [RGBColor; 3] =
    [RGBColor(0x82, 0x50, 0xdf), RGBColor(0x9a, 0x5b, 0x2e), RGBColor(0xbf, 0x39, 0x89)];

/// The replacement of each colour on a dark screen, as hexadecimal.
pub(super) const DARK: [(RGBColor, &str); 14] = [
    (BACKGROUND, "0d1117"),
    (TEXT, "e6edf3"),
    (MUTED, "9aa4af"),
    (GRID, "262c34"),
    (AXIS, "6e7681"),
    (ALLOCATED, "56b4e9"),
    (ACTIVE, "f0b429"),
    (RESERVED, "2ec99b"),
    (PEAK, "8fc7ff"),
    (BOUNDARY, "ff7b72"),
    (START, "f0f6fc"),
    (OTHERS[0], "bc9cff"),
    (OTHERS[1], "d2a279"),
    (OTHERS[2], "f778ba"),
];

/// Returns the colour of the `index`-th marker: red for the end of the forward pass and black for its start, as in
/// PyTorch.
pub(super) fn marker(name: &str, index: usize) -> RGBColor {
    match name {
        "fw_bw_boundary" => BOUNDARY,
        "fw_start" => START,
        _ => OTHERS[index % OTHERS.len()],
    }
}

//! The colours of the figures, chosen so that colour-blind readers can distinguish them. Every role has its own colour,
//! so that the HTML page can replace each colour in the dark colour scheme.

use memtrack_figures::{AXIS, BACKGROUND, GRID, MUTED, TEXT};
use plotters::style::RGBColor;

pub(super) const ALLOCATED: RGBColor = RGBColor(0x00, 0x72, 0xb2);
pub(super) const ACTIVE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
pub(super) const RESERVED: RGBColor = RGBColor(0x00, 0x9e, 0x73);
pub(super) const PEAK: RGBColor = RGBColor(0x0a, 0x52, 0x94);
const FORWARD_END: RGBColor = RGBColor(0xcf, 0x22, 0x2e);
const FORWARD_START: RGBColor = RGBColor(0x10, 0x12, 0x14);
const OTHER_MARKERS: [RGBColor; 3] =
    [RGBColor(0x82, 0x50, 0xdf), RGBColor(0x9a, 0x5b, 0x2e), RGBColor(0xbf, 0x39, 0x89)];

/// The replacement for each colour in the dark colour scheme, as hexadecimal digits.
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
    (FORWARD_END, "ff7b72"),
    (FORWARD_START, "f0f6fc"),
    (OTHER_MARKERS[0], "bc9cff"),
    (OTHER_MARKERS[1], "d2a279"),
    (OTHER_MARKERS[2], "f778ba"),
];

/// Returns the colour of the `index`-th marker. As in PyTorch, the end of the forward pass is red and its start is
/// black.
pub(super) fn marker_colour(name: &str, index: usize) -> RGBColor {
    match name {
        "fw_bw_boundary" => FORWARD_END,
        "fw_start" => FORWARD_START,
        _ => OTHER_MARKERS[index % OTHER_MARKERS.len()],
    }
}

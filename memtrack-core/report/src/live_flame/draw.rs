//! Draws the flame graph with inferno. This module decides on its contents and colours.

use super::tree::RectangleKind;
use super::{LiveFlame, MAX_RECTANGLES, escape_label};
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};
use std::io::{self, Write};

/// The legend that explains the colours.
const LEGEND: &str = "Orange: your own code. Blue: what it called. Violet: older than the trace, or without a stack. Grey: too small to show.";

/// The maximum number of bits in the sum of all numbers in a flame graph.
const MAX_SUM_BITS: u32 = 60;

impl RectangleKind {
    const fn rgb(self) -> Color {
        let (r, g, b) = match self {
            Self::Device => (200, 210, 220),
            Self::Mine => (242, 162, 84),
            Self::Framework => (158, 190, 218),
            Self::Unknown => (196, 176, 216),
            Self::Rest => (212, 212, 212),
        };
        Color { r, g, b }
    }
}

/// Draws the live memory as a self-contained SVG image with at most [`MAX_RECTANGLES`] rectangles. Equal snapshots
/// result in equal images.
///
/// # Errors
/// Returns an error if `out` cannot be written to.
pub fn flame_graph(flame: &LiveFlame, out: &mut impl Write) -> io::Result<()> {
    // Leave room for the root rectangle, which inferno adds.
    let tree = flame.build_bounded_tree(MAX_RECTANGLES - 1);
    let mut palette = PaletteMap::default();
    // The root has no name.
    palette.insert("", RectangleKind::Device.rgb());
    palette.insert("all", RectangleKind::Device.rgb());
    for node in &tree.nodes[1..] {
        palette.insert(escape_label(&node.label), node.colour.rgb());
    }
    let mut options = Options::default();
    options.title = flame.title();
    options.subtitle = Some(match flame.is_estimated() {
        true => format!("{LEGEND} Small blocks were sampled: widths are estimates."),
        false => LEGEND.to_owned(),
    });
    options.palette_map = Some(&mut palette);
    options.count_name = "bytes".to_owned();
    options.name_type = "Frame:".to_owned();
    options.deterministic = true;
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 250, g: 250, b: 250 }));
    // Truncate names on the right, because they differ at the start, in the file and the line.
    options.text_truncate_direction = TextTruncateDirection::Right;
    // The tree contains only rectangles that should be drawn, however narrow they are.
    options.min_width = 0.0;
    let mut lines = tree.format_lines();
    halve_numbers(&mut lines);
    if lines.is_empty() {
        lines.push("(nothing was live) 1".to_owned());
    }
    from_lines(&mut options, lines.iter().map(String::as_str), out).map_err(io::Error::other)
}

/// Halves all numbers until their sum has at most [`MAX_SUM_BITS`] bits, because an untrusted file may contain any
/// numbers.
fn halve_numbers(lines: &mut Vec<String>) {
    let number =
        |line: &String| line.rsplit_once(' ').and_then(|(_, number)| number.parse::<u64>().ok()).unwrap_or(0);
    let all: u128 = lines.iter().map(|line| u128::from(number(line))).sum();
    let shift = (128 - all.leading_zeros()).saturating_sub(MAX_SUM_BITS);
    if shift == 0 {
        return;
    }
    *lines = lines
        .iter()
        .filter_map(|line| {
            let (frames, _) = line.rsplit_once(' ')?;
            Some((frames, number(line) >> shift.min(63))).filter(|&(_, bytes)| bytes > 0)
        })
        .map(|(frames, bytes)| format!("{frames} {bytes}"))
        .collect();
}

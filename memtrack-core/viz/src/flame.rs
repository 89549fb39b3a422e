//! Flame graphs of [`Usage`], drawn by inferno. Rows without bytes are omitted.
//!
//! **Why in this package and not in the command?** Programs draw flame graphs too (`save_memory_usage`). inferno,
//! without its default features, is a dependency of the `plot` feature only.

use super::{Grouping, Usage};
use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{Options, from_lines};
use memtrack_file::ReplacingFile;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use std::io::{self, Write};
use std::path::Path;

/// The meaning of the colours, shown as the subtitle.
const LEGEND: &str = "Blue: device, stream, segment. Green: allocated. Grey: free. Yellow: rounding. \
                      Violet: freed, still used by others. Warm: stack frames.";

const fn rgb(r: u8, g: u8, b: u8) -> Color {
    Color { r, g, b }
}

/// Returns the colour of a frame that precedes the stack, or `None` for a frame of the stack itself.
fn frame_colour(frame: &str) -> Option<Color> {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| frame.starts_with(prefix));
    match frame {
        "(rounding)" => Some(rgb(235, 200, 90)),
        "only_before" => Some(rgb(225, 150, 150)),
        "only_after" => Some(rgb(150, 190, 225)),
        _ if begins(&["active_allocated"]) => Some(rgb(150, 205, 140)),
        _ if begins(&["active_pending_free", "active_awaiting_free"]) => Some(rgb(185, 150, 215)),
        _ if begins(&["inactive"]) => Some(rgb(190, 190, 190)),
        _ if begins(&["device ", "host heap", "stream_", "segment 0x"]) => Some(rgb(140, 180, 215)),
        _ => None,
    }
}

/// Returns the colours of all frames that precede the stacks.
fn build_palette(lines: &[String]) -> PaletteMap {
    let mut palette = PaletteMap::default();
    // The root frame has no name.
    palette.insert("", rgb(200, 210, 220));
    for line in lines {
        let frames = line.rsplit_once(' ').map_or(line.as_str(), |(frames, _)| frames);
        for frame in frames.split(';') {
            let Some(colour) = frame_colour(frame) else { break };
            palette.insert(frame, colour);
        }
    }
    palette
}

/// Draws `lines`, each of the form `frame;frame bytes` as returned by [`Usage::lines`], as a self-contained SVG image.
/// Equal lines produce equal images. If there are no lines, the image contains only a note.
///
/// # Errors
/// Fails when `out` cannot be written, or a line does not end in a number.
pub fn flame_graph(title: &str, lines: &[String], out: &mut impl Write) -> io::Result<()> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.subtitle = Some(LEGEND.to_owned());
    let mut palette = build_palette(lines);
    options.palette_map = Some(&mut palette);
    options.count_name = "bytes".to_owned();
    options.name_type = "Frame:".to_owned();
    options.deterministic = true;
    let placeholder = ["(nothing to show) 1".to_owned()];
    let lines = if lines.is_empty() { &placeholder } else { lines };
    from_lines(&mut options, lines.iter().map(String::as_str), out).map_err(io::Error::other)
}

/// Draws the contents of a snapshot's segments to `path`, replacing any existing file. The picture shows requested
/// bytes under their stacks and, separately, the bytes that rounding added and the free blocks.
///
/// # Errors
/// Fails when the file cannot be written.
pub fn save_usage(snapshot: &PytorchSnapshot, grouping: Grouping, path: impl AsRef<Path>) -> io::Result<()> {
    let usage = Usage::of(snapshot, grouping);
    let mut file = ReplacingFile::create(path.as_ref())?;
    flame_graph(&usage.title(grouping.title()), &usage.lines(""), &mut file)?;
    file.commit()
}

//! Draws the rows as three panels of lines: memory, the cost of an event, and the files on disk.

use crate::rows::{Column, Row};
use std::fmt::Write;

const MIB: f64 = (1 << 20) as f64;
const WIDTH: f64 = 960.0;
const PANEL: f64 = 250.0;
/// Space for labels left of a panel, above it, and below.
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 34.0;

struct Panel {
    title: &'static str,
    unit: f64,
    lines: &'static [(&'static str, Column, &'static str)],
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "Memory, MiB",
        unit: MIB,
        lines: &[
            ("memtrack's own", Column::OwnBytes, "#1f6feb"),
            ("heap in use", Column::HeapBytes, "#d1730f"),
            ("resident set", Column::ResidentBytes, "#8b949e"),
        ],
    },
    Panel {
        title: "Cost, ns",
        unit: 1.0,
        lines: &[
            ("an event of a device", Column::DeviceEvent, "#1f6feb"),
            ("of the heap", Column::HostEvent, "#d1730f"),
            ("at a new place", Column::NewStackEvent, "#8b949e"),
            ("an operator", Column::Operator, "#2da44e"),
        ],
    },
    Panel {
        title: "On disk, MiB",
        unit: MIB,
        lines: &[
            ("the recording", Column::RecordingBytes, "#1f6feb"),
            ("all files", Column::FileBytes, "#d1730f"),
        ],
    },
];

/// Returns the picture as SVG. No text in it needs escaping.
pub fn svg(rows: &[Row]) -> String {
    let height = PANEL * PANELS.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#57606a\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, panel) in PANELS.iter().enumerate() {
        draw(&mut svg, panel, rows, number as f64 * PANEL);
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, panel: &Panel, rows: &[Row], above: f64) {
    let value = |row: &Row, column| row[column] / panel.unit;
    let columns = || panel.lines.iter().map(|line| line.1);
    let largest = rows.iter().flat_map(|row| columns().map(|column| value(row, column))).fold(1.0, f64::max);
    let step = round_step(largest / 4.0);
    let most = (largest / step).ceil() * step;
    let longest = rows.last().map_or(1.0, |row| row[Column::Seconds]).max(1.0);
    let (low, high) = (above + PANEL - BOTTOM, above + TOP);
    let x = |seconds: f64| LEFT + seconds / longest * (WIDTH - LEFT - 20.0);
    let y = |value: f64| low - value / most * (low - high);

    // Writing to a `String` cannot fail.
    let _ = writeln!(
        svg,
        "<text x=\"16\" y=\"{:.0}\" font-size=\"15\" font-weight=\"bold\" fill=\"#1f2328\">{}</text>",
        above + 22.0,
        panel.title
    );
    for (number, (name, _, color)) in panel.lines.iter().enumerate() {
        let (at, y) = (LEFT + 90.0 + 170.0 * number as f64, above + 22.0);
        let _ =
            writeln!(svg, "<rect x=\"{at}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{color}\"/>", y - 6.0);
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{y}\">{name}</text>", at + 20.0);
    }
    let mut tick = 0.0;
    while tick <= most * 1.001 {
        let at = y(tick);
        let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#d8dee4\"/>", WIDTH - 20.0);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
            LEFT - 8.0,
            at + 4.0
        );
        tick += step;
    }
    // The time axis, and the boundaries of the three thirds.
    for third in 0..=3 {
        let seconds = longest / 3.0 * f64::from(third);
        let at = x(seconds);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {low:.1}V{high:.1}\" stroke=\"#d8dee4\" stroke-dasharray=\"4 4\"/>"
        );
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{seconds:.0} s</text>",
            low + 18.0
        );
    }
    for (_, column, color) in panel.lines {
        let points: Vec<String> = rows
            .iter()
            .map(|row| format!("{:.1},{:.1}", x(row[Column::Seconds]), y(value(row, *column))))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>",
            points.join(" ")
        );
    }
}

/// Returns the smallest value of at least `least` that is 1, 2 or 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

//! Draws one figure: the title, legend, axes, step lines and markers. The layout uses an upper bound on the width of
//! text, so no text is clipped in any font.

use super::marks::{Mark, collect_marks};
use super::peak::PeakLabel;
use super::steps::{is_drawable, step_lines};
use super::{Figure, palette};
use crate::Sample;
use crate::TrackerStats;
use memtrack_figures::{
    AXIS, Axis, BACKGROUND, Canvas, DrawResult, GRID, LABEL_FONT, LEGEND_FONT, MUTED, Point, TITLE_FONT,
    text_width,
};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::style::RGBColor;
use plotters::style::text_anchor::HPos;

/// The width of a figure in pixels, at scale 1.
pub const WIDTH: u32 = 960;
/// The height of a figure in pixels, at scale 1.
pub const HEIGHT: u32 = 420;

/// The width of the empty border around the figure, in pixels at scale 1.
const MARGIN: i32 = 16;
/// The height of a legend line, in pixels at scale 1.
const LEGEND_LINE_HEIGHT: i32 = 22;
/// The maximum number of legend lines. Markers that do not fit in the legend still have their lines in the plot.
const MAX_LEGEND_LINES: i32 = 3;
/// The width reserved for the text that counts the entries that do not fit, in pixels.
const MORE_TEXT_WIDTH: i32 = 130;
/// The minimum average distance between marker lines, in pixels. If the lines would be closer together, they would hide
/// the series, so the markers become ticks above the plot.
const MIN_LINE_DISTANCE: usize = 12;
/// The height of a marker tick, in pixels at scale 1. Each marker name has its own row of ticks.
const TICK_HEIGHT: i32 = 7;
/// The maximum number of tick rows; any further names share the last row.
const MAX_TICK_ROWS: usize = 4;
/// The minimum distance between ticks of the same marker name, in pixels. Ticks that would be closer are omitted.
const MIN_TICK_DISTANCE: i32 = 2;

/// Draws `figure` so that it covers `root`. The size of `root` must be [`WIDTH`] × [`HEIGHT`] times `scale`. Backends
/// that draw text themselves need a font named `sans-serif` in normal and bold styles.
///
/// # Errors
/// Returns any backend error.
pub fn draw<DB: DrawingBackend>(
    stats: &TrackerStats,
    figure: Figure,
    root: &DrawingArea<DB, Shift>,
    scale: u32,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    let chart = Chart::new(stats, figure, Canvas::new(root, scale));
    chart.canvas.fill_background(WIDTH, HEIGHT)?;
    chart.draw_frame()?;
    chart.draw_markers()?;
    chart.draw_series()?;
    chart.draw_peak()?;
    chart.draw_legend()?;
    root.present()
}

/// The symbol in front of a name in the legend.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Swatch {
    Line,
    Peak,
    Marker,
    /// No symbol, for the text that counts the entries that do not fit.
    More,
}

impl Swatch {
    /// Returns the width of the symbol, including the space after it.
    const fn width(self) -> i32 {
        match self {
            Self::Line | Self::Peak => 25,
            Self::Marker | Self::More => 12,
        }
    }
}

/// A legend entry.
struct Entry {
    name: String,
    color: RGBColor,
    swatch: Swatch,
    /// The left end and the vertical middle of the entry, in pixels at scale 1.
    at: Point,
}

struct Chart<'a, DB: DrawingBackend> {
    canvas: Canvas<'a, DB>,
    stats: &'a TrackerStats,
    figure: Figure,
    calls: Axis,
    memory: Axis,
    legend: Vec<Entry>,
    marks: Vec<Mark>,
    /// The number of tick rows above the plot; 0 if markers are drawn as lines.
    tick_rows: i32,
    peak: Option<PeakLabel<'a>>,
    /// The edges of the plot, in pixels at scale 1.
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
}

impl<'a, DB: DrawingBackend> Chart<'a, DB> {
    fn new(stats: &'a TrackerStats, figure: Figure, canvas: Canvas<'a, DB>) -> Self {
        let all_series = series_of(stats, figure);
        let count = all_series.iter().map(|series| series.samples.len()).max().unwrap_or(0);
        // The peak is known for allocated bytes only.
        let has_peak = matches!(figure, Figure::All | Figure::Allocated);
        let peak = PeakLabel::of(stats).filter(|_| has_peak && count > 0);
        let values = all_series.iter().flat_map(|series| series.samples).map(|sample| sample.mib);
        let values = values.chain(peak.as_ref().map(PeakLabel::height_mib));
        let range = values.filter(|mib| is_drawable(*mib)).fold(None, |range: Option<(f64, f64)>, mib| {
            let (low, high) = range.unwrap_or((mib, mib));
            Some((low.min(mib), high.max(mib)))
        });
        let (low, high) = range.unwrap_or((0.0, 1.0));
        let (calls, memory) = (Axis::of_calls(count), Axis::of_memory(low, high));
        let marks = collect_marks(stats);
        let (legend, top) = lay_out_legend(&all_series, peak.as_ref(), &marks);
        let line_count: usize = marks.iter().map(|mark| count_positions_on_axis(mark, &calls)).sum();
        let is_many = line_count * MIN_LINE_DISTANCE > WIDTH as usize - 100;
        let tick_rows = if is_many { marks.len().min(MAX_TICK_ROWS) as i32 } else { 0 };
        let labels = memory.ticks.iter().map(|tick| text_width(&tick.1, LABEL_FONT.0)).max().unwrap_or(0);
        let half_last = calls.ticks.last().map_or(0, |tick| text_width(&tick.1, LABEL_FONT.0) / 2);
        Self {
            canvas,
            stats,
            figure,
            calls,
            memory,
            legend,
            marks,
            tick_rows,
            peak,
            left: MARGIN + labels.max(24) + 8,
            top: top + 24 + tick_rows * (TICK_HEIGHT + 1),
            right: WIDTH as i32 - MARGIN - half_last,
            bottom: HEIGHT as i32 - 56,
        }
    }

    /// Returns the point at the given positions on the two axes (from 0 to 1), in real pixels.
    fn point_at(&self, call: f64, memory: f64) -> Point {
        let scale = f64::from(self.canvas.scale());
        let x = f64::from(self.left) + call * f64::from(self.right - self.left);
        let y = f64::from(self.bottom) - memory * f64::from(self.bottom - self.top);
        ((x * scale).round() as i32, (y * scale).round() as i32)
    }

    /// Draws the title, the grid, the axes and their labels.
    fn draw_frame(&self) -> DrawResult<DB> {
        let canvas = &self.canvas;
        canvas.draw_text(self.figure.title(), (MARGIN, 24), HPos::Left, TITLE_FONT)?;
        for (value, label) in &self.memory.ticks {
            let y = self.point_at(0.0, self.memory.position(*value)).1 / canvas.scale();
            canvas.draw_line((self.left, y), (self.right, y), GRID, 2)?;
            canvas.draw_text(label, (self.left - 8, y), HPos::Right, LABEL_FONT)?;
        }
        canvas.draw_text("MiB", (self.left - 8, self.top - 16), HPos::Right, LABEL_FONT)?;
        for (value, label) in &self.calls.ticks {
            let x = self.point_at(self.calls.position(*value), 0.0).0 / canvas.scale();
            canvas.draw_line((x, self.bottom), (x, self.bottom + 5), AXIS, 2)?;
            canvas.draw_text(label, (x, self.bottom + 17), HPos::Center, LABEL_FONT)?;
        }
        canvas.draw_line((self.left, self.bottom), (self.right, self.bottom), AXIS, 2)?;
        let middle = (self.left + self.right) / 2;
        canvas.draw_text("operator calls", (middle, self.bottom + 39), HPos::Center, LABEL_FONT)
    }

    fn draw_series(&self) -> DrawResult<DB> {
        let all_series = series_of(self.stats, self.figure);
        if all_series.iter().all(|series| series.samples.is_empty()) {
            let middle = ((self.left + self.right) / 2, (self.top + self.bottom) / 2);
            return self.canvas.draw_text("no operator was recorded", middle, HPos::Center, LEGEND_FONT);
        }
        for series in all_series {
            let values = series.samples.iter().map(|sample| sample.mib);
            for line in
                step_lines(values, &self.calls, &self.memory, |call, memory| self.point_at(call, memory))
            {
                self.canvas.draw_path(line, series.color, series.width)?;
            }
        }
        Ok(())
    }

    /// Draws each marker as a dashed line over the whole height of the plot, at the operator that follows it. If there
    /// are many markers, draws ticks above the plot instead.
    fn draw_markers(&self) -> DrawResult<DB> {
        let many = self.tick_rows > 0;
        let scale = self.canvas.scale();
        for (row, mark) in self.marks.iter().enumerate() {
            let row = (row as i32).min(self.tick_rows - 1);
            let top = self.top - (self.tick_rows - row) * (TICK_HEIGHT + 1);
            let mut previous_x = i32::MIN;
            for call in &mark.positions[..count_positions_on_axis(mark, &self.calls)] {
                let x = self.point_at(self.calls.position(*call as f64), 0.0).0;
                if many && x < previous_x.saturating_add(MIN_TICK_DISTANCE * scale) {
                    continue;
                }
                previous_x = x;
                if many {
                    self.canvas.draw_path(
                        vec![(x, top * scale), (x, (top + TICK_HEIGHT) * scale)],
                        mark.color,
                        2,
                    )?;
                    continue;
                }
                for from in (self.top..self.bottom).step_by(9) {
                    let to = (from + 5).min(self.bottom);
                    self.canvas.draw_path(vec![(x, from * scale), (x, to * scale)], mark.color, 3)?;
                }
            }
        }
        Ok(())
    }

    /// Draws the peak: a dotted line at its height, a triangle at its operator, and its value.
    fn draw_peak(&self) -> DrawResult<DB> {
        let Some(peak) = &self.peak else { return Ok(()) };
        let scale = self.canvas.scale();
        let height = self.memory.position(peak.height_mib());
        let call = peak.call_index().filter(|call| *call <= self.calls.to);
        let (x, y) = self.point_at(call.map_or(0.0, |call| self.calls.position(call)), height);
        for from in (self.left..self.right).step_by(6) {
            let to = (from + 2).min(self.right);
            self.canvas.draw_path(vec![(from * scale, y), (to * scale, y)], palette::PEAK, 3)?;
        }
        let (x, y) = (x / scale, y / scale);
        if call.is_some() {
            let corners = [(x, y), (x - 6, y - 10), (x + 6, y - 10)].map(|(x, y)| (x * scale, y * scale));
            self.canvas.fill_area(corners.to_vec(), palette::PEAK, 1.0)?;
        }
        let text = peak.format_short();
        let is_right = x + 12 + text_width(&text, LABEL_FONT.0) <= self.right;
        let (at, side) = if is_right { (x + 10, HPos::Left) } else { (x - 10, HPos::Right) };
        let (from, to) = if is_right {
            (at, at + text_width(&text, LABEL_FONT.0))
        } else {
            (at - text_width(&text, LABEL_FONT.0), at)
        };
        // Put the text above the line, unless it would be outside the plot there.
        let middle = if y - 18 < self.top { y + 11 } else { y - 9 };
        self.canvas.fill_rectangle((from - 2, middle - 8), (to, middle + 7), BACKGROUND, 0.85)?;
        self.canvas.draw_text(&text, (at, middle), side, LABEL_FONT)
    }

    fn draw_legend(&self) -> DrawResult<DB> {
        for Entry { name, color, swatch, at: (x, y) } in &self.legend {
            match swatch {
                Swatch::Line => self.canvas.draw_line((*x, *y), (x + 18, *y), *color, 6)?,
                Swatch::Peak => {
                    for dot in (0..18).step_by(6) {
                        self.canvas.draw_line((x + dot, *y), (x + dot + 2, *y), *color, 4)?;
                    }
                }
                Swatch::Marker => {
                    self.canvas.draw_line((x + 3, y - 8), (x + 3, y - 2), *color, 4)?;
                    self.canvas.draw_line((x + 3, y + 2), (x + 3, y + 8), *color, 4)?;
                }
                Swatch::More => {}
            }
            self.canvas.draw_text(name, (x + swatch.width(), *y), HPos::Left, LEGEND_FONT)?;
        }
        Ok(())
    }
}

/// Returns the number of a marker's positions that are on the axis.
fn count_positions_on_axis(mark: &Mark, calls: &Axis) -> usize {
    mark.positions.partition_point(|at| *at as f64 <= calls.to)
}

/// One series in a figure.
struct Series<'a> {
    name: &'static str,
    samples: &'a [Sample],
    color: RGBColor,
    /// The line width in half pixels.
    width: i32,
}

/// Returns the series of a figure, from back to front. Where lines coincide, the wider one at the back remains visible.
fn series_of(stats: &TrackerStats, figure: Figure) -> Vec<Series<'_>> {
    let reserved = (Figure::Reserved, &stats.memories_reserved, palette::RESERVED, 3);
    let active = (Figure::Active, &stats.memories_active, palette::ACTIVE, 5);
    let allocated = (Figure::Allocated, &stats.memories_allocated, palette::ALLOCATED, 3);
    let selected = [reserved, active, allocated]
        .into_iter()
        .filter(|(kind, ..)| figure == Figure::All || *kind == figure);
    selected
        .map(|(kind, samples, color, width)| Series {
            name: kind.name(),
            samples,
            color,
            width: if figure == Figure::All { width } else { 3 },
        })
        .collect()
}

/// Places the legend entries on as many lines as they need, up to [`MAX_LEGEND_LINES`], and returns them with the lower
/// edge of the last line. If some entries do not fit, the last entry counts them.
fn lay_out_legend(
    all_series: &[Series<'_>],
    peak: Option<&PeakLabel<'_>>,
    marks: &[Mark],
) -> (Vec<Entry>, i32) {
    let right = WIDTH as i32 - MARGIN;
    let series = all_series.iter().rev().map(|series| (series.name.to_owned(), series.color, Swatch::Line));
    let peak = peak.map(|peak| (peak.format_long(), palette::PEAK, Swatch::Peak));
    let markers = marks.iter().map(|mark| (mark.format_legend(), mark.color, Swatch::Marker));
    let entries: Vec<(String, RGBColor, Swatch)> = series.chain(peak).chain(markers).collect();
    let total = entries.len();
    let (mut line, mut x) = (0, MARGIN);
    let mut legend: Vec<Entry> = Vec::new();
    for (name, color, swatch) in entries {
        let width = swatch.width() + text_width(&name, LEGEND_FONT.0);
        // Leave room on the last line for the count of the entries that do not fit.
        let reserve = if line + 1 == MAX_LEGEND_LINES { MORE_TEXT_WIDTH } else { 0 };
        if x > MARGIN && x + width + reserve > right {
            if line + 1 == MAX_LEGEND_LINES {
                let more = format!("and {} more", total - legend.len());
                legend.push(Entry {
                    name: more,
                    color: MUTED,
                    swatch: Swatch::More,
                    at: (x, legend_y(line)),
                });
                break;
            }
            line += 1;
            x = MARGIN;
        }
        legend.push(Entry { name, color, swatch, at: (x, legend_y(line)) });
        x += width + 14;
    }
    (legend, legend_y(line) + LEGEND_LINE_HEIGHT / 2)
}

/// Returns the vertical middle of a legend line.
const fn legend_y(line: i32) -> i32 {
    50 + line * LEGEND_LINE_HEIGHT
}

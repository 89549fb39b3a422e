//! A chart of memory by category over time. It resembles the chart drawn by PyTorch's profiler, but it has
//! steps instead of slopes and never misses a peak.

use crate::analysis::Profile;
use crate::category::Category;
use crate::pieces::pieces;
use crate::series::{Moment, peak, span_ns, walk};
use memtrack_blocks::estimate::{Estimate, Sum};
use memtrack_figures::{
    AXIS, Axis, Canvas, DrawResult, GRID, LABEL_FONT, LEGEND_FONT, MUTED, Point, TITLE_FONT, render_svg,
    text_width,
};
use memtrack_model::optrace::DeviceIndex;
use memtrack_model::times::human_moment;
use memtrack_model::units::{human_bytes, human_count, printable};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::style::RGBColor;
use plotters::style::text_anchor::HPos;

/// The width of the chart in pixels at scale 1.
pub const WIDTH: u32 = 1200;
/// The height of the chart in pixels at scale 1.
pub const HEIGHT: u32 = 640;

/// The margin around the chart.
const MARGIN: i32 = 18;
/// The opacity of a category's band, as in PyTorch's chart.
const OPACITY: f64 = 0.7;
/// The top of the plot, below the title and the legend.
const PLOT_TOP: i32 = 118;

/// Draws a device's chart so that it fills `root`, which must measure [`WIDTH`] × [`HEIGHT`] times `scale`.
/// `reserved` is the device's peak of reserved bytes, if known. Backends that render text themselves need a
/// font named `sans-serif` in normal and bold styles.
///
/// # Errors
/// Fails if the backend fails.
pub fn draw<DB: DrawingBackend>(
    profile: &Profile<'_>,
    device: DeviceIndex,
    reserved: Option<u64>,
    root: &DrawingArea<DB, Shift>,
    scale: u32,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    let chart = Chart::new(profile, device, Canvas::new(root, scale));
    chart.canvas.fill_background(WIDTH, HEIGHT)?;
    chart.draw_grid()?;
    chart.draw_bands()?;
    chart.draw_frame()?;
    chart.draw_legend()?;
    chart.draw_reserved(reserved)?;
    root.present()
}

/// Returns the chart as an SVG image. Text in the image remains text and is shown in the viewer's sans-serif
/// font.
///
/// # Errors
///
/// Never fails in practice, because the image is drawn in memory.
pub fn svg(profile: &Profile<'_>, device: DeviceIndex, reserved: Option<u64>) -> Result<String, String> {
    render_svg((WIDTH, HEIGHT), |root, scale| draw(profile, device, reserved, root, scale))
}

/// Returns the divisor and name of the largest unit that does not exceed `bytes`.
fn byte_unit(bytes: f64) -> (f64, &'static str) {
    const UNITS: [(f64, &str); 4] = [
        ((1_u64 << 40) as f64, "TiB"),
        ((1 << 30) as f64, "GiB"),
        ((1 << 20) as f64, "MiB"),
        (1024.0, "KiB"),
    ];
    UNITS.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1.0, "B"))
}

/// Returns the divisor and name of the largest unit that does not exceed `ns`.
fn time_unit(ns: f64) -> (f64, &'static str) {
    const UNITS: [(f64, &str); 3] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    UNITS.into_iter().find(|(unit, _)| ns >= *unit).unwrap_or((1.0, "ns"))
}

struct Chart<'a, DB: DrawingBackend> {
    canvas: Canvas<'a, DB>,
    device: String,
    peak: Option<Moment>,
    /// The errors of the peak and of each category's bytes at the peak. Set only if small blocks were sampled.
    errors: Option<(Estimate, [Estimate; Category::ALL.len()])>,
    /// The time of the trace's first record, in ns.
    begin_ns: i64,
    /// For each column of device pixels, the moment with the most memory.
    columns: Vec<Moment>,
    memory: Axis,
    memory_unit: (f64, &'static str),
    time: Axis,
    time_unit: (f64, &'static str),
    left: i32,
    right: i32,
    bottom: i32,
}

impl<'a, DB: DrawingBackend> Chart<'a, DB> {
    fn new(profile: &Profile<'_>, device: DeviceIndex, canvas: Canvas<'a, DB>) -> Self {
        let peak = peak(profile, device);
        let highest = peak.map_or(0, |peak| peak.total()).max(0) as f64;
        let memory_unit = byte_unit(highest);
        let mut memory = Axis::from_zero(highest / memory_unit.0, 6.0, true);
        memory.ticks.iter_mut().for_each(|(_, label)| *label = format!("{label} {}", memory_unit.1));
        let begin_ns = profile.begin_ns();
        let last = span_ns(profile, device).map_or(begin_ns, |(_, last)| last);
        let duration_ns = last.saturating_sub(begin_ns).max(1) as f64;
        let time_unit = time_unit(duration_ns);
        let time = Axis::from_zero(duration_ns / time_unit.0, 10.0, false);
        let labels = memory.ticks.iter().map(|tick| text_width(&tick.1, LABEL_FONT.0)).max().unwrap_or(0);
        let (left, right) = (MARGIN + labels.max(24) + 8, WIDTH as i32 - MARGIN - 24);
        let count = ((right - left) * canvas.scale()).max(1) as usize;
        let columns = divide_into_columns(profile, device, begin_ns, duration_ns, count);
        let (index, device) = (device, printable(profile.device_name(device)));
        let bottom = HEIGHT as i32 - 58;
        Self {
            canvas,
            device,
            peak,
            errors: peak.and_then(|peak| live_errors(profile, index, peak.time_ns)),
            begin_ns,
            columns,
            memory,
            memory_unit,
            time,
            time_unit,
            left,
            right,
            bottom,
        }
    }

    /// Returns the vertical position of a byte count, in device pixels from the top.
    fn y_of(&self, bytes: i64) -> i32 {
        let share = self.memory.position(bytes.max(0) as f64 / self.memory_unit.0);
        let (top, bottom) = (f64::from(PLOT_TOP), f64::from(self.bottom));
        ((bottom - share * (bottom - top)) * f64::from(self.canvas.scale())).round() as i32
    }

    fn draw_grid(&self) -> DrawResult<DB> {
        for (value, label) in &self.memory.ticks {
            let share = self.memory.position(*value);
            let y = self.bottom - (share * f64::from(self.bottom - PLOT_TOP)).round() as i32;
            self.canvas.draw_line((self.left, y), (self.right, y), GRID, 2)?;
            self.canvas.draw_text(label, (self.left - 8, y), HPos::Right, LABEL_FONT)?;
        }
        Ok(())
    }

    /// Draws the categories as stacked bands.
    fn draw_bands(&self) -> DrawResult<DB> {
        let mut below = vec![0_i64; self.columns.len()];
        for category in Category::ALL {
            let band = |moment: &Moment| moment.bytes[category as usize].max(0);
            if self.columns.iter().all(|moment| band(moment) == 0) {
                continue;
            }
            let above: Vec<i64> = below
                .iter()
                .zip(&self.columns)
                .map(|(below, moment)| below.saturating_add(band(moment)))
                .collect();
            let mut points = self.step_outline(&above);
            points.extend(self.step_outline(&below).into_iter().rev());
            let [red, green, blue] = category.colour();
            self.canvas.fill_area(points, RGBColor(red, green, blue), OPACITY)?;
            below = above;
        }
        Ok(())
    }

    /// Returns the outline of a series with one value per column, drawn as steps without redundant points.
    fn step_outline(&self, bytes: &[i64]) -> Vec<Point> {
        let left = self.left * self.canvas.scale();
        let mut points: Vec<Point> = Vec::new();
        for (column, &bytes) in (0..).zip(bytes) {
            let y = self.y_of(bytes);
            if points.last().is_none_or(|last| last.1 != y) {
                if let Some(&(_, before)) = points.last() {
                    points.push((left + column, before));
                }
                points.push((left + column, y));
            }
        }
        if let Some(&(_, last)) = points.last() {
            points.push((left + bytes.len() as i32, last));
        }
        points
    }

    fn draw_frame(&self) -> DrawResult<DB> {
        let canvas = &self.canvas;
        for (value, label) in &self.time.ticks {
            let x =
                self.left + (self.time.position(*value) * f64::from(self.right - self.left)).round() as i32;
            canvas.draw_line((x, self.bottom), (x, self.bottom + 5), AXIS, 2)?;
            canvas.draw_text(label, (x, self.bottom + 17), HPos::Center, LABEL_FONT)?;
        }
        canvas.draw_line((self.left, self.bottom), (self.right, self.bottom), AXIS, 2)?;
        let middle = (self.left + self.right) / 2;
        let caption = format!("{} since the trace began", self.time_unit.1);
        canvas.draw_text(&caption, (middle, self.bottom + 40), HPos::Center, LABEL_FONT)?;
        canvas.draw_text(
            &format!("Memory by category: {}", self.device),
            (MARGIN, 26),
            HPos::Left,
            TITLE_FONT,
        )?;
        let Some(peak) = self.peak else { return Ok(()) };
        let total = u64::try_from(peak.total()).unwrap_or(0);
        let after = u64::try_from(peak.time_ns.saturating_sub(self.begin_ns)).unwrap_or(0);
        let bytes = match &self.errors {
            None => format!("{} ({} bytes)", human_bytes(total), human_count(total)),
            Some((error, _)) => format!("{} (small blocks were sampled)", error.as_bytes(total)),
        };
        let text =
            format!("Peak allocated: {bytes}, {} after the start; what it is made of:", human_moment(after));
        canvas.draw_text(&text, (MARGIN, 52), HPos::Left, LEGEND_FONT)?;
        if peak.time_ns >= self.begin_ns {
            let share = self.time.position((peak.time_ns - self.begin_ns) as f64 / self.time_unit.0);
            let x = self.left + (share * f64::from(self.right - self.left)).round() as i32;
            let y = self.y_of(peak.total()) / canvas.scale();
            canvas.draw_line((x, y - 10), (x, y - 2), MUTED, 4)?;
        }
        Ok(())
    }

    fn draw_reserved(&self, reserved: Option<u64>) -> DrawResult<DB> {
        let Some(bytes) = reserved else { return Ok(()) };
        let text = format!("Peak reserved: {} ({} bytes)", human_bytes(bytes), human_count(bytes));
        self.canvas.draw_text(&text, (WIDTH as i32 - MARGIN, 26), HPos::Right, LEGEND_FONT)
    }

    /// Draws the legend, which shows all categories that have memory, in the order of their bands.
    fn draw_legend(&self) -> DrawResult<DB> {
        let mut x = MARGIN;
        let mut y = 76;
        for category in Category::ALL {
            if self.columns.iter().all(|moment| moment.bytes[category as usize] <= 0) {
                continue;
            }
            let at_peak = self.peak.map_or(0, |peak| peak.bytes[category as usize]).max(0) as u64;
            let text = match at_peak {
                0 => format!("{category} -"),
                bytes => match &self.errors {
                    None => format!("{category} {}", human_bytes(bytes)),
                    Some((_, of)) => format!("{category} {}", of[category as usize].as_bytes(bytes)),
                },
            };
            let wide = 20 + text_width(&text, LEGEND_FONT.0) + 12;
            if x > MARGIN && x + wide > WIDTH as i32 - MARGIN {
                (x, y) = (MARGIN, y + 20);
            }
            let [red, green, blue] = category.colour();
            self.canvas.fill_rectangle((x, y - 6), (x + 14, y + 6), RGBColor(red, green, blue), OPACITY)?;
            self.canvas.draw_text(&text, (x + 20, y), HPos::Left, LEGEND_FONT)?;
            x += wide;
        }
        Ok(())
    }
}

/// Returns the errors of the live bytes at a given time, in total and by category, or `None` if they are
/// exact.
fn live_errors(
    profile: &Profile<'_>,
    device: DeviceIndex,
    time_ns: i64,
) -> Option<(Estimate, [Estimate; Category::ALL.len()])> {
    let attribution = profile.attribution().filter(|attribution| attribution.is_estimate(device))?;
    let (mut all, mut blocks) = (Sum::default(), Sum::default());
    let mut sums = [Sum::default(); Category::ALL.len()];
    for piece in pieces(profile, device).iter().filter(|piece| piece.is_live_at(time_ns)) {
        piece.add_to(profile, &mut all, &mut blocks);
        piece.add_to(profile, &mut sums[piece.category_at(time_ns) as usize], &mut blocks);
    }
    Some((attribution.bytes(device, &all), sums.map(|sum| attribution.bytes(device, &sum))))
}

/// Divides the time since `begin_ns` into `count` columns and returns, for each column, the moment at which
/// the most memory was allocated.
fn divide_into_columns(
    profile: &Profile<'_>,
    device: DeviceIndex,
    begin_ns: i64,
    duration_ns: f64,
    count: usize,
) -> Vec<Moment> {
    let mut columns = Vec::with_capacity(count);
    let mut now = Moment::default();
    let mut highest = now;
    walk(profile, device, |moment| {
        let since = moment.time_ns.saturating_sub(begin_ns).max(0) as f64;
        let column = ((since / duration_ns * count as f64) as usize).min(count - 1);
        while columns.len() < column {
            columns.push(highest);
            highest = now;
        }
        now = *moment;
        if highest.total() < now.total() {
            highest = now;
        }
    });
    columns.push(highest);
    columns.resize(count, now);
    columns
}

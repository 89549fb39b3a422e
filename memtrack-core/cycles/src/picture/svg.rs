//! Writes the picture as SVG, either as a file or as part of a page whose script and style use the picture's classes.

use super::boxes::{self, BoxText, LINE_HEIGHT, PADDING, SMALL_LINE_HEIGHT};
use super::layout::{BoxLine, Layout, Point, lay_out};
use super::select::{DrawnEdge, DrawnValues, cycles_by_value, select_lines, suggested_edges};
use crate::findings::Findings;
use crate::graph::Graph;
use crate::words;
use memtrack_model::escape::{escape_line, escape_text};
use memtrack_model::units::counted;
use std::fmt::Write;

const STYLE: &str = include_str!("picture.css");
/// The number of tints. Each cycle gets one.
const TINT_COUNT: u32 = 6;
/// The space around everything.
const MARGIN: f64 = 16.0;
/// The room above a box for a reference from a value to itself.
const LOOP_ROOM: f64 = 34.0;
/// The distance by which a cycle's tint extends beyond its boxes.
const HULL_MARGIN: f64 = 9.0;
/// The maximum number of bytes and of lines in a tooltip.
const MAX_TIP_BYTES: usize = 1500;
const MAX_TIP_LINES: usize = 14;

/// Returns the picture as the contents of an SVG file.
pub fn svg(graph: &Graph, findings: &Findings) -> String {
    Picture::new(graph, findings, &DrawnValues::of(graph, findings)).render(false)
}

/// Everything that is drawn, with its position.
pub(crate) struct Picture<'a> {
    graph: &'a Graph,
    drawn: &'a DrawnValues,
    texts: Vec<BoxText>,
    /// The sizes of the boxes, without the room for loops.
    sizes: Vec<(f64, f64)>,
    /// The lines between different boxes, in the order of `layout.lines`.
    lines: Vec<DrawnEdge>,
    /// The lines from a value to itself.
    loops: Vec<DrawnEdge>,
    names: Vec<Vec<(String, bool)>>,
    loop_names: Vec<Vec<(String, bool)>>,
    /// The upper left corners of the boxes, without the room for loops.
    corners: Vec<Point>,
    layout: Layout,
    /// The number of references between drawn values that no line represents.
    pub lines_left_out: u64,
    cycles: Vec<(u32, Vec<usize>)>,
}

impl<'a> Picture<'a> {
    pub fn new(graph: &'a Graph, findings: &'a Findings, drawn: &'a DrawnValues) -> Self {
        let (all, lines_left_out) = select_lines(graph, findings, drawn);
        let (loops, mut lines): (Vec<DrawnEdge>, Vec<DrawnEdge>) =
            all.into_iter().partition(|line| line.from == line.to);
        let place = |node: u32| drawn.places[&node] as usize;
        // In each part, the library starts the columns at the value from which the first line leads, so the lines of the
        // worst cycle should come first.
        lines.sort_by_key(|line| (place(line.from), !line.shown, place(line.to)));
        let suggested = suggested_edges(graph, findings);
        let names = |lines: &[DrawnEdge]| -> Vec<_> {
            lines
                .iter()
                .map(|line| boxes::line_names(graph, line, |edge| suggested.contains(&edge)))
                .collect()
        };
        let (names, loop_names) = (names(&lines), names(&loops));
        let texts: Vec<BoxText> = drawn.nodes.iter().map(|&node| boxes::box_text(graph, node)).collect();
        let mut sizes: Vec<_> = texts.iter().map(boxes::box_size).collect();
        let mut room = sizes.clone();
        for (line, names) in loops.iter().zip(&loop_names) {
            let (at, (width, height)) = (place(line.from), boxes::names_size(names));
            // The name is beside the loop.
            sizes[at].0 = sizes[at].0.max(64.0);
            room[at] = (sizes[at].0.max(width + 62.0), sizes[at].1 + LOOP_ROOM.max(height));
        }
        let between: Vec<BoxLine> = lines
            .iter()
            .zip(&names)
            .map(|(line, names)| {
                let (width, height) = boxes::names_size(names);
                BoxLine { from: place(line.from), to: place(line.to), width, height }
            })
            .collect();
        let mut layout = lay_out(&room, &between);
        let corner =
            |(at, corner): (usize, &Point)| Point { x: corner.x, y: corner.y + room[at].1 - sizes[at].1 };
        let corners: Vec<Point> = layout.boxes.iter().enumerate().map(corner).collect();
        for (line, points) in between.iter().zip(&mut layout.lines) {
            move_ends_to_boxes(points, &corners, &sizes, line);
        }
        let cycle_of = cycles_by_value(findings, drawn);
        let mut cycles: Vec<(u32, Vec<usize>)> = Vec::new();
        let mut boxes_by_cycle: Vec<_> =
            cycle_of.iter().map(|(&node, &cycle)| (cycle, place(node))).collect();
        boxes_by_cycle.sort_unstable();
        for (cycle, at) in boxes_by_cycle {
            match cycles.last_mut() {
                Some((last, boxes)) if *last == cycle => boxes.push(at),
                _ => cycles.push((cycle, vec![at])),
            }
        }
        Self {
            graph,
            drawn,
            texts,
            sizes,
            lines,
            loops,
            names,
            loop_names,
            corners,
            layout,
            lines_left_out,
            cycles,
        }
    }

    /// Returns the picture. On a page, its values and references are links to the table of values, where the script
    /// finds their descriptions.
    pub fn render(&self, on_page: bool) -> String {
        let (width, height) =
            ((self.layout.width + 2.0 * MARGIN).ceil(), (self.layout.height + 2.0 * MARGIN).ceil());
        let cycles = self.cycles.len() as u64;
        let about = format!(
            "Who refers to whom: {}, {}",
            counted(self.drawn.nodes.len() as u64, "value"),
            counted(cycles, "cycle")
        );
        let mut out = String::new();
        let size = if on_page { String::new() } else { format!(" width=\"{width}\" height=\"{height}\"") };
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\" viewBox=\"0 0 {width} {height}\"{size} \
             role=\"group\" aria-label=\"{about}\">\n<style>{STYLE}</style>"
        );
        out.push_str("<defs>");
        for kind in ["plain", "ring", "weak"] {
            let _ = write!(
                out,
                "<marker id=\"arrow-{kind}\" class=\"arrow {kind}\" viewBox=\"0 0 8 8\" refX=\"7.4\" refY=\"4\" markerWidth=\"8\" \
                 markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 .6 7.6 4 0 7.4z\"/></marker>"
            );
        }
        out.push_str("</defs>\n");
        if !on_page {
            let _ = writeln!(out, "<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>");
        }
        let _ = writeln!(out, "<g transform=\"translate({MARGIN} {MARGIN})\">");
        self.push_hulls(&mut out);
        out.push_str("<g class=\"lines\">\n");
        for ((line, names), (points, name)) in
            self.lines.iter().zip(&self.names).zip(self.layout.lines.iter().zip(&self.layout.names))
        {
            self.push_line(line, names, &smooth_path(points), (*name, "middle"), on_page, &mut out);
        }
        for (line, names) in self.loops.iter().zip(&self.loop_names) {
            let at = self.drawn.places[&line.from] as usize;
            let (corner, rise) = (self.corners[at], LOOP_ROOM - 8.0);
            let (x, y, top) = (corner.x + 14.0, corner.y, corner.y - rise);
            let path = format!("M{x:.1} {y:.1}C{x:.1} {top:.1} {0:.1} {top:.1} {0:.1} {y:.1}", x + 34.0);
            let height = names.len() as f64 * SMALL_LINE_HEIGHT;
            let name = Point { x: x + 40.0, y: y - 6.0 - height / 2.0 };
            self.push_line(line, names, &path, (name, "start"), on_page, &mut out);
        }
        out.push_str("</g>\n<g class=\"nodes\">\n");
        for at in 0..self.texts.len() {
            self.push_node(at, on_page, &mut out);
        }
        out.push_str("</g>\n</g>\n</svg>\n");
        out
    }

    /// Appends the shapes behind each cycle's values and the references between them.
    fn push_hulls(&self, out: &mut String) {
        out.push_str("<g class=\"hulls\">\n");
        for (cycle, boxes) in &self.cycles {
            let _ = write!(out, "<g class=\"hull tint-{}\" data-cycle=\"{cycle}\">", cycle % TINT_COUNT);
            for &at in boxes {
                let (corner, size) = (self.corners[at], self.sizes[at]);
                let _ = write!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"{:.1}\"/>",
                    corner.x - HULL_MARGIN,
                    corner.y - HULL_MARGIN,
                    size.0 + 2.0 * HULL_MARGIN,
                    size.1 + 2.0 * HULL_MARGIN,
                    HULL_MARGIN + 4.0
                );
            }
            let inside =
                self.lines.iter().zip(&self.layout.lines).filter(|(line, _)| line.cycle == Some(*cycle));
            for (_, points) in inside {
                let _ = write!(out, "<path d=\"{}\"/>", smooth_path(points));
            }
            out.push_str("</g>\n");
        }
        out.push_str("</g>\n");
    }

    fn push_line(
        &self,
        edge: &DrawnEdge,
        names: &[(String, bool)],
        path: &str,
        (name, anchor): (Point, &str),
        on_page: bool,
        out: &mut String,
    ) {
        let mut class = String::from("line");
        if edge.cycle.is_some() {
            class += " ring";
        }
        if edge.cut {
            class += " weak";
        }
        let arrow = if edge.cut {
            "weak"
        } else if edge.cycle.is_some() {
            "ring"
        } else {
            "plain"
        };
        let first = names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let (from, to) = (words::label(self.graph, edge.from), words::label(self.graph, edge.to));
        let tip = escape_line(&format!("{from} {first} → {to}"), MAX_TIP_BYTES);
        let (open, close) =
            if on_page { (format!("<a href=\"#v{}\"", edge.to), "</a>") } else { ("<g".into(), "</g>") };
        let _ = write!(
            out,
            "{open} class=\"{class}\" data-from=\"{}\" data-to=\"{}\" aria-label=\"{tip}\"><title>{tip}</title>\
             <path class=\"hit\" d=\"{path}\"/><path class=\"stroke\" d=\"{path}\" marker-end=\"url(#arrow-{arrow})\"/>",
            edge.from, edge.to
        );
        let (width, height) = boxes::names_size(names);
        let left = if anchor == "middle" { name.x - width / 2.0 } else { name.x - 4.0 };
        let _ = write!(
            out,
            "<rect class=\"plate\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{width}\" height=\"{height}\" rx=\"3\"/><text text-anchor=\"{anchor}\">",
            name.y - height / 2.0
        );
        let top = name.y - (names.len() as f64 - 1.0) * SMALL_LINE_HEIGHT / 2.0 + 3.6;
        for (at, (name_text, is_weak)) in names.iter().enumerate() {
            let class = if *is_weak { " class=\"weak\"" } else { "" };
            let _ = write!(
                out,
                "<tspan{class} x=\"{:.1}\" y=\"{:.1}\">{}</tspan>",
                name.x,
                top + at as f64 * SMALL_LINE_HEIGHT,
                escape_line(name_text, MAX_TIP_BYTES)
            );
        }
        let _ = writeln!(out, "</text>{close}");
    }

    fn push_node(&self, at: usize, on_page: bool, out: &mut String) {
        let (node, corner, (width, height)) = (self.drawn.nodes[at], self.corners[at], self.sizes[at]);
        let text = &self.texts[at];
        let cycle = self.cycles.iter().find(|(_, boxes)| boxes.contains(&at)).map(|(cycle, _)| *cycle);
        let class = if text.memory.is_some() { "node memory" } else { "node" };
        let (open, close) = if on_page {
            (format!("<a href=\"#v{node}\" id=\"n{node}\""), "</a>")
        } else {
            ("<g".into(), "</g>")
        };
        let mut name = words::label(self.graph, node);
        if let Some(memory) = &text.memory {
            let _ = write!(name, ", {memory}");
        }
        if let Some(cycle) = cycle {
            let _ = write!(name, ", in cycle {}", cycle + 1);
        }
        let _ = write!(
            out,
            "{open} class=\"{class}\" data-node=\"{node}\" aria-label=\"{}\" transform=\"translate({:.1} {:.1})\"><title>{}</title>\
             <rect width=\"{width}\" height=\"{height}\" rx=\"4\"/>",
            escape_line(&name, MAX_TIP_BYTES),
            corner.x,
            corner.y,
            self.format_tooltip(node),
        );
        if text.memory.is_some() {
            let _ = write!(
                out,
                "<rect class=\"inner\" x=\"3\" y=\"3\" width=\"{}\" height=\"{}\" rx=\"2\"/>",
                width - 6.0,
                height - 6.0
            );
        }
        out.push_str("<text>");
        let mut y = PADDING + LINE_HEIGHT - 6.0;
        for (text, class) in text
            .label
            .iter()
            .map(|text| (text, ""))
            .chain(text.memory.iter().map(|text| (text, " class=\"bytes\"")))
        {
            let _ = write!(
                out,
                "<tspan{class} x=\"{:.1}\" y=\"{y:.1}\">{}</tspan>",
                width / 2.0,
                escape_line(text, MAX_TIP_BYTES)
            );
            y += LINE_HEIGHT;
        }
        out.push_str("</text>");
        if let Some(cycle) = cycle {
            let number = (cycle + 1).to_string();
            let room = number.len() as f64 * 6.5 + 9.0;
            let _ = write!(
                out,
                "<g class=\"badge tint-{}\" transform=\"translate({:.1} -8)\"><rect width=\"{room:.1}\" height=\"15\" rx=\"7.5\"/>\
                 <text x=\"{:.1}\" y=\"11\">{number}</text></g>",
                cycle % TINT_COUNT,
                width - room + 6.0,
                room / 2.0
            );
        }
        let _ = writeln!(out, "{close}");
    }

    /// Returns the tooltip, which contains the whole label and the places where the value's memory was allocated and
    /// where the value was registered, if they are known.
    fn format_tooltip(&self, node: u32) -> String {
        let value = &self.graph.nodes[node as usize];
        let mut tip = String::from(memtrack_model::text::cut(self.graph.label(node), MAX_TIP_BYTES));
        for (text, what) in [(value.allocated, "allocated at"), (value.created, "registered at")] {
            let Some(text) = text else { continue };
            let text = memtrack_model::text::cut(self.graph.text(text), MAX_TIP_BYTES);
            let _ = write!(tip, "\n{what}");
            text.lines().take(MAX_TIP_LINES).for_each(|line| tip.extend(["\n  ", line]));
        }
        escape_text(&tip, 3 * MAX_TIP_BYTES)
    }
}

/// Moves the ends of a line to its boxes, because the line was positioned for boxes with room for loops above them.
fn move_ends_to_boxes(points: &mut [Point], corners: &[Point], sizes: &[(f64, f64)], line: &BoxLine) {
    let last = points.len() - 1;
    for (end, at) in [(0, line.from), (last, line.to)] {
        let (corner, size) = (corners[at], sizes[at]);
        let inside = |x: f64, from: f64, room: f64| x.clamp(from, from + room);
        let point = &mut points[end];
        // The nearest point on the box's edge.
        *point = Point { x: inside(point.x, corner.x, size.0), y: inside(point.y, corner.y, size.1) };
    }
}

/// Returns a curve through the points. If the points lead consistently to the right or to the left, as layers do, the
/// curve does not turn back. Names are placed on the curve.
fn smooth_path(points: &[Point]) -> String {
    let points: Vec<Point> = points
        .iter()
        .enumerate()
        .filter(|(at, point)| *at == 0 || (point.x - points[at - 1].x).abs() > 0.5 || points.len() == 2)
        .map(|(_, point)| *point)
        .collect();
    let mut out = format!("M{:.1} {:.1}", points[0].x, points[0].y);
    let rise = |pair: &[Point]| (pair[1].y - pair[0].y) / (pair[1].x - pair[0].x);
    let is_onward =
        points.windows(3).all(|three| (three[1].x - three[0].x) * (three[2].x - three[1].x) > 0.0);
    if points.len() < 3 || !is_onward {
        points[1..].iter().for_each(|point| {
            let _ = write!(out, "L{:.1} {:.1}", point.x, point.y);
        });
        return out;
    }
    let rises: Vec<f64> = points.windows(2).map(rise).collect();
    // At a point where the line changes between rising and falling, the curve is horizontal. At other points, its slope is
    // the harmonic mean of the slopes on both sides, so that the curve does not overshoot.
    let inner = rises.windows(2).map(|pair| match pair[0] * pair[1] > 0.0 {
        true => 2.0 * pair[0] * pair[1] / (pair[0] + pair[1]),
        false => 0.0,
    });
    let mut slopes = vec![0.0];
    slopes.extend(inner);
    slopes[0] = (3.0 * rises[0] - slopes[1]) / 2.0;
    slopes.push((3.0 * rises[rises.len() - 1] - slopes[rises.len() - 1]) / 2.0);
    for (pair, slope) in points.windows(2).zip(slopes.windows(2)) {
        let third = (pair[1].x - pair[0].x) / 3.0;
        let _ = write!(
            out,
            "C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
            pair[0].x + third,
            pair[0].y + slope[0] * third,
            pair[1].x - third,
            pair[1].y - slope[1] * third,
            pair[1].x,
            pair[1].y
        );
    }
    out
}

//! Positions the boxes and lines of a picture in layers from left to right, the way Graphviz lays out PyTorch's graphs.
//!
//! A library (dagre) positions the boxes, the lines and the text beside the lines. Its time grows with the square of the
//! total number of layers that the lines cross, and its stack use grows with the length of a chain. Each connected part
//! is therefore laid out separately, the library positions only lines that cross few layers, and it runs on a thread
//! with a large enough stack. The other lines are drawn straight across, behind the boxes. If the library fails, the
//! boxes are placed in columns.
//!
//! **Why dagre?** Five libraries were tested on graphs of 10 to 2,000 values with cycles, references from a value to
//! itself, and parallel references. The times are in seconds, for 300 and 2,000 values in release mode on a shared
//! machine. Overlapping boxes count as failures.
//!
//! - dagre 0.1.2 (Apache-2.0; needs `log`, `serde`, `serde_json`; does not compile without its default features): 0.43
//!   and 5.2. None of 8,000 small random graphs failed, the result is deterministic, and it leaves room for names.
//! - dugong 0.4.2 (MIT or Apache-2.0): 0.17 and 9.1, and just as reliable, but it turns on the `preserve_order` feature
//!   of `serde_json` in the whole program that embeds it, and its newer releases need Rust 1.95.
//! - dagre-dgl-rs 0.1.1 (MIT; needs `petgraph` and `indexmap`): 0.32 and 6.6.
//! - rust-sugiyama 0.4 (MIT): panics on a reference from a value to itself, overlaps boxes even without such
//!   references, and has a known endless loop (its issue 25).
//! - layout-rs 0.1.3 (MIT): had not finished 300 values after 8 seconds.
//!
//! All of these libraries take time quadratic in the number of times that lines cross layers (with 600 random
//! references among 300 values, they took 6.4 s or had not finished after 8 s), and dagre recurses along chains (2,000
//! values overflow 512 KiB of stack).

use super::layers::assign_layers;
use dagre::graph::{Graph, GraphOptions};
use dagre::layout::types::{Acyclicer, LabelPos};
use dagre::{EdgeLabel, LayoutOptions, NodeLabel, RankDir};
use std::collections::HashMap;

/// The maximum number of layers that the lines positioned by the library may cross in total.
const MAX_CROSSED_LAYERS: usize = 1200;
/// The stack size of the layout thread. The longest chain of boxes that is drawn takes less than a quarter of it.
const LAYOUT_STACK_BYTES: usize = 8 << 20;
/// The distances, in pixels, between boxes in a layer, between lines, and between layers.
const BOX_GAP: f64 = 26.0;
const LINE_GAP: f64 = 14.0;
const LAYER_GAP: f64 = 22.0;
/// The distance between unconnected parts.
const PART_GAP: f64 = 56.0;
/// The preferred ratio of a picture's width to its height.
const ASPECT_RATIO: f64 = 1.5;

/// A position in the picture, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
}

/// A line between two different boxes.
#[derive(Clone, Debug)]
pub(super) struct BoxLine {
    pub from: usize,
    pub to: usize,
    /// The size of the text beside the line.
    pub width: f64,
    pub height: f64,
}

/// The positions of everything in the picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Layout {
    /// Each box's upper left corner.
    pub boxes: Vec<Point>,
    /// Each line's points, from the edge of its first box to the edge of its second.
    pub lines: Vec<Vec<Point>>,
    /// The middle of the text beside each line.
    pub names: Vec<Point>,
    pub width: f64,
    pub height: f64,
}

/// Positions boxes of the given sizes. The result depends only on the arguments.
pub(super) fn lay_out(sizes: &[(f64, f64)], lines: &[BoxLine]) -> Layout {
    let parts = connected_parts(sizes.len(), lines);
    let work: Vec<Part> = parts.iter().map(|boxes| Part::of(boxes, sizes, lines)).collect();
    let placed = std::thread::scope(|scope| {
        let all = || work.iter().map(Part::place_with_library).collect::<Vec<_>>();
        let thread = std::thread::Builder::new().stack_size(LAYOUT_STACK_BYTES).spawn_scoped(scope, all);
        thread.ok().and_then(|thread| thread.join().ok())
    });
    let mut placed = placed.unwrap_or_else(|| vec![None; work.len()]);
    let placed = work.iter().zip(&mut placed).map(|(part, placed)| {
        placed.take().filter(|placed| part.is_drawable(placed)).unwrap_or_else(|| part.place_in_columns())
    });
    pack(sizes, lines, &work, placed.collect())
}

/// Returns the connected parts, each with its boxes in ascending order.
fn connected_parts(boxes: usize, lines: &[BoxLine]) -> Vec<Vec<usize>> {
    let mut parent: Vec<usize> = (0..boxes).collect();
    fn find_root(parent: &mut [usize], mut at: usize) -> usize {
        while parent[at] != at {
            parent[at] = parent[parent[at]];
            at = parent[at];
        }
        at
    }
    for line in lines {
        let (a, b) = (find_root(&mut parent, line.from), find_root(&mut parent, line.to));
        parent[a.max(b)] = a.min(b);
    }
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut places = HashMap::new();
    for at in 0..boxes {
        let place = *places.entry(find_root(&mut parent, at)).or_insert_with(|| {
            parts.push(Vec::new());
            parts.len() - 1
        });
        parts[place].push(at);
    }
    parts
}

/// Connected boxes and their lines.
struct Part {
    boxes: Vec<usize>,
    sizes: Vec<(f64, f64)>,
    /// The lines, each with its index among all lines and with its boxes given as indices into this part.
    lines: Vec<(usize, BoxLine)>,
    /// Whether the library positions each line.
    is_placed: Vec<bool>,
    /// The layer of each box.
    layers: Vec<usize>,
}

/// The positions of the boxes (their upper left corners) and of the lines that the library has positioned, with the
/// middle of the text beside each.
#[derive(Clone, Debug)]
struct PlacedPart {
    boxes: Vec<Point>,
    lines: HashMap<usize, (Vec<Point>, Point)>,
}

impl Part {
    fn of(boxes: &[usize], sizes: &[(f64, f64)], all: &[BoxLine]) -> Self {
        let places: HashMap<usize, usize> = boxes.iter().copied().zip(0..).collect();
        let lines: Vec<(usize, BoxLine)> = all
            .iter()
            .enumerate()
            .filter_map(|(number, line)| {
                let (from, to) = (*places.get(&line.from)?, *places.get(&line.to)?);
                Some((number, BoxLine { from, to, ..line.clone() }))
            })
            .collect();
        let pairs: Vec<(usize, usize)> = lines.iter().map(|(_, line)| (line.from, line.to)).collect();
        let layers = assign_layers(boxes.len(), &pairs);
        let crossed = |&(from, to): &(usize, usize)| layers[from].abs_diff(layers[to]).max(1);
        // Prefer short lines, so that as many lines as possible are within the limit.
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by_key(|&at| crossed(&pairs[at]));
        let mut is_placed = vec![false; pairs.len()];
        let mut sum = 0;
        for at in order {
            sum += crossed(&pairs[at]);
            is_placed[at] = sum <= MAX_CROSSED_LAYERS;
        }
        Self {
            boxes: boxes.to_vec(),
            sizes: boxes.iter().map(|&at| sizes[at]).collect(),
            lines,
            is_placed,
            layers,
        }
    }

    fn place_with_library(&self) -> Option<PlacedPart> {
        let options = GraphOptions { directed: true, multigraph: true, compound: false };
        let mut graph = Graph::<NodeLabel, EdgeLabel>::with_options(options);
        for (at, &(width, height)) in self.sizes.iter().enumerate() {
            graph.set_node(at.to_string(), Some(NodeLabel { width, height, ..NodeLabel::default() }));
        }
        let placed = || {
            self.lines.iter().zip(&self.is_placed).filter(|(_, is_placed)| **is_placed).map(|(line, _)| line)
        };
        for (number, line) in placed() {
            let label = EdgeLabel {
                width: line.width,
                height: line.height,
                labelpos: LabelPos::Center,
                ..EdgeLabel::default()
            };
            graph.set_edge(
                line.from.to_string(),
                line.to.to_string(),
                Some(label),
                Some(&number.to_string()),
            );
        }
        let options = LayoutOptions {
            rankdir: RankDir::LR,
            nodesep: BOX_GAP,
            edgesep: LINE_GAP,
            ranksep: LAYER_GAP,
            // The library's default, a depth-first search, draws a cycle in reading order. However, if every box
            // leads to every other box, it produces one long row.
            acyclicer: (placed().count() > self.sizes.len() * 3 / 2 && self.sizes.len() > 40)
                .then_some(Acyclicer::Greedy),
            ..LayoutOptions::default()
        };
        dagre::layout(&mut graph, Some(options));
        let boxes = self.sizes.iter().enumerate().map(|(at, &(width, height))| {
            let label = graph.node(&at.to_string())?;
            Some(Point { x: label.x? - width / 2.0, y: label.y? - height / 2.0 })
        });
        let boxes = boxes.collect::<Option<Vec<_>>>()?;
        let lines = placed().map(|(number, line)| {
            let label =
                graph.edge(&line.from.to_string(), &line.to.to_string(), Some(&number.to_string()))?;
            let points: Vec<Point> =
                label.points.iter().map(|point| Point { x: point.x, y: point.y }).collect();
            Some((*number, (points, Point { x: label.x?, y: label.y? })))
        });
        Some(PlacedPart { boxes, lines: lines.collect::<Option<_>>()? })
    }

    /// Returns whether a picture can be drawn with these positions, which is the case if everything has a position and
    /// no boxes overlap.
    fn is_drawable(&self, placed: &PlacedPart) -> bool {
        let is_number = |point: &Point| point.x.is_finite() && point.y.is_finite();
        let lies_on = |a: usize, b: usize| {
            let (at, other) = (placed.boxes[a], placed.boxes[b]);
            at.x < other.x + self.sizes[b].0
                && other.x < at.x + self.sizes[a].0
                && at.y < other.y + self.sizes[b].1
                && other.y < at.y + self.sizes[a].1
        };
        placed.boxes.len() == self.sizes.len()
            && placed.boxes.iter().all(is_number)
            && placed
                .lines
                .values()
                .all(|(points, name)| points.len() > 1 && points.iter().all(is_number) && is_number(name))
            && (0..placed.boxes.len()).all(|a| (0..a).all(|b| !lies_on(a, b)))
    }

    /// Positions each layer as a column.
    fn place_in_columns(&self) -> PlacedPart {
        let count = self.layers.iter().max().map_or(0, |last| last + 1);
        let mut widths = vec![0.0_f64; count];
        for (&layer, size) in self.layers.iter().zip(&self.sizes) {
            widths[layer] = widths[layer].max(size.0);
        }
        let name = self.lines.iter().map(|(_, line)| line.width).fold(0.0, f64::max);
        let mut x = vec![0.0; count];
        for layer in 1..count {
            x[layer] = x[layer - 1] + widths[layer - 1] + name + 2.0 * LAYER_GAP;
        }
        let mut y = vec![0.0; count];
        let boxes = self.layers.iter().zip(&self.sizes).map(|(&layer, size)| {
            let point = Point { x: x[layer], y: y[layer] };
            y[layer] += size.1 + BOX_GAP;
            point
        });
        PlacedPart { boxes: boxes.collect(), lines: HashMap::new() }
    }
}

/// Places the parts side by side in rows, in order.
fn pack(sizes: &[(f64, f64)], lines: &[BoxLine], parts: &[Part], placed: Vec<PlacedPart>) -> Layout {
    let mut layout = Layout {
        boxes: vec![Point { x: 0.0, y: 0.0 }; sizes.len()],
        lines: vec![Vec::new(); lines.len()],
        names: vec![Point { x: 0.0, y: 0.0 }; lines.len()],
        ..Layout::default()
    };
    let mut pieces = Vec::new();
    for (part, mut placed) in parts.iter().zip(placed) {
        for (number, line) in &part.lines {
            placed.lines.entry(*number).or_insert_with(|| {
                let end = |at: usize| (placed.boxes[at], part.sizes[at]);
                direct_line(end(line.from), end(line.to))
            });
        }
        pieces.push((part, extent(part, &placed), placed));
    }
    let area: f64 = pieces
        .iter()
        .map(|(_, (low, high), _)| (high.x - low.x + PART_GAP) * (high.y - low.y + PART_GAP))
        .sum();
    let widest = pieces.iter().map(|(_, (low, high), _)| high.x - low.x).fold(0.0, f64::max);
    let row = widest.max((area * ASPECT_RATIO).sqrt());
    let (mut x, mut y, mut lowest) = (0.0, 0.0, 0.0_f64);
    for (part, (low, high), placed) in pieces {
        let (width, height) = (high.x - low.x, high.y - low.y);
        if x > 0.0 && x + width > row {
            (x, y) = (0.0, lowest + PART_GAP);
        }
        let moved = |point: Point| Point { x: point.x - low.x + x, y: point.y - low.y + y };
        for (&at, &point) in part.boxes.iter().zip(&placed.boxes) {
            layout.boxes[at] = moved(point);
        }
        for (number, (points, name)) in placed.lines {
            layout.lines[number] = points.into_iter().map(moved).collect();
            layout.names[number] = moved(name);
        }
        layout.width = layout.width.max(x + width);
        lowest = lowest.max(y + height);
        x += width + PART_GAP;
    }
    layout.height = lowest;
    layout
}

/// Returns the upper left and lower right corners of the rectangle around a part.
fn extent(part: &Part, placed: &PlacedPart) -> (Point, Point) {
    let mut low = Point { x: f64::MAX, y: f64::MAX };
    let mut high = Point { x: f64::MIN, y: f64::MIN };
    let mut add = |point: Point, width: f64, height: f64| {
        low = Point { x: low.x.min(point.x), y: low.y.min(point.y) };
        high = Point { x: high.x.max(point.x + width), y: high.y.max(point.y + height) };
    };
    for (&point, &(width, height)) in placed.boxes.iter().zip(&part.sizes) {
        add(point, width, height);
    }
    for (number, line) in &part.lines {
        let (points, name) = &placed.lines[number];
        points.iter().for_each(|&point| add(point, 0.0, 0.0));
        add(Point { x: name.x - line.width / 2.0, y: name.y - line.height / 2.0 }, line.width, line.height);
    }
    (low, high)
}

/// Returns a direct line if it leads to the right, or a line that passes below the boxes if it leads back.
fn direct_line(
    (from, from_size): (Point, (f64, f64)),
    (to, to_size): (Point, (f64, f64)),
) -> (Vec<Point>, Point) {
    let right = Point { x: from.x + from_size.0, y: from.y + from_size.1 / 2.0 };
    let left = Point { x: to.x, y: to.y + to_size.1 / 2.0 };
    let (a, b, c, d) = if left.x > right.x {
        let bend = ((left.x - right.x) / 2.0).min(120.0);
        (right, Point { x: right.x + bend, ..right }, Point { x: left.x - bend, ..left }, left)
    } else {
        let below = |at: Point, size: (f64, f64)| Point { x: at.x + size.0 / 2.0, y: at.y + size.1 };
        let (begin, end) = (below(from, from_size), below(to, to_size));
        let low = begin.y.max(end.y) + 60.0;
        (begin, Point { y: low, ..begin }, Point { y: low, ..end }, end)
    };
    // The points lie on a Bézier curve.
    let at = |t: f64| {
        let mix = |a: f64, b: f64, c: f64, d: f64| {
            let s = 1.0 - t;
            s * s * s * a + 3.0 * s * s * t * b + 3.0 * s * t * t * c + t * t * t * d
        };
        Point { x: mix(a.x, b.x, c.x, d.x), y: mix(a.y, b.y, c.y, d.y) }
    };
    ((0..=8).map(|step| at(f64::from(step) / 8.0)).collect(), at(0.5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line_between(from: usize, to: usize) -> BoxLine {
        BoxLine { from, to, width: 50.0, height: 16.0 }
    }

    fn check(sizes: &[(f64, f64)], lines: &[BoxLine], layout: &Layout) {
        let end = |at: usize| (layout.boxes[at], sizes[at]);
        for a in 0..sizes.len() {
            let (at, size) = end(a);
            assert!(
                at.x >= 0.0
                    && at.y >= 0.0
                    && at.x + size.0 <= layout.width + 0.01
                    && at.y + size.1 <= layout.height + 0.01
            );
            for b in 0..a {
                let (other, other_size) = end(b);
                let lies_on = at.x < other.x + other_size.0
                    && other.x < at.x + size.0
                    && at.y < other.y + other_size.1
                    && other.y < at.y + size.1;
                assert!(!lies_on, "boxes {a} and {b}");
            }
        }
        let touches = |point: Point, at: usize| {
            let (corner, size) = end(at);
            point.x >= corner.x - 1.0
                && point.x <= corner.x + size.0 + 1.0
                && point.y >= corner.y - 1.0
                && point.y <= corner.y + size.1 + 1.0
        };
        for (line, points) in lines.iter().zip(&layout.lines) {
            assert!(touches(points[0], line.from), "{line:?} begins at its box");
            assert!(touches(points[points.len() - 1], line.to), "{line:?} ends at its box");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn no_boxes_overlap_and_each_line_joins_its_boxes(
            sizes in prop::collection::vec((30.0..220.0, 20.0..70.0), 1..14),
            ends in prop::collection::vec((0_usize..14, 0_usize..14), 0..24),
        ) {
            let count = sizes.len();
            let lines: Vec<_> = ends.into_iter().map(|(from, to)| line_between(from % count, to % count)).filter(|line| line.from != line.to).collect();
            let placed = lay_out(&sizes, &lines);
            check(&sizes, &lines, &placed);
            prop_assert_eq!(placed, lay_out(&sizes, &lines));
        }
    }

    #[test]
    fn column_fallback_is_valid_layout() {
        let sizes = vec![(100.0, 30.0); 9];
        let lines: Vec<_> = (0..9)
            .flat_map(|at| [line_between(at, (at + 1) % 9), line_between(at, (at * 5 + 2) % 9)])
            .filter(|line| line.from != line.to)
            .collect();
        let part = Part::of(&(0..9).collect::<Vec<_>>(), &sizes, &lines);
        let columns = part.place_in_columns();
        assert!(part.is_drawable(&columns));
        check(&sizes, &lines, &pack(&sizes, &lines, &[part], vec![columns]));
    }

    #[test]
    fn picture_that_cannot_be_drawn_is_detected() {
        let sizes = [(10.0, 10.0); 2];
        let part = Part::of(&[0, 1], &sizes, &[line_between(0, 1)]);
        let placed = |x: f64| PlacedPart {
            boxes: vec![Point { x: 0.0, y: 0.0 }, Point { x, y: 0.0 }],
            lines: HashMap::new(),
        };
        assert!(part.is_drawable(&placed(10.0)));
        assert!(!part.is_drawable(&placed(9.0)) && !part.is_drawable(&placed(f64::NAN)));
    }

    #[test]
    fn many_lines_between_all_boxes_are_drawn_without_library() {
        let sizes = vec![(100.0, 30.0); 40];
        let lines: Vec<_> = (0..40)
            .flat_map(|from| (0..40).map(move |to| line_between(from, to)))
            .filter(|line| line.from != line.to)
            .take(900)
            .collect();
        let part = Part::of(&(0..40).collect::<Vec<_>>(), &sizes, &lines);
        assert!(part.is_placed.iter().any(|is_placed| !is_placed));
        check(&sizes, &lines, &lay_out(&sizes, &lines));
    }

    #[test]
    fn longest_chain_that_is_drawn_fits_stack() {
        let count = super::super::select::MAX_NODES;
        let sizes = vec![(60.0, 30.0); count];
        let lines: Vec<_> = (0..count).map(|from| line_between(from, (from + 1) % count)).collect();
        let placed = lay_out(&sizes, &lines);
        check(&sizes, &lines, &placed);
        assert!(placed.height < 400.0, "by the library: one row, not a column");
    }
}

//! A diff by stack as folded lines with two numbers each, for flame graphs that show growth and shrinkage.

use super::{Diff, DiffRow};
use crate::live_flame::escape_label;
#[cfg(feature = "plot")]
use crate::live_flame::{
    MAX_RECTANGLES,
    bound::bound_tree,
    tree::{Node, RectangleKind, Tree},
};
use crate::top::frames::format_frame;
#[cfg(feature = "plot")]
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
#[cfg(feature = "plot")]
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};
#[cfg(feature = "plot")]
use memtrack_blocks::change::{Amount, Change};
#[cfg(feature = "plot")]
use memtrack_frames::language::is_script;
#[cfg(feature = "plot")]
use memtrack_frames::ownership::{Owner, Owners, short};
use std::collections::BTreeMap;
#[cfg(feature = "plot")]
use std::io::{self, Write};

/// The legend that explains the colours.
#[cfg(feature = "plot")]
const LEGEND: &str = "Red: grew. Blue: shrank or gone. Only differences are drawn, as wide as in the later \
                      file; gone ones as wide as before.";

/// The maximum number of title characters that fit above a picture.
#[cfg(feature = "plot")]
const MAX_TITLE_CHARS: usize = 105;

/// The colour of functions that neither grew nor shrank.
#[cfg(feature = "plot")]
const UNCHANGED: Color = Color { r: 225, g: 225, b: 225 };

/// The maximum number of bits in the sum of all numbers in a picture.
#[cfg(feature = "plot")]
const MAX_SUM_BITS: u32 = 60;

/// Stacks, outermost function first, with their bytes before and after.
type FoldedStacks = BTreeMap<String, [u64; 2]>;

impl Diff {
    /// Returns a sorted line `device;function;… before after` for each stack, in the format that tools for differential
    /// flame graphs read. The diff must be by stack; only the groups that differ are included.
    pub fn folded(&self) -> Vec<String> {
        let mut folded = FoldedStacks::new();
        for device in &self.devices {
            for row in &device.rows {
                add_stack(
                    &mut folded,
                    &device.device.name,
                    row,
                    [row.bytes.before.value, row.bytes.after.value],
                );
            }
        }
        format_lines(&folded)
    }

    /// Returns the tree for a picture with at most `rectangles` rectangles. Like rankings, which fold stacks the same
    /// way, the tree contains only informative functions and, for a Python program, only its Python lines. The width of
    /// a stack is its bytes in the later file. Stacks that are missing from the later file are below a separate frame,
    /// and their width is their bytes in the earlier file.
    #[cfg(feature = "plot")]
    fn build_picture_tree(&self, rectangles: usize) -> Tree {
        let rows = self.devices.iter().flat_map(|device| &device.rows);
        let all: u128 =
            rows.map(|row| u128::from(row.bytes.before.value) + u128::from(row.bytes.after.value)).sum();
        // An untrusted file may contain arbitrary numbers, but the sums in the picture must not overflow.
        let shift = (128 - all.leading_zeros()).saturating_sub(MAX_SUM_BITS).min(63);
        let mut owners = Owners::new(&self.rules);
        // Stacks that look the same are merged, even if one of them is missing from the later file.
        let mut sums: BTreeMap<(&str, Vec<Name>), [u64; 2]> = BTreeMap::new();
        for device in &self.devices {
            for row in &device.rows {
                let sums = sums.entry((&device.device.name, shown_functions(row, &mut owners))).or_default();
                for (sum, bytes) in sums.iter_mut().zip([row.bytes.before.value, row.bytes.after.value]) {
                    *sum = sum.saturating_add(bytes >> shift);
                }
            }
        }
        let mut tree = Tree::default();
        for ((device, stack), bytes) in sums {
            let (root, [before, after]) = match bytes {
                [0, 0] => continue,
                [before, 0] => (format!("gone from {device}"), [before.saturating_mul(2), before]),
                bytes => (device.to_owned(), bytes),
            };
            let mut node = tree.get_or_add_child(Tree::ROOT, &root, RectangleKind::Device);
            for name in stack {
                // Merge recursive calls and calls between functions with the same name.
                if tree.label(node) != name {
                    node = tree.get_or_add_child(node, &name, RectangleKind::Mine);
                }
            }
            tree.add_both(node, before, after);
        }
        let mut tree = bound_tree(&tree, rectangles);
        for node in &mut tree.nodes[1..] {
            let number = |bytes: u64| Amount::exact(bytes.checked_shl(shift).unwrap_or(u64::MAX));
            let change = Change { before: number(node.before[1]), after: number(node.bytes) };
            node.label = format!("{} {}", node.label, change.format_bytes());
        }
        tree
    }
}

/// A function's name in a picture.
#[cfg(feature = "plot")]
type Name = String;

/// Returns the functions of a row that appear in a picture, outermost first.
#[cfg(feature = "plot")]
fn shown_functions(row: &DiffRow, owners: &mut Owners<'_>) -> Vec<Name> {
    if row.stack.is_empty() {
        return vec![row.name.clone()];
    }
    let owners = owners.owners_of(row.stack.iter().map(|line| &line.frame));
    let frames = || row.stack.iter().map(|line| &line.frame).zip(&owners);
    // A row may stand for several stacks that differ in the C++ frames below their lines of scripts, so these frames are not
    // shown.
    let of_script = frames().any(|(frame, _)| is_script(frame));
    let rest = || frames().filter(|(frame, _)| !of_script || is_script(frame));
    // A stack that contains nothing but noise is shown as it is.
    let is_uninformative = rest().all(|(_, owner)| *owner == Owner::Noise);
    let shown = rest().filter(|(_, owner)| is_uninformative || **owner != Owner::Noise);
    let mut names: Vec<Name> = shown.map(|(frame, _)| short(frame)).collect();
    names.reverse();
    names
}

/// Draws `stacks`, a diff by stack, as a self-contained SVG image with at most [`MAX_RECTANGLES`] rectangles. The title
/// is the summary of `answer`, the diff of the same two files in the user's grouping. Equal diffs yield equal images.
///
/// # Errors
/// Returns an error if `out` cannot be written to.
#[cfg(feature = "plot")]
pub fn flame_graph(stacks: &Diff, answer: &Diff, out: &mut impl Write) -> io::Result<()> {
    let mut options = Options::default();
    options.title = answer.format_title(MAX_TITLE_CHARS);
    let exact = stacks.devices.iter().flat_map(|device| &device.rows).all(|row| row.bytes.is_exact());
    options.subtitle = Some(match exact {
        true => LEGEND.to_owned(),
        false => format!("{LEGEND} Small blocks were sampled: numbers are estimates."),
    });
    options.count_name = "bytes".to_owned();
    options.name_type = "Frame:".to_owned();
    options.deterministic = true;
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 250, g: 250, b: 250 }));
    // Truncate names on the right, because they differ at the start, in the file and the line.
    options.text_truncate_direction = TextTruncateDirection::Right;
    // The tree contains only rectangles that should be drawn, however narrow they are.
    options.min_width = 0.0;
    // Leave room for the one frame that contains all others.
    let tree = stacks.build_picture_tree(MAX_RECTANGLES - 1);
    let mut palette = PaletteMap::default();
    // The frame that contains all others has no name.
    palette.insert("", UNCHANGED);
    palette.insert("all", UNCHANGED);
    let most = tree.nodes[1..].iter().map(|node| growth(node).unsigned_abs()).max().unwrap_or(0);
    for node in &tree.nodes[1..] {
        // A label ends with the change in bytes, so rectangles with equal labels have equal colours.
        palette.insert(escape_label(&node.label), growth_colour(growth(node), most));
    }
    options.palette_map = Some(&mut palette);
    let mut lines = tree.format_lines();
    if lines.is_empty() {
        lines.push("(nothing differs) 1".to_owned());
    }
    from_lines(&mut options, lines.iter().map(String::as_str), out).map_err(io::Error::other)
}

/// Returns the growth in bytes of a function, including everything that it called; negative if it shrank.
#[cfg(feature = "plot")]
fn growth(node: &Node) -> i128 {
    i128::from(node.bytes) - i128::from(node.before[1])
}

/// Returns a shade of red for growth or blue for shrinkage. The shade is stronger, the closer the change is to `most`,
/// the largest change.
#[cfg(feature = "plot")]
fn growth_colour(by: i128, most: u128) -> Color {
    let share = by.unsigned_abs() as f64 / most.max(1) as f64;
    // Even the smallest change must look different from no change.
    let pale = (215.0 - 105.0 * share.sqrt()) as u8;
    match by.signum() {
        1 => Color { r: 255, g: pale, b: pale },
        -1 => Color { r: pale, g: pale, b: 255 },
        _ => UNCHANGED,
    }
}

fn add_stack(folded: &mut FoldedStacks, root: &str, row: &DiffRow, bytes: [u64; 2]) {
    let mut line = escape_label(root);
    let stack = row.stack.iter().rev().map(|line| format_frame(&line.frame, usize::MAX));
    let name = row.stack.is_empty().then(|| row.name.clone());
    for frame in stack.chain(name) {
        line.push(';');
        line.push_str(&escape_label(&frame));
    }
    let sums = folded.entry(line).or_default();
    for (sum, bytes) in sums.iter_mut().zip(bytes) {
        *sum = sum.saturating_add(bytes);
    }
}

fn format_lines(folded: &FoldedStacks) -> Vec<String> {
    folded.iter().map(|(stack, [before, after])| format!("{stack} {before} {after}")).collect()
}

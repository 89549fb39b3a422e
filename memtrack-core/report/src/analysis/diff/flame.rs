//! A diff by stack as folded lines with two numbers, for flame graphs that show what grew and what shrank.

use super::{Diff, DiffRow};
use crate::analysis::top::frames::described;
#[cfg(feature = "plot")]
use inferno::flamegraph::{Options, from_lines};
use memtrack_model::units::printable;
use std::collections::BTreeMap;
#[cfg(feature = "plot")]
use std::io::{self, Write};

/// What the colours say.
#[cfg(feature = "plot")]
const LEGEND: &str =
    "Red: grew. Blue: shrank, or gone. As wide as it is in the later file; what is gone as wide as it was.";

/// Bits of the sum of all numbers in a picture.
#[cfg(feature = "plot")]
const MOST_BITS: u32 = 60;

/// Stacks, outermost function first, with their bytes before and after.
type Folded = BTreeMap<String, [u64; 2]>;

impl Diff {
    /// `device;function;… before after`, a line for each stack in the order of their names, as tools for differential
    /// flame graphs take them. The diff must be by stack; every group that differs is there, those that do not are not.
    pub fn folded(&self) -> Vec<String> {
        let mut folded = Folded::new();
        for device in &self.devices {
            for row in &device.rows {
                add(&mut folded, &device.device_name, row, [row.bytes.before.value, row.bytes.after.value]);
            }
        }
        lines(&folded)
    }

    /// The same for a picture, in which a stack is as wide as the later of the two numbers: what is gone would have no
    /// width, and stands below a frame of its own, as wide as it was.
    #[cfg(feature = "plot")]
    fn drawn(&self) -> Vec<String> {
        let mut folded = Folded::new();
        let rows = self.devices.iter().flat_map(|device| &device.rows);
        let all: u128 =
            rows.map(|row| u128::from(row.bytes.before.value) + u128::from(row.bytes.after.value)).sum();
        // A foreign file may hold any numbers, of which the picture takes no more than this.
        let shift = (128 - all.leading_zeros()).saturating_sub(MOST_BITS).min(63);
        for device in &self.devices {
            for row in &device.rows {
                let (before, after) = (row.bytes.before.value >> shift, row.bytes.after.value >> shift);
                let gone = gone(device);
                match after {
                    0 if before == 0 => {}
                    0 => add(&mut folded, &gone, row, [before.saturating_mul(2), before]),
                    _ => add(&mut folded, &device.device_name, row, [before, after]),
                }
            }
        }
        lines(&folded)
    }
}

/// Draws a diff by stack as an SVG image that needs nothing else. Equal diffs make equal images.
///
/// # Errors
/// When `out` cannot be written.
#[cfg(feature = "plot")]
pub fn flame_graph(diff: &Diff, out: &mut impl Write) -> io::Result<()> {
    let mut options = Options::default();
    options.title = diff.answer().into_iter().next().unwrap_or_default();
    options.subtitle = Some(LEGEND.to_owned());
    options.count_name = "bytes".to_owned();
    options.name_type = "Frame:".to_owned();
    options.deterministic = true;
    let mut lines = diff.drawn();
    if lines.is_empty() {
        lines.push("(nothing differs) 1 1".to_owned());
    }
    from_lines(&mut options, lines.iter().map(String::as_str), out).map_err(io::Error::other)
}

#[cfg(feature = "plot")]
fn gone(device: &super::DeviceDiff) -> String {
    format!("gone from {}", device.device_name)
}

fn add(folded: &mut Folded, root: &str, row: &DiffRow, bytes: [u64; 2]) {
    let mut line = plain(root);
    let stack = row.stack.iter().rev().map(|line| described(&line.frame, usize::MAX));
    let name = row.stack.is_empty().then(|| row.name.clone());
    for frame in stack.chain(name) {
        line.push(';');
        line.push_str(&plain(&frame));
    }
    let sums = folded.entry(line).or_default();
    for (sum, bytes) in sums.iter_mut().zip(bytes) {
        *sum = sum.saturating_add(bytes);
    }
}

/// A name without what separates frames and lines, and without what XML does not take.
fn plain(name: &str) -> String {
    printable(name).replace(';', ":")
}

fn lines(folded: &Folded) -> Vec<String> {
    folded.iter().map(|(stack, [before, after])| format!("{stack} {before} {after}")).collect()
}

//! How large the blocks of a device are: a histogram of their sizes, with the lines of code that make each class. `memtrack sizes` and
//! programs call [`sizes`].
//!
//! A class has the sizes above one power of two, up to the next. Bytes are requested bytes. Many small blocks are where an
//! allocator's rounding and bookkeeping cost most, and a few large ones are where fragmentation starts.

use crate::layout::{Layout, MIN_NAME_CHARS, new_table, shorten_function, wrap};
use crate::top::rows::{KnownTotals, Sorter};
use crate::top::{By, NOT_ENDED_NOTE, TopOptions, Totals, top_with};
use comfy_table::{Cell, CellAlignment};
use memtrack_blocks::estimate::{Estimate, MAX_RELATIVE_ERROR, Precision, Sum};
use memtrack_blocks::lifetimes::{Lifetime, lifetimes};
use memtrack_blocks::moment::Moment;
#[cfg(feature = "schema")]
use memtrack_model::answer::NameAnswer;
use memtrack_model::answer::{DeviceAnswer, serialize_as_name};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_model::units::{human_bytes, printable};
use memtrack_symbols::Symbolizer;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The maximum number of lines that are listed for a class.
const MAX_MAKERS: usize = 3;

/// The sizes of one device's blocks, as `memtrack sizes --json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SizesReport {
    /// The device.
    pub device: DeviceAnswer,
    /// The moment at which live blocks are counted; null if all allocations are counted.
    pub at: Option<Moment>,
    /// The classes that have blocks, from the smallest size.
    pub classes: Vec<SizeClass>,
    /// Sums over all classes.
    pub totals: Totals,
    /// Because small blocks are sampled, a class with less than this many bytes has a chance of at least 5 % of being missing; 0
    /// if every block was recorded.
    pub detection_limit_bytes: u64,
    /// Whether the recording is complete. If not, the numbers for all allocations, for the end and for the peak are
    /// lower bounds.
    pub complete: bool,
}

/// The blocks with a size above one power of two, up to the next.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SizeClass {
    /// The largest size in bytes: a power of two. The class has sizes above half of it.
    pub up_to_bytes: u64,
    /// The number of blocks.
    pub count: u64,
    /// The margin of error of the number of blocks; null if it is exact.
    pub count_error: Estimate,
    /// The requested bytes of the blocks.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    pub requested_bytes_error: Estimate,
    /// The class's share of the requested bytes of all classes, from 0 to 1.
    pub share: f64,
    /// The lines of the user's code that allocated most of the class's bytes, largest first, at most three.
    pub made_by: Vec<SizeMaker>,
    /// The total number of such lines.
    pub made_by_in_all: usize,
}

/// A line of the user's code, and its part of a class.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SizeMaker {
    /// The line or, for blocks without one, the function that stands for their stacks.
    #[serde(flatten, serialize_with = "serialize_as_name")]
    #[cfg_attr(feature = "schema", schemars(with = "NameAnswer"))]
    pub name: String,
    /// The requested bytes of the line's blocks in the class.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes; null if they are exact.
    pub requested_bytes_error: Estimate,
    /// The line's share of the class's requested bytes, from 0 to 1.
    pub share: f64,
}

/// The bytes and blocks of a class, or of a line in it.
#[derive(Clone, Copy, Default)]
struct Sums {
    bytes: u64,
    blocks: f64,
    byte_sum: Sum,
    block_sum: Sum,
}

impl Sums {
    fn add(&mut self, lifetime: &Lifetime) {
        self.bytes = self.bytes.saturating_add(lifetime.bytes);
        self.blocks += lifetime.blocks;
        self.byte_sum.add(lifetime.size_bytes as f64, lifetime.blocks);
        self.block_sum.add(1.0, lifetime.blocks);
    }
}

/// Counts the blocks of `device` by size: those that were live at [`TopOptions::at`], or all that were allocated.
pub fn sizes(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    device: DeviceId,
    options: &TopOptions,
) -> SizesReport {
    // The totals are those of a ranking, which uses the recorder's own counts where it has them.
    let top = top_with(snapshot, symbols, By::Line, device, &options.clone().limit(0));
    let lifetimes = lifetimes(snapshot, device);
    let precision = Precision::of(snapshot, device, &lifetimes);
    let is_counted = |lifetime: &&Lifetime| match options.at {
        None => lifetime.from.is_some(),
        Some(Moment::Peak) => lifetime.is_live_after(top.peak.row),
        Some(moment) => lifetime.is_live_after(moment.row()),
    };
    let mut sorter = Sorter::new(snapshot, symbols, By::Line, device, options, &lifetimes);
    let mut classes: BTreeMap<u64, (Sums, HashMap<usize, Sums>)> = BTreeMap::new();
    for lifetime in lifetimes.iter().filter(is_counted) {
        let place = sorter.find_or_add_row(lifetime);
        sorter.count(place, lifetime);
        let up_to = lifetime.size_bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
        let (all, lines) = classes.entry(up_to).or_default();
        all.add(lifetime);
        lines.entry(place.row).or_default().add(lifetime);
    }
    let rows = sorter.rows_by_index(&precision, &KnownTotals::UNKNOWN);
    let ends = snapshot.meta.complete || !matches!(options.at, None | Some(Moment::End));
    let share = |part: u64, all: u64| if all == 0 { 0.0 } else { (part as f64 / all as f64).min(1.0) };
    let bytes_error = |sums: &Sums| precision.bytes(&sums.byte_sum).with_completeness(ends);
    let class = |(up_to_bytes, (all, lines)): (u64, (Sums, HashMap<usize, Sums>))| {
        let maker = |(row, sums): (usize, Sums)| SizeMaker {
            name: rows[row].name.clone(),
            requested_bytes: sums.bytes,
            requested_bytes_error: bytes_error(&sums),
            share: share(sums.bytes, all.bytes),
        };
        let made_by_in_all = lines.len();
        let mut made_by: Vec<SizeMaker> = lines.into_iter().map(maker).collect();
        made_by.sort_by(|a, b| b.requested_bytes.cmp(&a.requested_bytes).then_with(|| a.name.cmp(&b.name)));
        made_by.truncate(MAX_MAKERS);
        SizeClass {
            up_to_bytes,
            count: all.blocks.round() as u64,
            count_error: precision.blocks(&all.block_sum).with_completeness(ends),
            requested_bytes: all.bytes,
            requested_bytes_error: bytes_error(&all),
            share: share(all.bytes, top.totals.allocated_bytes),
            made_by,
            made_by_in_all,
        }
    };
    SizesReport {
        at: options.at,
        classes: classes.into_iter().map(class).collect(),
        totals: top.totals,
        detection_limit_bytes: top.detection_limit_bytes,
        complete: top.complete,
        device: top.device,
    }
}

impl fmt::Display for SizesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(None))
    }
}

impl SizesReport {
    /// Formats the report. If the layout has a width, names are shortened until the table fits.
    pub fn to_text(&self, layout: impl Into<Layout>) -> String {
        let Layout { width, .. } = layout.into();
        let (totals, name) = (&self.totals, &self.device.name);
        let when = self.at.map_or(String::new(), |moment| format!(", {}", moment.name()));
        let bytes = totals.bytes_error.as_bytes(totals.allocated_bytes);
        let blocks = totals.count_error.as_counted(totals.count, "block");
        let mut text = wrap(&format!("Sizes of the blocks of {name}{when}: {blocks}, {bytes}\n"), width);
        if self.classes.is_empty() {
            text += match (self.at, self.detection_limit_bytes) {
                (_, 1..) => {
                    "They were too small for any to be sampled; record with Options::exact() to see them.\n"
                }
                (Some(_), _) => "No block was live at that moment.\n",
                (None, _) => "Nothing was allocated during the recording.\n",
            };
        } else {
            let full = self.format_table(usize::MAX);
            let widest = full.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            let too_wide = width.map_or(0, |width| widest.saturating_sub(width));
            let names = self.classes.iter().map(|class| class.format_makers(usize::MAX).chars().count());
            let room = names.max().unwrap_or(0).saturating_sub(too_wide).max(MIN_NAME_CHARS);
            text += &format!("\n{}", if too_wide == 0 { full } else { self.format_table(room) });
        }
        let mut notes = String::new();
        if self.detection_limit_bytes > 0 {
            notes += &format!(
                "± and < hold with 95 % confidence: small blocks are sampled. A class with less than {} may be missing.\n",
                human_bytes(self.detection_limit_bytes)
            );
        }
        if !self.complete {
            notes += &format!("{NOT_ENDED_NOTE}\n");
        }
        if !notes.is_empty() {
            text += &format!("\n{}", wrap(&notes, width));
        }
        text
    }

    fn format_table(&self, room: usize) -> String {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let mut table = new_table();
        let heads = ["Size up to", "Blocks", "Requested", "Share"].map(|head| right(head.to_owned()));
        table.set_header(heads.into_iter().chain([Cell::new("Mostly from")]));
        for class in &self.classes {
            table.add_row([
                right(human_bytes(class.up_to_bytes)),
                right(class.count_error.as_count(class.count)),
                right(class.requested_bytes_error.as_bytes(class.requested_bytes)),
                right(class.requested_bytes_error.as_share(class.share)),
                Cell::new(class.format_makers(room)),
            ]);
        }
        table.trim_fmt() + "\n"
    }
}

impl SizeClass {
    /// Formats the line that made most of the class in about `room` characters, as in `train.py:53 step (93.1 %), 2 more`.
    fn format_makers(&self, room: usize) -> String {
        let Some(most) = self.made_by.first() else { return String::new() };
        // A share that is only an upper bound says nothing about which line made most.
        let is_known = most.requested_bytes_error.relative_error() <= MAX_RELATIVE_ERROR;
        let share = match is_known {
            true => format!(" ({})", most.requested_bytes_error.as_share(most.share)),
            false => String::new(),
        };
        let more = match self.made_by_in_all {
            0 | 1 => String::new(),
            lines => format!("{share}, {} more", lines - 1),
        };
        let left = room.saturating_sub(more.chars().count()).max(MIN_NAME_CHARS);
        printable(&shorten_function(&most.name, left)) + &more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::Frame;
    use memtrack_model::event::{Action, Event, StackId};

    const DEVICE: DeviceId = DeviceId(0);

    /// Creates a trace of allocations with these sizes and stacks. Every second block is freed at once.
    fn snapshot_of(blocks: &[(u64, u32)]) -> (Snapshot, Symbolizer) {
        let mut snapshot = Snapshot::default();
        snapshot.meta.complete = true;
        let mut symbols = Symbolizer::default();
        for (address, function) in [(1, "load"), (2, "step")] {
            snapshot.stacks.push(&[address]);
            let file = Some("/home/ana/train.py".to_owned());
            let frame =
                Frame { function: function.into(), file, line: Some(10 * address as u32), binary: None };
            symbols = symbols.with_frames(address, vec![frame]);
        }
        for (number, &(size_bytes, stack)) in blocks.iter().enumerate() {
            let (ticks, address) = (10 * number as u64 + 1, (number as u64 + 1) << 32);
            let (device, stack) = (DEVICE, StackId(stack));
            let alloc =
                Event { ticks, address, size_bytes, device, stack, action: Action::Alloc, ..Event::BLANK };
            snapshot.events.push(&alloc);
            if number % 2 == 1 {
                snapshot.events.push(&Event { ticks: ticks + 1, action: Action::Free, ..alloc });
            }
        }
        (snapshot, symbols)
    }

    fn report(blocks: &[(u64, u32)], at: Option<Moment>) -> SizesReport {
        let (snapshot, mut symbols) = snapshot_of(blocks);
        sizes(&snapshot, &mut symbols, DEVICE, &TopOptions::new().at(at))
    }

    fn classes(report: &SizesReport) -> Vec<(u64, u64, u64)> {
        report.classes.iter().map(|class| (class.up_to_bytes, class.count, class.requested_bytes)).collect()
    }

    #[test]
    fn class_ends_at_power_of_two() {
        let all = [0, 1, 2, 3, 4, 5, 511, 512, 513, 1 << 40, u64::MAX >> 1].map(|size| (size, 1));
        let expected = [
            (1, 2, 1),
            (2, 1, 2),
            (4, 2, 7),
            (8, 1, 5),
            (512, 2, 1023),
            (1024, 1, 513),
            (1 << 40, 1, 1 << 40),
            (1 << 63, 1, u64::MAX >> 1),
        ];
        assert_eq!(classes(&report(&all, None)), expected);
    }

    #[test]
    fn lines_are_listed_with_their_part_of_class() {
        let found = report(&[(100, 1), (100, 1), (128, 2), (65, 2), (65, 2), (9, 2)], None);
        assert_eq!(classes(&found), [(16, 1, 9), (128, 5, 458)]);
        let parts = |class: &SizeClass| {
            class.made_by.iter().map(|maker| (maker.name.clone(), maker.requested_bytes)).collect::<Vec<_>>()
        };
        assert_eq!(
            parts(&found.classes[1]),
            [("train.py:20 step".into(), 258), ("train.py:10 load".into(), 200)]
        );
        assert_eq!(found.classes[1].format_makers(80), "train.py:20 step (56.3 %), 1 more");
        assert_eq!(found.classes[0].format_makers(80), "train.py:20 step");
        assert_eq!((found.totals.count, found.totals.allocated_bytes), (6, 467));
        let text = found.to_text(None);
        assert!(text.starts_with("Sizes of the blocks of device 0: 6 blocks, 467 B\n"), "{text}");
        assert!(
            text.lines()
                .any(|line| line
                    == "      128 B       5      458 B  98.1 %  train.py:20 step (56.3 %), 1 more"),
            "{text}"
        );
    }

    #[test]
    fn only_live_blocks_count_at_moment() {
        let blocks = [(100, 1), (1000, 1), (10, 2)];
        assert_eq!(classes(&report(&blocks, Some(Moment::Peak))), [(128, 1, 100), (1024, 1, 1000)]);
        assert_eq!(classes(&report(&blocks, Some(Moment::End))), [(16, 1, 10), (128, 1, 100)]);
        let nothing = report(&[], Some(Moment::End)).to_text(None);
        assert!(nothing.ends_with("No block was live at that moment.\n"), "{nothing}");
    }
}

//! Which lines of code pin pages: the lines whose blocks lie on pages of which little else is live.

use super::pages::SparsePage;
use crate::top::rows::{KnownTotals, Sorter};
use crate::top::{By, TopOptions};
use memtrack_blocks::estimate::Precision;
use memtrack_blocks::lifetimes::Lifetime;
#[cfg(feature = "schema")]
use memtrack_model::answer::NameAnswer;
use memtrack_model::answer::serialize_as_name;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_symbols::Symbolizer;
use serde::Serialize;
use std::collections::HashMap;

/// The pages of which at most a quarter is live.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct SparsePages {
    /// The bytes of these pages.
    pub bytes: u64,
    /// The bytes of live blocks on them.
    pub live_bytes: u64,
    /// The lines of the user's code whose blocks are on these pages, those that pin most first.
    pub pinned_by: Vec<Pin>,
    /// The total number of such lines.
    pub pinned_by_in_all: usize,
}

/// A line whose blocks are on pages of which at most a quarter is live.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Pin {
    /// The line or, for blocks without one, the function that stands for their stacks.
    #[serde(flatten, serialize_with = "serialize_as_name")]
    #[cfg_attr(feature = "schema", schemars(with = "NameAnswer"))]
    pub name: String,
    /// The bytes of the pages that the line pins. A page with blocks of several lines is divided by their bytes there.
    pub bytes: u64,
    /// The bytes of the pages on which only this line has blocks: without them, these pages would be free.
    pub alone_bytes: u64,
    /// The line's live bytes on these pages.
    pub live_bytes: u64,
    /// The number of the line's blocks on these pages.
    pub blocks: u64,
    /// The size of most of these blocks, in bytes.
    pub usual_block_bytes: u64,
    /// The share of the bytes of all these pages, from 0 to 1.
    pub share: f64,
}

/// The pages that one line pins, so far.
#[derive(Debug, Default)]
struct PinSums {
    /// Bytes of pages, in fractions.
    pinned: f64,
    alone: u64,
    live: u64,
    /// The number of blocks, by size.
    sizes: HashMap<u64, u64>,
}

/// The sparse pages of one reading, before lines have names.
#[derive(Debug, Default)]
pub(super) struct UnnamedPins {
    bytes: u64,
    live_bytes: u64,
    /// By row of the sorter.
    lines: HashMap<usize, PinSums>,
    /// The last block that was counted: blocks that cross pages are on several.
    last: Option<u32>,
}

/// Finds the lines of blocks.
pub(super) struct Lines<'a> {
    sorter: Sorter<'a>,
    heap: &'a [Lifetime],
    max_lines: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        symbols: &'a mut Symbolizer,
        heap: &'a [Lifetime],
        options: &'a TopOptions,
    ) -> Self {
        let sorter = Sorter::new(snapshot, symbols, By::Line, DeviceId::HOST, options, heap);
        Self { sorter, heap, max_lines: options.limit }
    }

    /// Adds a page to `pins`.
    pub(super) fn add(&mut self, pins: &mut UnnamedPins, page: &SparsePage<'_>) {
        pins.bytes += page.page_bytes;
        pins.live_bytes += page.live_bytes;
        let (mut only, mut is_alone) = (None, true);
        for (block, bytes) in page.blocks {
            let lifetime = &self.heap[block.index as usize];
            let place = self.sorter.find_or_add_row(lifetime);
            is_alone &= *only.get_or_insert(place.row) == place.row;
            let sums = pins.lines.entry(place.row).or_default();
            sums.pinned += page.page_bytes as f64 * (*bytes as f64 / page.live_bytes.max(1) as f64);
            sums.live += bytes;
            if pins.last.replace(block.index) != Some(block.index) {
                self.sorter.count(place, lifetime);
                *sums.sizes.entry(lifetime.size_bytes).or_default() += 1;
            }
        }
        if let (Some(row), true) = (only, is_alone) {
            pins.lines.entry(row).or_default().alone += page.page_bytes;
        }
    }

    /// Names the lines of several readings.
    pub(super) fn name(self, all: Vec<UnnamedPins>, precision: &Precision) -> Vec<SparsePages> {
        let names = self.sorter.rows_by_index(precision, &KnownTotals::UNKNOWN);
        let name = |pins: UnnamedPins| {
            let pin = |(row, sums): (usize, PinSums)| Pin {
                name: names[row].name.clone(),
                bytes: sums.pinned.round() as u64,
                alone_bytes: sums.alone,
                live_bytes: sums.live,
                blocks: sums.sizes.values().sum(),
                // Of sizes with equally many blocks, the largest.
                usual_block_bytes: sums
                    .sizes
                    .iter()
                    .max_by_key(|(size, count)| (**count, **size))
                    .map_or(0, |(size, _)| *size),
                share: if pins.bytes == 0 { 0.0 } else { (sums.pinned / pins.bytes as f64).min(1.0) },
            };
            let pinned_by_in_all = pins.lines.len();
            let mut pinned_by: Vec<Pin> = pins.lines.into_iter().map(pin).collect();
            pinned_by.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
            pinned_by.truncate(self.max_lines);
            SparsePages { bytes: pins.bytes, live_bytes: pins.live_bytes, pinned_by, pinned_by_in_all }
        };
        all.into_iter().map(name).collect()
    }
}

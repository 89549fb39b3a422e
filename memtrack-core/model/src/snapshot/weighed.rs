//! The weight of a recorded block. In a sampled heap, a sampled block represents others of its size. A recording stores
//! the weight in the block's flags, whereas PyTorch's form stores it in the settings that memtrack wrote. All reports
//! use this module, so they agree.

use super::{Meta, Snapshot};
use crate::event::EventFlags;
use crate::snapshot::pytorch::Key;

/// A block with its weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeighedBlock {
    /// The size of the recorded block itself, in bytes.
    pub size_bytes: u64,
    /// The bytes that the block represents: its size, or more if it was sampled.
    pub bytes: u64,
    /// The number of blocks that the block represents: 1, or more if it was sampled.
    pub blocks: f64,
    /// Whether the block was sampled, so that [`Self::bytes`] and [`Self::blocks`] are estimates.
    pub estimated: bool,
}

impl WeighedBlock {
    /// Returns the weight of a block of `size_bytes` with these `flags` in a recording with this `meta`.
    pub fn of(size_bytes: u64, flags: EventFlags, meta: &Meta) -> Self {
        let estimated = flags.contains(EventFlags::SAMPLED);
        let blocks = meta.weight(flags, size_bytes);
        let bytes = if estimated { (size_bytes as f64 * blocks).round() as u64 } else { size_bytes };
        Self { size_bytes, bytes, blocks, estimated }
    }

    /// Creates a block that represents only itself.
    fn exact(size_bytes: u64) -> Self {
        Self { size_bytes, bytes: size_bytes, blocks: 1.0, estimated: false }
    }
}

/// Formats the text that marks a block as a sample in PyTorch's files and on pages. `scope` is the name of the
/// block's scope, which may be empty, and `blocks` the number of blocks that it represents.
pub fn sample_label(scope: &str, size_bytes: u64, blocks: f64) -> String {
    let between = if scope.is_empty() { "" } else { " " };
    format!("{scope}{between}[sample of {size_bytes} B, stands for {blocks:.2} blocks]")
}

impl Snapshot {
    /// Returns the weight of the block that the event in `row` concerns.
    ///
    /// # Panics
    /// Panics when there is no such event.
    pub fn weighed_event(&self, row: usize) -> WeighedBlock {
        let bytes = self.events.size_bytes[row];
        let Some(pytorch) = self.pytorch.as_deref() else {
            return WeighedBlock::of(bytes, self.events.flags[row], &self.meta);
        };
        if pytorch.samples.is_empty() {
            return WeighedBlock::exact(bytes);
        }
        pytorch.samples.weighed(pytorch.events.text(row, Key::UserMetadata), bytes)
    }

    /// Returns the weight of the live block in this row of [`Self::blocks`].
    ///
    /// # Panics
    /// Panics when there is no such block.
    pub fn weighed_block(&self, row: usize) -> WeighedBlock {
        let block = &self.blocks[row];
        match self.pytorch.as_deref() {
            None => WeighedBlock::of(block.size_bytes, block.flags, &self.meta),
            Some(pytorch) => pytorch.samples.weighed_block(row, block.size_bytes),
        }
    }
}

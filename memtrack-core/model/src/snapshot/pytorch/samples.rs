//! Sampled blocks in PyTorch's files. These files have no weights, so the size of a sampled block is the number of bytes
//! that it represents, and totals and peaks are the estimates. The block's own size and weight are in its
//! `user_metadata`, as text for people. For memtrack, they are also in the allocator settings, once for each such text,
//! under a key that other programs ignore:
//! `allocator_settings.memtrack.samples = [[text, scope's path, size in bytes, weight], …]`.

use crate::snapshot::{StringId, WeighedBlock};
use std::collections::HashMap;

/// The texts that mark a block as a sample, with the data of the samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    by_text: HashMap<StringId, Sample>,
    /// The samples by their rows in [`Snapshot::blocks`].
    by_block: HashMap<u32, Sample>,
}

/// A sampled block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The path of the block's scope.
    pub path: StringId,
    /// The block's own size in bytes.
    pub size_bytes: u64,
    /// The number of blocks that it represents.
    pub weight: f64,
}

impl Sample {
    fn weighed(self, bytes: u64) -> WeighedBlock {
        WeighedBlock { size_bytes: self.size_bytes, bytes, blocks: self.weight, estimated: true }
    }
}

impl Samples {
    /// Creates a table of samples from maps by text and by row of [`Snapshot::blocks`].
    ///
    /// [`Snapshot::blocks`]: crate::Snapshot::blocks
    pub fn new(by_text: HashMap<StringId, Sample>, by_block: HashMap<u32, Sample>) -> Self {
        Self { by_text, by_block }
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.by_text.is_empty()
    }

    /// Returns whether the metadata `text` marks a block as a sample.
    pub fn has(&self, text: StringId) -> bool {
        self.by_text.contains_key(&text)
    }

    /// Returns the weight of a block of `bytes` whose metadata is `text`.
    pub fn weighed(&self, text: StringId, bytes: u64) -> WeighedBlock {
        match self.by_text.get(&text) {
            Some(sample) => sample.weighed(bytes),
            None => WeighedBlock { size_bytes: bytes, bytes, blocks: 1.0, estimated: false },
        }
    }

    /// Returns the weight of the block in this row of [`Snapshot::blocks`](crate::Snapshot::blocks).
    pub fn weighed_block(&self, row: usize, bytes: u64) -> WeighedBlock {
        match self.by_block.get(&(row as u32)) {
            Some(sample) => sample.weighed(bytes),
            None => WeighedBlock { size_bytes: bytes, bytes, blocks: 1.0, estimated: false },
        }
    }

    /// Returns the scope path in the metadata `text`, which is `text` itself for a block that is not a sample.
    pub fn path(&self, text: StringId) -> StringId {
        self.by_text.get(&text).map_or(text, |sample| sample.path)
    }
}
